"""Published tables with our measurements, as a terminal table, as Markdown and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from rich.box import SIMPLE_HEAD
from rich.table import Table

from envsuite.escaping import markdown
from harness.policies import is_model
from harness.suites.paper_table import DEVIATES, NOT_RUN, REPRODUCED, WITHIN, PaperTable, Row, TableCell

SPREAD = "Published numbers as printed, with their printed spread; measured numbers with 95 % intervals."
WORDS = (
    f"{REPRODUCED}: each number lies within the other's interval; {WITHIN}: one of them does, or the "
    "printed one has no "
    f"interval and lies within ours; {DEVIATES}: neither."
)
OURS = "rows that begin with 'ours:' are players other than the published ones and reproduce none of them."
MOST_COMMANDS = 4
"""commands that are listed in full"""


def statuses(table: PaperTable) -> Counter[str]:
    """Counts the published cells by verdict."""
    counts: Counter[str] = Counter()
    for row in table.rows:
        if not row.ours:
            counts.update(table.status(row, column.name) for column in table.columns if column.name in row.cells)
    return counts


def notes(table: PaperTable, escape: Callable[[str], str] = str) -> list[str]:
    """Returns the footnotes: contradictions, remarks, and the command and cost of each row that was not run.

    `escape` is applied to text that comes from run folders.
    """
    published = {row.model for row in table.rows if not row.ours}
    has_other_models = any(row.ours and is_model(row.label) and row.label not in published for row in table.rows)
    absent = [column.name for column in table.columns if not column.task]
    counts = ", ".join(f"{number} {name}" for name, number in statuses(table).most_common())
    return [
        *(f"[{mark}] {text}" for mark, text in _marks(table).values()),
        *table.notes,
        *(f"small trainings, whose models and budgets reproduce no cell: {line}" for line in table.small),
        *([OURS] if has_other_models else []),
        *([f"no task of ours: {'; '.join(absent)}"] if absent else []),
        *(f"left out, not of suite {table.suite!r}: {escape(line)}" for line in table.left_out),
        *_commands(table),
        SPREAD,
        WORDS,
        "published cells: " + counts,
    ]


def _commands(table: PaperTable) -> list[str]:
    """Returns a line per command that would fill rows that were not run."""
    labels: dict[str, list[str]] = {}
    for row in table.rows:
        if not row.ours and any(table.status(row, column.name) == NOT_RUN for column in table.columns):
            command = " -- ".join(part for part in (row.command, row.cost) if part)
            labels.setdefault(command, []).append(row.label)
    if len(labels) > MOST_COMMANDS:
        labels = {"each row's command and cost: --json": [f"{sum(map(len, labels.values()))} rows"]}
    return [f"not run: {'; '.join(rows)}: {command}" for command, rows in labels.items()]


def _marks(table: PaperTable) -> dict[tuple[str, str], tuple[str, str]]:
    return {cell: (chr(ord("a") + index), text) for index, (cell, text) in enumerate(table.footnotes.items())}


def lines(table: PaperTable) -> list[tuple[list[str], bool]]:
    """Returns (cells, ours) per line: each published row, below it our measurement, and at the end our other rows."""
    marks = _marks(table)
    result: list[tuple[list[str], bool]] = []
    paired = set()
    for row in table.rows:
        if row.ours:
            continue
        cells = []
        for column in table.columns:
            mark = marks.get((row.label, column.name))
            cells.append(number(row.cells.get(column.name)) + (f" [{mark[0]}]" if mark else ""))
        result.append(([row.label, *cells], False))
        measured = table.measured(row)
        paired.add(measured.label if measured else "")
        head = "  measured" + (f": {measured.label}" if measured else "")
        result.append(([head, *_verdicts(table, row, measured)], measured is not None))
    for row in table.rows:
        if row.ours and row.label not in paired:
            cells = [number(row.cells.get(column.name)) or NOT_RUN for column in table.columns]
            result.append((["ours: " + row.label, *cells], True))
    return result


def _verdicts(table: PaperTable, row: Row, measured: Row | None) -> list[str]:
    cells = []
    for column in table.columns:
        status = table.status(row, column.name)
        cell = measured.cells.get(column.name) if measured else None
        cells.append(f"{number(cell)} {status}" if cell else status)
    return cells


def number(cell: TableCell | None) -> str:
    """Returns a cell as text: value, interval and n."""
    if cell is None:
        return ""
    bounds = "" if cell.low is None or cell.high is None else f" [{cell.low:.3f}, {cell.high:.3f}]"
    return f"{cell.value:.3f}{bounds}" + (f" n={cell.n}" if cell.n else "")


def as_table(table: PaperTable) -> Table:
    """Returns the table for a terminal."""
    output = Table(
        title=table.title,
        title_justify="left",
        box=SIMPLE_HEAD,
        caption="\n".join(notes(table)),
        caption_justify="left",
    )
    output.add_column("")
    for column in table.columns:
        output.add_column(column.name, justify="right")
    for cells, ours in lines(table):
        output.add_row(*cells, style="bold" if ours else None)
    return output


def as_markdown(table: PaperTable) -> str:
    """Returns the table as Markdown."""
    heads = ["", *(column.name for column in table.columns)]
    rows = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    rows += ["| " + " | ".join([markdown(label), *cells]) + " |" for (label, *cells), _ in lines(table)]
    return "\n".join([f"### {table.title}", "", *rows, "", *(f"- {note}" for note in notes(table, markdown))])


def as_json(table: PaperTable) -> dict[str, object]:
    """Returns everything in a table, cell by cell."""
    cells = []
    for row in table.rows:
        measured = row if row.ours else table.measured(row)
        for column in table.columns:
            cell = measured.cells.get(column.name) if measured else None
            if column.name not in row.cells and not (row.ours and cell):
                continue
            cells.append(
                {
                    "row": row.label,
                    "column": column.name,
                    "task": column.task or None,
                    "ours": row.ours,
                    "published": None if row.ours else row.cells[column.name]._asdict(),
                    "measured": cell._asdict() if cell else None,
                    "status": "measured" if row.ours else table.status(row, column.name),
                    "command": row.command or None,
                    "cost": row.cost or None,
                    "footnote": table.footnotes.get((row.label, column.name)),
                }
            )
    return {
        "table": table.name,
        "title": table.title,
        "metric": table.metric,
        "suite": table.suite,
        "columns": [column.name for column in table.columns],
        "cells": cells,
        "notes": notes(table),
    }
