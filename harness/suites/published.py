"""Tables of published results and our runs, cell by cell.

`harness.suites.published_numbers` reads the printed results. `tables.toml` maps the columns of each table to our
tasks, and published rows to our models. `table` builds a `PaperTable` from both and from run folders.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from envsuite.errors import UsageError, did_you_mean
from harness.suites import measured, training_studies
from harness.suites.paper_table import Column, PaperTable, Row, TableCell
from harness.suites.published_numbers import PublishedNumber, numbers
from harness.suites.verdicts import MARGIN

SHARED = ("models", "zero-shot", "trained", "no-row")
"""sections of tables.toml that are not tables"""


@functools.cache
def _spec() -> dict[str, dict[str, Any]]:
    return tomllib.loads((importlib.resources.files("harness.suites") / "tables.toml").read_text())


def tables() -> dict[str, dict[str, Any]]:
    """Returns the specifications of all tables by name."""
    return {name: spec for name, spec in _spec().items() if name not in SHARED}


def table(
    name: str,
    folders: Iterable[Path] = (),
    rows: Mapping[str, Sequence[str]] | None = None,
    metric: str = "",
    studies: Path | None = None,
    margin: float | None = None,
) -> PaperTable:
    """Returns a table with the runs below `folders`. Raises UsageError with the nearest name if it is unknown.

    `rows` maps published rows to models that were trained here, one per training seed. `metric` replaces the table's
    own. `studies` is the folder of the training studies that the table names. `margin` is the difference up to which
    two scores count as equal.
    """
    known = tables()
    if name not in known:
        raise UsageError(f"No table {name!r}: there are {', '.join(known)}.{did_you_mean(name, known)}")
    if margin is not None and not 0 < margin < 1:
        raise UsageError(f"The margin is a difference of scores between 0 and 1, not {margin}.")
    spec = known[name]
    columns = [column_of(column, value) for column, value in spec["columns"].items()]
    chosen = {label: tuple(models) for label, models in (rows or {}).items()}
    published = _published_rows(name, spec, [column.name for column in columns], chosen)
    over_splits = "" if metric else spec.get("over_splits", "")
    ours = measured.read(
        metric or spec["metric"], columns, spec["suite"], folders, bool(metric), over_splits, list(chosen.values())
    )
    notes = spec.get("notes", [])
    reasons = _spec()["no-row"]
    if not ours.rows and (reason := reasons.get(name) or reasons.get(spec["suite"])):
        notes = [*notes, f"no row of ours: {reason}"]
    footnotes = spec.get("footnotes", [])
    return PaperTable(
        name=name,
        title=spec["title"],
        metric=metric or spec["metric"],
        suite=spec["suite"],
        columns=columns,
        rows=[*published, *ours.rows],
        notes=notes,
        footnotes={(note["row"], note["column"]): note["text"] for note in footnotes},
        left_out=ours.left_out,
        small=[training_studies.in_words(studies / study) for study in spec.get("studies", ())] if studies else [],
        scale=spec.get("scale", 1.0),
        margin=margin or spec.get("margin", MARGIN),
        obstacles={
            (row.label, column): reason
            for row in published
            for column, cell in row.cells.items()
            if (reason := _obstacle(spec, row.label, column, cell, metric))
        },
        unlike=ours.unlike,
    )


def _obstacle(spec: dict[str, Any], label: str, column: str, cell: TableCell, metric: str) -> str:
    """Returns why a published cell cannot be compared with our score, or ''."""
    number = cell.printed
    if number is None:
        return ""
    if metric and metric != spec["metric"]:
        kind = "discount" if "discounted" in number.metric and "discounted" not in metric else "metric"
        return f"{kind}: {metric} beside the printed {number.metric}"
    if number.best_of:
        count = f" {number.best_of.count}" if number.best_of.count else ""
        return f"metric: the best of{count} {number.best_of.over} is no mean"
    for note in spec.get("footnotes", []):
        if (note["row"], note["column"]) == (label, column) and "protocol" in note:
            return f"protocol: {note['protocol']}"
    if column in spec.get("panels", {}):
        return f"panel: {spec['panels'][column]}"
    return str(spec.get("not_comparable", ""))


def column_of(name: str, value: str | dict[str, Any]) -> Column:
    if isinstance(value, str):
        return Column(name, value)
    return Column(name, value["task"], value.get("set", {}), value.get("task_type", ""))


def _published_rows(
    name: str, spec: dict[str, Any], columns: list[str], chosen: Mapping[str, tuple[str, ...]]
) -> list[Row]:
    pivot = re.compile(spec.get("variant", r"(?P<column>.*)"))
    rows: dict[str, dict[str, TableCell]] = {}
    sources: dict[str, tuple[str, str]] = {}
    for number in numbers():
        if number.key != spec["key"] or number.table_or_figure != spec["table"]:
            continue
        if any(getattr(number, key) != value for key, value in spec.get("only", {}).items()):
            continue
        match = pivot.fullmatch(number.task_variant)
        if not match or match["column"] not in columns:
            continue
        suffix = [match["row"]] if "row" in match.groupdict() else []
        label = ", ".join([number.model, number.method, *suffix])
        sources[label] = number.model, number.method
        rows.setdefault(label, {}).setdefault(match["column"], published_cell(number, spec.get("scale", 1.0)))
    for label in chosen:
        if label not in rows:
            raise UsageError(
                f"Table {name!r} has no row {label!r}: it has {'; '.join(rows)}.{did_you_mean(label, rows)}"
            )
    return [
        Row(label, False, cells, *_runner(name, spec, label, *sources[label], chosen.get(label, ())))
        for label, cells in rows.items()
    ]


def published_cell(number: PublishedNumber, scale: float) -> TableCell:
    """Returns a printed number as a cell, with its 95 % interval where its source allows one."""
    value = number.value * scale
    estimate = number.estimate(scale) if 0 <= value <= 1 else None
    low, high = estimate.interval() if estimate else (None, None)
    return TableCell(value, low, high, number.total_games, estimate, printed=number)


def _runner(
    name: str, spec: dict[str, Any], label: str, model: str, method: str, chosen: tuple[str, ...]
) -> tuple[tuple[str, ...], str, str, bool]:
    """Returns (our models, the command that runs a published row, its cost, True if its method trains)."""
    shared, costs = _spec(), spec.get("cost", {})
    ours = shared["models"].get(model, "")
    if chosen:
        command = f"envsuite-eval -m {chosen[0]} -e suite:{spec['suite']}"
        return chosen, command, costs.get("zero-shot", ""), method in shared["trained"]
    if method in shared["zero-shot"]["methods"] and ours:
        return (ours,), f"envsuite table {name} --run paper --model {ours}", costs.get("zero-shot", ""), False
    algorithm = shared["trained"].get(method)
    if algorithm and ours:
        command = (
            f"envsuite-train RECIPE.toml --set algorithm={algorithm} --set model.name={ours} -o CKPT && "
            f'envsuite table {name} --run paper --model CKPT/model --row "{label}=CKPT/model"'
        )
        return (), command, costs.get("trained", ""), True
    return (), "", "no command here: its model or method is not in this suite", False
