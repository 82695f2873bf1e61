"""envsuite table: prints a published table next to our measurements."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from envsuite.errors import UsageError
from harness import cli, cost
from harness.cli.arguments.flags import add_common, add_options, read_call
from harness.cli.playing import crossplay
from harness.cli.playing.players import Players, play
from harness.suites import reproduce
from harness.suites.paper_pages import as_json, as_markdown, lines, notes
from harness.suites.paper_table import PaperTable
from harness.suites.published import table, tables

CROSSPLAY = "crossplay"
"""Name that stands for a matrix of players instead of a published table."""


def parser() -> argparse.ArgumentParser:
    parser = cli.CliParser(
        prog="envsuite table",
        usage="%(prog)s [table] [options]",
        description="Print a published table with our finished runs in the same columns, and run what is missing.",
        epilog="The flags after --metric are the same as in envsuite-eval; the suite fixes those that affect results.",
    )
    parser.add_argument(
        "table", nargs="?", help="; ".join([*tables(), f"{CROSSPLAY} (see %(prog)s {CROSSPLAY} --help)"])
    )
    parser.add_argument("--runs", action="append", type=Path, default=[], help="folders of runs (default: runs)")
    parser.add_argument("--run", choices=reproduce.SIZES, help="play what is missing first: " + "; ".join(_sizes()))
    parser.add_argument("-m", "--model", action="append", default=[], help="with --run: this model instead; repeatable")
    parser.add_argument(
        "--row",
        action="append",
        default=[],
        metavar="PUBLISHED=MODEL[,MODEL...]",
        help="compare a published row with models that were trained here: one per training seed, which are pooled",
    )
    parser.add_argument(
        "--studies", type=Path, metavar="DIR", help="add the results of small training studies: leaderboards/training"
    )
    parser.add_argument("--metric", default="", help="instead of the table's: success | reward | pass@4 | ...")
    parser.add_argument(
        "--margin", type=float, help="difference up to which two scores agree (default: the table's, mostly 0.1)"
    )
    add_common(parser, "markdown")
    add_options(parser)
    return parser


def _sizes() -> list[str]:
    return [" ".join(line.split()).replace("%", "%%") for line in (reproduce.__doc__ or "").splitlines()[2:]]


def _main(argv: Sequence[str] | None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == [CROSSPLAY]:
        return crossplay.run(words[1:])
    args = parser().parse_args(argv)
    if args.table is None:
        for name, spec in tables().items():
            print(f"{name:18} {spec['title']}")
        print(f"{CROSSPLAY:18} every player with every player on a task of several agents; see its --help")
        return 0
    labels = [row.label for row in table(args.table).rows]
    rows = dict(_row_and_models(word, labels) for word in args.row)
    folders = args.runs or [args.output_dir]
    if args.run:
        if args.output_dir not in folders:
            folders = [*folders, args.output_dir]
        console = cli.console(stderr=args.json or args.markdown)
        _run(table(args.table, rows=rows, margin=args.margin), args, folders, console)
        if args.dry_run:
            return 0
    paper_table = table(args.table, folders, rows, args.metric, args.studies, args.margin)
    if args.json:
        cli.print_json(as_json(paper_table))
    elif args.markdown:
        print(as_markdown(paper_table))
    else:
        cli.console().print(_in_terminal(paper_table))
    return 0


def _in_terminal(paper_table: PaperTable) -> Table:
    """Returns the table for a terminal; our rows are bold."""
    table = cli.new_table(paper_table.title, [""], [column.name for column in paper_table.columns])
    table.caption, table.caption_justify = "\n".join(notes(paper_table)), "left"
    for cells, ours in lines(paper_table):
        table.add_row(*cells, style="bold" if ours else None)
    return table


def _row_and_models(word: str, labels: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Splits PUBLISHED=MODEL[,MODEL...], where the row and the models may contain '='. Raises UsageError."""
    row = next((label for label in labels if word.startswith(f"{label}=")), word.rpartition("=")[0])
    models = tuple(name.strip() for name in word[len(row) + 1 :].split(","))
    if not (row and all(models)):
        raise UsageError(f"--row takes PUBLISHED=MODEL, or PUBLISHED=MODEL,MODEL for several seeds, not {word!r}.")
    if len(set(models)) < len(models):
        raise UsageError(f"--row {word!r} names a model twice: every training seed is a model of its own.")
    return row, models


def _run(paper_table: PaperTable, args: argparse.Namespace, folders: list[Path], console: Console) -> None:
    """Prints the missing runs with their cost, then plays them; interrupted runs are resumed."""
    call = read_call(args)
    call = call._replace(execution=dataclasses.replace(call.execution, resume=True))
    absent: list[str] = []
    missing = reproduce.missing_runs(paper_table, args.run, call.flags, args.model, absent)
    for line in absent:
        console.print(line, style="yellow", highlight=False, soft_wrap=True)
    for run in missing:
        line = cost.line(run.config, args.output_dir, folders, call.execution.max_concurrent)
        console.print(f"{run.model}  {', '.join(run.columns)}: {line}", highlight=False, soft_wrap=True)
    if args.dry_run:
        return
    with Players(call) as players:
        for run in missing:
            if cost.remaining(run.config, args.output_dir):
                play(run.config, run.model, players)


main = cli.command(_main, "the same command")
