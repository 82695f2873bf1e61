"""envsuite models: lists models by their short names, and downloads them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.table import Table

from harness import cli
from harness.lm import model_files


def parser() -> argparse.ArgumentParser:
    top_parser = cli.CliParser(
        prog="envsuite models",
        description="Models by their short names.",
        epilog="Example: envsuite models get smollm2-135m",
    )
    commands = top_parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="short names, what they stand for, and whether the weights are here")
    get = commands.add_parser("get", help="make sure that a model's weights are on this machine")
    get.add_argument("model", help=f"{', '.join(model_files.BUNDLED)} (bundled), an alias, or org/name")
    cli.add_verbose(commands)
    return top_parser


def _main(argv: Sequence[str] | None) -> None:
    args = parser().parse_args(argv)
    if args.command == "get":
        print(model_files.folder(args.model, say=lambda line: print(line, file=sys.stderr, flush=True)))
        return
    table = Table("name", "stands for", "here", box=None)
    for name in (*model_files.BUNDLED, *model_files.ALIASES):
        source = model_files.resolve(name)
        path = model_files.here(source)
        table.add_row(name, str(source), f"{model_files.cached_size(path) / 1e6:,.0f} MB" if path else "-")
    cli.console().print(table)


main = cli.command(_main)
