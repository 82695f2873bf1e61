"""Export of records as a table in a Parquet file."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envsuite.cache import write_atomically
from envsuite.types import knobs_json
from harness.prompting.tool_calls import assistant_message, result_messages
from harness.records import Record
from harness.steps import reply_calls, reply_text
from harness.types import Message

if TYPE_CHECKING:
    import pyarrow

COPIED = {
    "task": "string", "seed": "int64", "attempt": "int64", "model": "string", "reward_mode": "string",
    "success": "bool", "reward": "float64", "progression": "float64", "stop_reason": "string",
    "terminated": "bool", "truncated": "bool", "num_turns": "int64", "input_tokens": "int64", "output_tokens": "int64",
    "cost": "float64", "error": "string", "objective": "string", "schema_version": "string",
}  # fmt: skip
"""fields of a record that become columns without conversion"""


def messages(record: Record) -> list[Message]:
    """Returns an episode as chat messages: observations as user, replies as assistant, the objective first.

    Replies keep their tool calls, in OpenAI's format, and observations are then the results of the calls.
    Records do not contain the system prompt; `envsuite data demos` writes complete conversations for fine-tuning.
    """
    first = "\n\n".join(filter(None, [record["objective"], record["first_observation"]]))
    chat = [{"role": "user", "content": first}]
    for step in record["steps"]:
        text, calls = reply_text(step), reply_calls(step)
        chat.append(assistant_message(text, calls))
        chat += result_messages(calls, step["observation"])
    return chat


def row(record: Record) -> dict[str, Any]:
    """Converts a record to a row; knobs, labels and metrics, which depend on the task, become JSON strings."""
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


def table(records: Iterable[Record]) -> pyarrow.Table:
    """Converts records to an Arrow table, also if there are none. Its schema is fixed, except that messages only have
    the fields of tool calls if there are any.
    """
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
    rows = [row(record) for record in records]
    message = [("role", text), ("content", text)]
    if any("tool_calls" in message for row in rows for message in row["messages"]):
        function = pa.struct([("name", text), ("arguments", text)])
        call = pa.struct([("id", text), ("type", text), ("function", function)])
        message += [("tool_calls", pa.list_(call)), ("tool_call_id", text)]
    schema = pa.schema(
        [
            *((name, kinds[kind]) for name, kind in COPIED.items()),
            *((name, text) for name in ("knobs", "labels", "metrics")),
            ("messages", pa.list_(pa.struct(message))),
            ("steps", pa.list_(pa.struct(step))),
        ]
    )
    return pa.Table.from_pylist([writable(row) for row in rows], schema=schema)


def writable(value: Any) -> Any:
    """Replaces lone surrogates, which models can write and Arrow cannot store, in all strings of a value."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() if not value.isascii() else value
    if isinstance(value, list):
        return [writable(item) for item in value]
    return {name: writable(item) for name, item in value.items()} if isinstance(value, dict) else value


def write_parquet(records: Sequence[Record], path: Path) -> None:
    """Writes a Parquet file atomically; read it with `datasets.load_dataset("parquet", data_files=...)`."""
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table(records), buffer, compression="zstd")
    write_atomically(path, buffer.getvalue())
