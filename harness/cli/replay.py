"""envsuite-replay: play a results file again and say whether it comes out the same."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness import cli, records
from harness.cli.common.flags import TRUSTED_HELP
from harness.replay import check
from harness.suites import leaderboards
from harness.suites.plan import parse_setting


def parser() -> argparse.ArgumentParser:
    top_parser = argparse.ArgumentParser(
        prog="envsuite-replay", description="Re-execute the stored commands of results files."
    )
    top_parser.add_argument("files", nargs="+", type=Path, help="results.jsonl, run folders, or leaderboards")
    top_parser.add_argument("--check", action="store_true", help="compare observations, rewards, endings (the default)")
    top_parser.add_argument(
        "--module", action="append", default=[], help="Python module that registers your own environments"
    )
    top_parser.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE", help=TRUSTED_HELP)
    top_parser.add_argument("--num-workers", type=int, default=-1, help="environment processes; -1 as needed, 0 none")
    top_parser.add_argument("-v", "--verbose", action="store_true", help="a line for every episode")
    return top_parser


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv)


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    cli.import_modules(args.module)
    trusted = dict(parse_setting(word) for word in args.set)
    failed = 0
    for path in args.files:
        file = records.results_file(path) if path.is_dir() else path
        same = differ = 0
        players: tuple[str, ...] = ()
        if (path / "metadata.json").exists():  # a leaderboard: is it complete, and under its suite's protocol?
            players = leaderboards.COMPUTED
            for fault in leaderboards.faults(leaderboards.read(path)):
                cli.print_safely(f"{path}: {fault}", sys.stderr)
                failed += 1
        for record, difference in check(file, args.num_workers, players=players, trusted=trusted):
            same, differ = same + (not difference), differ + bool(difference)
            if difference or args.verbose:
                name = f"{record['task']} seed {record['seed']} attempt {record['attempt']}"
                cli.print_safely(f"{file}: {name}: {difference or 'same'}", sys.stderr if difference else sys.stdout)
        print(f"{file}: {same} episodes replayed the same, {differ} differ")
        failed += differ
    return 1 if failed else 0


if __name__ == "__main__":
    main()
