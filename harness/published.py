"""Published numbers, and our runs beside them.

`published.jsonl.gz` holds 1,687 printed results with their set-ups and sources, one JSON object a line; `tables.toml` says
which tasks of ours a table's columns are. Nothing printed here was made by hand.
"""

from __future__ import annotations

import gzip
import importlib.resources
import json
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.errors import DataError, UsageError, did_you_mean


class Cell(NamedTuple):
    """A number with what is known of its spread."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None


class Row(NamedTuple):
    """A line of a table: who, and a cell per column."""

    label: str
    ours: bool
    cells: dict[str, Cell]


class PaperTable(NamedTuple):
    """A published table with our rows beside it."""

    name: str
    title: str
    columns: dict[str, str]  # published variant -> our task
    rows: list[Row]
    notes: list[str]
    suite: str


def records() -> list[dict[str, Any]]:
    """Every published number."""
    data = (importlib.resources.files("harness") / "published.jsonl.gz").read_bytes()
    return [json.loads(line) for line in gzip.decompress(data).splitlines()]


def tables() -> dict[str, dict[str, Any]]:
    """The tables that can be printed, by name."""
    return tomllib.loads((importlib.resources.files("harness") / "tables.toml").read_text())


def table(name: str, folders: Iterable[Path] = ()) -> PaperTable:
    """A table by name, with the runs found below `folders`. Raises UsageError naming the nearest."""
    known = tables()
    if name not in known:
        raise UsageError(f"No table {name!r}: there are {', '.join(known)}.{did_you_mean(name, known)}")
    spec = known[name]
    columns, scale = spec["columns"], spec.get("scale", 1.0)
    rows: dict[str, dict[str, Cell]] = {}
    for one in records():
        if one["key"] != spec["key"] or one["table_or_figure"] != spec["table"] or one["task_variant"] not in columns:
            continue
        if not isinstance(one["value"], (int, float)):
            continue
        spread = one["std_or_ci"] if isinstance(one["std_or_ci"], (int, float)) else None
        value = one["value"] * scale
        low, high = (None, None) if spread is None else (value - spread * scale, value + spread * scale)
        label = f"{one['model']}, {one['method']}"
        rows.setdefault(label, {}).setdefault(one["task_variant"], Cell(value, low, high, one["n_episodes"]))
    found = [Row(label, False, cells) for label, cells in rows.items()]
    found += _ours(spec["metric"], columns, folders)
    return PaperTable(name, spec["title"], columns, found, spec.get("notes", []), spec["suite"])


def _ours(metric: str, columns: dict[str, str], folders: Iterable[Path]) -> list[Row]:
    """A row per model that has finished runs of the columns' tasks. Runs with knobs of their own are another task."""
    variants = {task: variant for variant, task in columns.items()}
    rows: dict[str, dict[str, Cell]] = {}
    protocols: dict[str, dict[str, Any]] = {}
    for folder in folders:
        for path in sorted(folder.glob("**/summary.json")):
            try:
                summary = json.loads(path.read_text())
            except ValueError as error:
                raise DataError(f"{path} is no summary ({error}): finish the run with --resume.") from error
            if summary["task"] not in variants or summary["knobs"]:
                continue
            interval = summary["metrics"].get(metric) if metric not in summary else summary[metric]
            if interval is None or interval["value"] is None:
                continue
            variant = variants[summary["task"]]
            same = {key: summary.get(key) for key in ("reward_mode", "max_turns", "sampling", "prompting")}
            label = summary["model"]
            if label in protocols and protocols[label] != same:
                raise UsageError(
                    f"{path.parent} differs in protocol from other runs of {label!r} below the same folders: "
                    "name the runs of one protocol with --runs."
                )
            protocols[label] = same
            if variant in rows.get(label, {}):
                raise UsageError(f"Two runs of {label!r} on {summary['task']}: name one of them with --runs.")
            rows.setdefault(label, {})[variant] = Cell(
                interval["value"], interval["low"], interval["high"], interval["n"]
            )
    return [Row(label, True, cells) for label, cells in sorted(rows.items())]


def verdict(published: Cell, measured: Cell) -> str:
    """'reproduced' within both intervals, 'within interval' inside ours, else 'deviates'."""
    if measured.low is None or measured.high is None:
        return "no interval"
    inside = measured.low <= published.value <= measured.high
    if published.low is not None and published.high is not None:
        overlap = published.low <= measured.value <= published.high
        return "reproduced" if inside and overlap else "within interval" if inside or overlap else "deviates"
    return "within interval" if inside else "deviates"


def missing(found: PaperTable, model: str) -> Sequence[str]:
    """The tasks of a table that a model has not been run on."""
    have = next((row.cells for row in found.rows if row.ours and row.label == model), {})
    return [task for variant, task in found.columns.items() if variant not in have]
