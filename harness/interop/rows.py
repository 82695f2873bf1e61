"""Records as rows of a table: Parquet files and Hugging Face datasets."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envsuite.cache import write_atomically
from envsuite.types import knobs_json
from harness.records import Record, reply_text
from harness.types import Message

if TYPE_CHECKING:
    import pyarrow

COPIED = {
    "task": "string", "seed": "int64", "attempt": "int64", "model": "string", "reward_mode": "string",
    "success": "bool", "reward": "float64", "progression": "float64", "stop_reason": "string",
    "terminated": "bool", "truncated": "bool", "num_turns": "int64", "input_tokens": "int64", "output_tokens": "int64",
    "cost": "float64", "error": "string", "objective": "string", "schema_version": "string",
}  # fmt: skip
"""fields of a record that become a column as they are"""


def messages(record: Record) -> list[Message]:
    """The episode as a chat: what was seen is the user's, what was said the assistant's, the objective on top.

    The system prompt is not in a record; `envsuite-data demos` writes whole conversations to fine-tune on.
    """
    found = [{"role": "user", "content": "\n\n".join(filter(None, [record["objective"], record["first_observation"]]))}]
    for step in record["steps"]:
        found.append({"role": "assistant", "content": reply_text(step)})
        found.append({"role": "user", "content": step["observation"]})
    return found


def row(record: Record) -> dict[str, Any]:
    """One record as one row; knobs, labels and metrics, which differ from task to task, as JSON."""
    return {
        **{name: record[name] for name in COPIED},
        "knobs": knobs_json(record["knobs"]),
        "labels": json.dumps(record["labels"], sort_keys=True),
        "metrics": json.dumps(record["metrics"], sort_keys=True),
        "messages": messages(record),
        "steps": [
            {"reply": reply_text(step), **{name: step[name] for name in ("commands", "observation", "reward", "fault")}}
            for step in record["steps"]
        ],
    }


def table(found: Iterable[Record]) -> pyarrow.Table:
    """Records as an Arrow table of one fixed schema, however few there are."""
    import pyarrow as pa

    text = pa.string()
    kinds = {"string": text, "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}
    step = [
        ("reply", text),
        ("commands", pa.list_(text)),
        ("observation", text),
        ("reward", pa.float64()),
        ("fault", text),
    ]
    schema = pa.schema(
        [
            *((name, kinds[kind]) for name, kind in COPIED.items()),
            *((name, text) for name in ("knobs", "labels", "metrics")),
            ("messages", pa.list_(pa.struct([("role", text), ("content", text)]))),
            ("steps", pa.list_(pa.struct(step))),
        ]
    )
    return pa.Table.from_pylist([writable(row(one)) for one in found], schema=schema)


def writable(value: Any) -> Any:
    """Lone surrogates, which a model may write and Arrow cannot hold, as the replacement character."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() if not value.isascii() else value
    if isinstance(value, list):
        return [writable(one) for one in value]
    return {name: writable(one) for name, one in value.items()} if isinstance(value, dict) else value


def write_parquet(found: Sequence[Record], path: Path) -> None:
    """One Parquet file, whole or not at all; `datasets.load_dataset("parquet", data_files=...)` reads it."""
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table(found), buffer, compression="zstd")
    write_atomically(path, buffer.getvalue())


def write_dataset(found: Sequence[Record], folder: Path) -> None:
    """A folder for `datasets.load_from_disk`."""
    import datasets

    datasets.disable_progress_bars()
    datasets.Dataset(table(found)).save_to_disk(str(folder))
