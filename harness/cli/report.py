"""envsuite report: finished runs as one HTML file that needs no network."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.errors import MissingExtra, UsageError
from harness import cli
from harness.cli.arguments.flags import TRUSTED_HELP, add_common
from harness.cli.terminal.counter import counter
from harness.stats.compare import PROTOCOL
from harness.suites.plan import parse_setting


def parser() -> argparse.ArgumentParser:
    commands = cli.CliParser(
        prog="envsuite report",
        description="Write finished runs, and learning curves, as one HTML file with a trajectory viewer.",
        epilog="Example: envsuite report runs -o report.html",
    )
    commands.add_argument(
        "runs", nargs="+", type=Path, help="run folders, training folders, or a folder that holds some of them"
    )
    commands.add_argument("-o", "--output", type=Path, default=Path("report.html"), help="(default: report.html)")
    commands.add_argument("--title", default="envsuite report", help="title of the page")
    commands.add_argument(
        "--replay",
        type=int,
        default=20,
        metavar="N",
        help="episodes per run to replay for prompts, pictures and expert moves; 0 for none (default: 20)",
    )
    commands.add_argument(
        "--pictures", type=float, default=15, metavar="MB", help="size limit of all pictures (default: 15)"
    )
    commands.add_argument("--max-size", type=float, default=60, metavar="MB", help="largest file written (default: 60)")
    commands.add_argument(
        "--allow",
        action="append",
        default=[],
        choices=PROTOCOL,
        metavar="SETTING",
        help=f"a setting that may differ between the runs: {', '.join(PROTOCOL)}",
    )
    add_common(commands, "module", "verbose", set=TRUSTED_HELP)
    return commands


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    if args.replay < 0 or args.pictures < 0 or args.max_size <= 0:
        raise UsageError("--replay and --pictures must not be negative, and --max-size must be above 0.")
    cli.import_modules(args.module)
    registry.tasks("*")  # plugins too
    trusted = dict(parse_setting(word) for word in args.set)
    registry.check_trusted(trusted)
    from harness import report

    material = report.gather(args.runs, args.allow)
    cli.print_warnings(run.warning for run in material.runs)
    episodes = sum(len(run.records) for run in material.runs)
    show = counter("report", episodes)
    try:
        page = report.render(material, args.title, args.replay, args.pictures, args.max_size, trusted, show)
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"The report needs the package {error.name!r}, which is not installed: pip install 'envsuite[report]'"
        ) from error
    write_atomically(args.output, page)
    counts = f"{cli.plural(len(material.runs), 'run')}, {cli.plural(episodes, 'episode')}"
    print(f"{args.output}: {counts}, {len(page.encode()) / 2**20:.1f} MB")
    return 0


main = cli.command(_main)
