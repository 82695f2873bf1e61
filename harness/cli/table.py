"""envsuite-table: a paper's table, published beside measured, cell by cell."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from envsuite.errors import UsageError
from harness import cli
from harness.capacity import cost
from harness.cli.plans import Parser, add_options, execution
from harness.cli.players import Players, play
from harness.policies import is_model
from harness.stats.summary import plain
from harness.suites import reproduce
from harness.suites.published import DEVIATES, NOT_RUN, REPRODUCED, WITHIN, Cell, PaperTable, Row, table, tables

SPREAD = "Published numbers as printed, with what is printed of their spread; measured ones with 95 % intervals."
WORDS = (
    f"{REPRODUCED}: each number lies within the other's interval; {WITHIN}: one of them does, or the printed one has no "
    f"interval and lies within ours; {DEVIATES}: neither."
)

OURS = "rows that begin with 'ours:' are other players than the published ones: a model named there reproduces none of them."


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="envsuite-table",
        description="Print a published table with our finished runs in the same columns, and run what is missing.",
        epilog="Flags below `run` are those of envsuite-eval; the table's suite fixes all that changes the number.",
    )
    found.add_argument("table", nargs="?", help="; ".join(tables()))
    found.add_argument("--runs", action="append", type=Path, default=[], help="folders of runs (default: runs)")
    found.add_argument("--run", choices=reproduce.SIZES, help="play what is missing first: " + "; ".join(_sizes()))
    found.add_argument("-m", "--model", action="append", default=[], help="with --run: this model instead; repeatable")
    found.add_argument(
        "--row", action="append", default=[], metavar="PUBLISHED=MODEL", help="a model trained here for a published row"
    )
    found.add_argument(
        "--studies",
        type=Path,
        default=None,
        metavar="DIR",
        help="with what trainings in small gave: leaderboards/training",
    )
    found.add_argument("--metric", default="", help="instead of the table's: success | reward | pass@4 | ...")
    found.add_argument("--markdown", action="store_true", help="as Markdown")
    add_options(found)
    found.set_defaults(output_dir=Path("runs"))
    return found


def _sizes() -> list[str]:
    return [" ".join(line.split()).replace("%", "%%") for line in (reproduce.__doc__ or "").splitlines()[2:]]


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv, "the same command")


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    if args.table is None:
        for name, spec in tables().items():
            print(f"{name:18} {spec['title']}")
        return 0
    labels = [row.label for row in table(args.table).rows]
    rows = dict(_named(word, labels) for word in args.row)
    folders = args.runs or [args.output_dir]
    if args.run:
        if args.output_dir not in folders:
            folders = [*folders, args.output_dir]
        console = cli.console(stderr=args.json or args.markdown)
        _run(table(args.table, rows=rows), args, folders, console)
        if args.dry_run:
            return 0
    found = table(args.table, folders, rows, args.metric, args.studies)
    if args.json:
        print(json.dumps(as_json(found), indent=2))
    elif args.markdown:
        print(as_markdown(found))
    else:
        cli.console().print(as_table(found))
    return 0


def _named(word: str, labels: Sequence[str]) -> tuple[str, str]:
    """A published row and our model; either may have an '=' in it."""
    row = next((label for label in labels if word.startswith(f"{label}=")), word.rpartition("=")[0])
    model = word[len(row) + 1 :]
    if not (row and model):
        raise UsageError(f"--row takes PUBLISHED=MODEL, not {word!r}.")
    return row, model


def _run(found: PaperTable, args: argparse.Namespace, folders: list[Path], console: Console) -> None:
    """Says what is missing and what it takes, then plays it; what was begun before goes on."""
    how = dataclasses.replace(execution(args), resume=True)
    absent: list[str] = []
    todo = reproduce.todo(found, args.run, args, args.model, absent)
    for said in absent:
        console.print(said, style="yellow", highlight=False, soft_wrap=True)
    for one in todo:
        said = cost.line(one.config, args.output_dir, folders, args.max_concurrent)
        console.print(f"{one.model}  {', '.join(one.columns)}: {said}", highlight=False, soft_wrap=True)
    if args.dry_run:
        return
    with Players(args) as players:
        for one in todo:
            if cost.remaining(one.config, args.output_dir):
                play(one.config, one.model, args, how, players, console)


def statuses(found: PaperTable) -> Counter[str]:
    """How many published cells there are of each verdict."""
    return Counter(
        found.status(row, column.name) for row in found.rows if not row.ours for column in found.columns
        if column.name in row.cells
    )  # fmt: skip


def notes(found: PaperTable) -> list[str]:
    """Footnotes: contradictions, remarks, and for what was not run its command and cost."""
    marks = [f"[{mark}] {text}" for mark, text in _marks(found).values()]
    commands: dict[str, list[str]] = {}
    for row in found.rows:
        if not row.ours and any(found.status(row, column.name) == NOT_RUN for column in found.columns):
            said = " -- ".join(part for part in (row.command, row.cost) if part)
            commands.setdefault(said, []).append(row.label)
    if len(commands) > 4:  # rows that differ in names alone are told once
        commands = {"each row's command and cost: --json": [f"{sum(map(len, commands.values()))} rows"]}
    absent = [column.name for column in found.columns if not column.task]
    count = statuses(found)
    beside = {row.model for row in found.rows if not row.ours}
    return [
        *marks,
        *found.notes,
        *(f"in small, by models and budgets of ours that reproduce no cell: {said}" for said in found.small),
        *([OURS] if any(row.ours and is_model(row.label) and row.label not in beside for row in found.rows) else []),
        *([f"no task of ours: {'; '.join(absent)}"] if absent else []),
        *(f"left out, not of suite {found.suite!r}: {said}" for said in found.left_out),
        *(f"not run: {'; '.join(labels)}: {said}" for said, labels in commands.items()),
        SPREAD,
        WORDS,
        "published cells: " + ", ".join(f"{number} {name}" for name, number in count.most_common()),
    ]


def _marks(found: PaperTable) -> dict[tuple[str, str], tuple[str, str]]:
    return {where: (chr(ord("a") + index), text) for index, (where, text) in enumerate(found.footnotes.items())}


def grid(found: PaperTable) -> list[tuple[list[str], bool]]:
    """The table's lines as text: a published row, beneath it what we measured for it, at the end our other rows."""
    marks, lines, shown = _marks(found), [], set()
    for row in found.rows:
        if row.ours:
            continue
        cells = []
        for column in found.columns:
            mark = marks.get((row.label, column.name))
            cells.append(number(row.cells.get(column.name)) + (f" [{mark[0]}]" if mark else ""))
        lines.append(([row.label, *cells], False))
        mine = found.measured(row)
        shown.add(mine.label if mine else "")
        lines.append(
            (["  measured" + (f": {mine.label}" if mine else ""), *_beside(found, row, mine)], mine is not None)
        )
    for row in found.rows:
        if row.ours and row.label not in shown:
            cells = [number(row.cells.get(column.name)) or NOT_RUN for column in found.columns]
            lines.append((["ours: " + row.label, *cells], True))
    return lines


