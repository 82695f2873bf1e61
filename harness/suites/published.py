"""Tables of published results with our own runs beside them, cell by cell.

`published.jsonl` holds 1,687 printed results with their set-ups and sources, one JSON object per line.
`tables.toml` maps the columns of each table to our tasks, and published rows to our models. `table` builds a
`PaperTable` from both and from run folders.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from envsuite.errors import UsageError, did_you_mean
from harness.suites import measured, training_studies
from harness.suites.paper_table import Column, PaperTable, Row, TableCell

SHARED = ("models", "zero-shot", "trained", "no-row")
"""sections of tables.toml that are not tables"""


@functools.cache
def records() -> tuple[dict[str, Any], ...]:
    """Returns every published number."""
    lines = (importlib.resources.files("harness.suites") / "published.jsonl").read_text("utf-8").splitlines()
    return tuple(json.loads(line) for line in lines)


def _spec() -> dict[str, dict[str, Any]]:
    return tomllib.loads((importlib.resources.files("harness.suites") / "tables.toml").read_text())


def tables() -> dict[str, dict[str, Any]]:
    """Returns the specifications of all tables by name."""
    return {name: spec for name, spec in _spec().items() if name not in SHARED}


def table(
    name: str,
    folders: Iterable[Path] = (),
    rows: Mapping[str, str] | None = None,
    metric: str = "",
    studies: Path | None = None,
) -> PaperTable:
    """Returns a table with the runs below `folders`. Raises UsageError with the nearest name if it is unknown.

    `rows` maps published rows to models that were trained here. `metric` replaces the table's own. `studies` is
    the folder of the training studies that the table names.
    """
    known = tables()
    if name not in known:
        raise UsageError(f"No table {name!r}: there are {', '.join(known)}.{did_you_mean(name, known)}")
    spec = known[name]
    columns = [_column(column, value) for column, value in spec["columns"].items()]
    published = _published_rows(name, spec, [column.name for column in columns], rows or {})
    ours, left_out = measured.rows(metric or spec["metric"], columns, spec["suite"], folders, explicit=bool(metric))
    notes = spec.get("notes", [])
    reasons = _spec()["no-row"]
    if not ours and (reason := reasons.get(name) or reasons.get(spec["suite"])):
        notes = [*notes, f"no row of ours: {reason}"]
    return PaperTable(
        name=name,
        title=spec["title"],
        metric=metric or spec["metric"],
        suite=spec["suite"],
        columns=columns,
        rows=[*published, *ours],
        notes=notes,
        footnotes={(note["row"], note["column"]): note["text"] for note in spec.get("footnotes", ())},
        left_out=left_out,
        small=[training_studies.in_words(studies / study) for study in spec.get("studies", ())] if studies else [],
    )


def _column(name: str, value: str | dict[str, Any]) -> Column:
    if isinstance(value, str):
        return Column(name, value)
    return Column(name, value["task"], value.get("set", {}), value.get("task_type", ""))


def _published_rows(name: str, spec: dict[str, Any], columns: list[str], chosen: Mapping[str, str]) -> list[Row]:
    pivot = re.compile(spec.get("variant", r"(?P<column>.*)"))
    rows: dict[str, dict[str, TableCell]] = {}
    sources: dict[str, tuple[str, str]] = {}
    for record in records():
        if record["key"] != spec["key"] or record["table_or_figure"] != spec["table"]:
            continue
        if any(record[key] != value for key, value in spec.get("only", {}).items()):
            continue
        match = pivot.fullmatch(record["task_variant"])
        if not match or match["column"] not in columns or not isinstance(record["value"], (int, float)):
            continue
        suffix = [match["row"]] if "row" in match.groupdict() else []
        label = ", ".join([record["model"], record["method"], *suffix])
        sources[label] = record["model"], record["method"]
        rows.setdefault(label, {}).setdefault(match["column"], _published_cell(record, spec.get("scale", 1.0)))
    for label in chosen:
        if label not in rows:
            raise UsageError(
                f"Table {name!r} has no row {label!r}: it has {'; '.join(rows)}.{did_you_mean(label, rows)}"
            )
    return [
        Row(label, False, cells, *_runner(name, spec, label, *sources[label], chosen.get(label, "")))
        for label, cells in rows.items()
    ]


def _published_cell(record: dict[str, Any], scale: float) -> TableCell:
    value = record["value"] * scale
    if not isinstance(record["std_or_ci"], (int, float)):
        return TableCell(value, None, None, record["n_episodes"])
    spread = record["std_or_ci"] * scale
    return TableCell(value, value - spread, value + spread, record["n_episodes"])


def _runner(name: str, spec: dict[str, Any], label: str, model: str, method: str, chosen: str) -> tuple[str, str, str]:
    """Returns (our model, the command that runs a published row, its cost)."""
    shared, costs = _spec(), spec.get("cost", {})
    ours = shared["models"].get(model, "")
    if chosen:
        return chosen, f"envsuite-eval -m {chosen} -e suite:{spec['suite']}", costs.get("zero-shot", "")
    if method in shared["zero-shot"]["methods"] and ours:
        return ours, f"envsuite-table {name} --run paper --model {ours}", costs.get("zero-shot", "")
    algorithm = shared["trained"].get(method)
    if algorithm and ours:
        command = (
            f"envsuite-train RECIPE.toml --set algorithm={algorithm} --set model.name={ours} -o CKPT && "
            f'envsuite-table {name} --run paper --model CKPT/model --row "{label}=CKPT/model"'
        )
        return "", command, costs.get("trained", "")
    return "", "", "no command here: its model or method is not in this suite"
