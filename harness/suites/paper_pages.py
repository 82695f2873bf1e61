"""Published tables with our measurements, as lines, as Markdown pages and as JSON."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from envsuite.escaping import markdown
from harness.policies import is_model
from harness.suites import suites
from harness.suites.paper_table import PaperTable, Row, TableCell
from harness.suites.published import table as build
from harness.suites.published import tables
from harness.suites.verdicts import AGREES, CANNOT_TELL, DIFFERS, NOT_COMPARABLE, NOT_RUN, REPRODUCED, CellVerdict

SPREAD = (
    "Published numbers as printed, with the kind of their spread (SE: standard error; ?: the source does not say; "
    "~: read off a figure); measured numbers with 95 % intervals."
)
WORDS = (
    "{agrees}: the difference (ours minus published) is shown to be below {margin:g}; {differs}: it is shown not to be "
    "0; {cannot_tell}: neither, with the games needed to tell; {not_comparable}: another quantity or protocol. The "
    "interval of a difference is of 95 %; the words are adjusted over the table by Holm, 5 % false words per table."
)
ONE_SEED = 'one training seed of ours compares two models, not two methods: --row "ROW=A,B,C" pools seeds.'
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
    published = {model for row in table.rows if not row.ours for model in row.models}
    has_other_models = any(row.ours and is_model(row.label) and row.label not in published for row in table.rows)
    absent = [column.name for column in table.columns if not column.task]
    counts = ", ".join(f"{number} {name}" for name, number in statuses(table).most_common())
    return [
        *(f"[{mark}] {text}" for mark, text in _marks(table).values()),
        *table.notes,
        *(f"small trainings, whose models and budgets reproduce no cell: {line}" for line in table.small),
        *_missing_seeds(table, escape),
        *([OURS] if has_other_models else []),
        *([f"no task of ours: {'; '.join(absent)}"] if absent else []),
        *(f"left out, not of suite {table.suite!r}: {escape(line)}" for line in table.left_out),
        *_commands(table),
        SPREAD,
        *([ONE_SEED] if _one_seed(table) else []),
        WORDS.format(
            agrees=AGREES,
            differs=DIFFERS,
            cannot_tell=CANNOT_TELL,
            not_comparable=NOT_COMPARABLE,
            margin=table.margin,
        ),
        *_prompts(table),
        "published cells: " + counts,
    ]


def _prompts(table: PaperTable) -> list[str]:
    """Returns a line about the prompt of cells that agree, where the suite has a published one."""
    protocol = suites.suite(table.suite).get("protocol")
    if not protocol or not statuses(table).keys() & {AGREES, REPRODUCED}:
        return []
    return [
        f"{REPRODUCED}: {AGREES}, and the model read the published prompt (--protocol {protocol}); cells that only "
        "agree were measured with other words."
    ]


def _missing_seeds(table: PaperTable, escape: Callable[[str], str]) -> list[str]:
    """Returns a line per row whose training seeds were not all run."""
    played = {row.label for row in table.rows if row.ours}
    absent = {row.label: [model for model in row.models if model not in played] for row in table.rows if not row.ours}
    return [
        f"seeds without a run: {escape(', '.join(absent[row.label]))} (of {len(row.models)} for {row.label})"
        for row in table.rows
        if not row.ours and len(row.models) > 1 and absent[row.label]
    ]


def _one_seed(table: PaperTable) -> bool:
    """True if a published row of a training method is compared with a single model of ours."""
    return any(row.trained and len(row.models) == 1 for row in table.rows if not row.ours)


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
    paired: set[str] = set()
    for row in table.rows:
        if row.ours:
            continue
        cells = []
        for column in table.columns:
            mark = marks.get((row.label, column.name))
            cells.append(number(row.cells.get(column.name), table.scale) + (f" [{mark[0]}]" if mark else ""))
        result.append(([row.label, *cells], False))
        measured = table.measured(row)
        paired.update(row.models)
        head = "  measured" + (f": {measured.label}" if measured else "")
        result.append(([head, *_measured(table, row, measured)], measured is not None))
        if measured:
            result.append((["  difference", *_differences(table, row, measured)], True))
    for row in table.rows:
        if row.ours and row.label not in paired:
            cells = [number(row.cells.get(column.name)) or NOT_RUN for column in table.columns]
            result.append((["ours: " + row.label, *cells], True))
    return result


def _measured(table: PaperTable, row: Row, measured: Row | None) -> list[str]:
    """Returns our number below each published one, or why there is none."""
    cells = []
    for column in table.columns:
        cell = measured.cells.get(column.name) if measured else None
        verdict = table.verdicts.get((row.label, column.name))
        cells.append(number(cell) or (verdict.in_words() if verdict else ""))
    return cells


def _differences(table: PaperTable, row: Row, measured: Row) -> list[str]:
    both = [column.name in row.cells and column.name in measured.cells for column in table.columns]
    return [
        table.verdicts[row.label, column.name].in_words() if compared else ""
        for column, compared in zip(table.columns, both, strict=True)
    ]


def number(cell: TableCell | None, scale: float = 1.0) -> str:
    """Returns a cell as text: a published number as printed, ours with interval, spread over splits and games."""
    if cell is None:
        return ""
    if cell.printed:
        return cell.printed.in_words(scale)
    bounds = "" if cell.low is None or cell.high is None else f" [{cell.low:.3f}, {cell.high:.3f}]"
    spread = "" if cell.over_splits is None else f" ± {cell.over_splits:.3f} (over splits)"
    seeds = f" in {cell.seeds} seeds" if cell.seeds > 1 else ""
    return f"{cell.value:.3f}{bounds}{spread}" + (f" n={cell.n}{seeds}" if cell.n else "")


def as_markdown(table: PaperTable) -> str:
    """Returns the table as Markdown."""
    heads = ["", *(column.name for column in table.columns)]
    rows = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    rows += ["| " + " | ".join([markdown(label), *cells]) + " |" for (label, *cells), _ in lines(table)]
    return "\n".join([f"### {table.title}", "", *rows, "", *(f"- {note}" for note in notes(table, markdown))])


def pages(root: Path) -> dict[Path, str]:
    """Returns the committed page of every table, by path, rendered from the records below `root`/tables."""
    folder = root / "tables"
    if not folder.is_dir():
        return {}
    rendered = {name: build(name, [folder / "records"], studies=root / "training") for name in tables()}
    return {folder / f"{name}.md": as_markdown(paper_table) + "\n" for name, paper_table in rendered.items()}


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
                    "published": None if row.ours else _published(row.cells[column.name]),
                    "measured": _numbers(cell) if cell else None,
                    "status": "measured" if row.ours else table.status(row, column.name),
                    "verdict": None if row.ours else _verdict(table.verdicts[row.label, column.name]),
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
        "margin": table.margin,
        "columns": [column.name for column in table.columns],
        "cells": cells,
        "notes": notes(table),
    }


def _numbers(cell: TableCell) -> dict[str, object]:
    """Returns our cell: score, 95 % interval, games, training seeds, deviation over splits."""
    names = ("value", "low", "high", "n", "seeds", "over_splits")
    return {name: getattr(cell, name) for name in names}


def _published(cell: TableCell) -> dict[str, object]:
    """Returns a published cell: the scaled number, its 95 % interval, and what its source says about its error."""
    result: dict[str, object] = {name: getattr(cell, name) for name in ("value", "low", "high", "n")}
    if cell.printed:
        names = ("value", "unit", "games", "seeds", "splits", "spread", "rounding", "origin", "best_of")
        printed = dataclasses.asdict(cell.printed)
        result["printed"] = {name: printed[name] for name in names}
    return result


def _verdict(verdict: CellVerdict) -> dict[str, object]:
    """Returns a verdict with the difference, the adjusted p-values and the games needed."""
    return {
        "word": verdict.word,
        "reason": verdict.reason or None,
        "difference": verdict.difference and verdict.difference._asdict(),
        "p_differs": verdict.p_differs,
        "p_agrees": verdict.p_agrees,
        "needed": verdict.needed and verdict.needed._asdict(),
    }