def _beside(found: PaperTable, row: Row, mine: Row | None) -> list[str]:
    cells = []
    for column in found.columns:
        status = found.status(row, column.name)
        have = mine.cells.get(column.name) if mine else None
        cells.append(f"{number(have)} {status}" if have else status)
    return cells


def number(cell: Cell | None) -> str:
    if cell is None:
        return ""
    bounds = "" if cell.low is None or cell.high is None else f" [{cell.low:.3f}, {cell.high:.3f}]"
    return f"{cell.value:.3f}{bounds}" + (f" n={cell.n}" if cell.n else "")


def as_table(found: PaperTable) -> Table:
    shown = Table(
        title=found.title,
        title_justify="left",
        box=SIMPLE_HEAD,
        caption="\n".join(notes(found)),
        caption_justify="left",
    )
    shown.add_column("")
    for column in found.columns:
        shown.add_column(column.name, justify="right")
    for cells, ours in grid(found):
        shown.add_row(*cells, style="bold" if ours else None)
    return shown


def as_markdown(found: PaperTable) -> str:
    heads = ["", *(column.name for column in found.columns)]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(plain(cell.strip()) for cell in cells) + " |" for cells, _ in grid(found)]
    return "\n".join([f"### {found.title}", "", *lines, "", *(f"- {note}" for note in notes(found))])


def as_json(found: PaperTable) -> dict[str, object]:
    """Everything of a table, a cell at a time."""
    cells = []
    for row in found.rows:
        mine = row if row.ours else found.measured(row)
        for column in found.columns:
            have = mine.cells.get(column.name) if mine else None
            if column.name not in row.cells and not (row.ours and have):
                continue
            cells.append({
                "row": row.label, "column": column.name, "task": column.task or None, "ours": row.ours,
                "published": None if row.ours else row.cells[column.name]._asdict(),
                "measured": have._asdict() if have else None,
                "status": "measured" if row.ours else found.status(row, column.name),
                "command": row.command or None, "cost": row.cost or None,
                "footnote": found.footnotes.get((row.label, column.name)),
            })  # fmt: skip
    return {
        "table": found.name,
        "title": found.title,
        "metric": found.metric,
        "suite": found.suite,
        "columns": [column.name for column in found.columns],
        "cells": cells,
        "notes": notes(found),
    }


if __name__ == "__main__":
    main()
