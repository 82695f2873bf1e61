"""envsuite-table: a paper's table, our runs beside it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from harness import cli
from harness.published import Cell, table, tables


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="envsuite-table", description="Print a published table with our finished runs in the same columns."
    )
    found.add_argument("table", nargs="?", help="; ".join(tables()))
    found.add_argument("--runs", action="append", type=Path, default=[], help="folders of runs (default: runs)")
    found.add_argument("--markdown", action="store_true", help="as Markdown")
    found.add_argument("--json", action="store_true")
    found.add_argument("-v", "--verbose", action="store_true")
    return found


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv)


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    if args.table is None:
        for name, spec in tables().items():
            print(f"{name:18} {spec['title']}")
        return 0
    found = table(args.table, args.runs or [Path("runs")])
    if args.json:
        print(json.dumps(found._asdict(), indent=2))
        return 0
    heads = ["", *found.columns]
    lines = [
        [("ours: " if row.ours else "") + row.label, *(_cell(row.cells.get(column)) for column in found.columns)]
        for row in found.rows
    ]
    footnotes = [
        *found.notes,
        "Published numbers as printed, with what is printed of their spread; ours with 95 % intervals.",
    ]
    if not any(row.ours for row in found.rows):
        footnotes.append(f"not run: envsuite-eval --model MODEL --env suite:{found.suite}")
    if args.markdown:
        print(f"### {found.title}\n")
        print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
        for line in lines:
            print("| " + " | ".join(line) + " |")
        print("\n" + "\n".join(f"- {note}" for note in footnotes))
        return 0
    shown = Table(
        title=found.title, title_justify="left", box=SIMPLE_HEAD, caption="\n".join(footnotes), caption_justify="left"
    )
    for index, head in enumerate(heads):
        shown.add_column(head, justify="right" if index else "left")
    for line, row in zip(lines, found.rows, strict=True):
        shown.add_row(*line, style="bold" if row.ours else None)
    cli.console().print(shown)
    return 0


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "not run"
    bounds = "" if cell.low is None or cell.high is None else f" [{cell.low:.3f}, {cell.high:.3f}]"
    return f"{cell.value:.3f}{bounds}" + (f" n={cell.n}" if cell.n else "")


if __name__ == "__main__":
    main()
