"""envsuite-replay: replays results files and reports every difference."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envsuite.errors import UsageError
from harness import cli, records
from harness.cli.common.flags import TRUSTED_HELP
from harness.generalization import grid_check
from harness.replay import check
from harness.suites import leaderboards
from harness.suites.plan import parse_setting


def parser() -> argparse.ArgumentParser:
    top_parser = argparse.ArgumentParser(
        prog="envsuite-replay", description="Re-execute the stored commands of results files."
    )
    top_parser.add_argument(
        "files", nargs="+", type=Path, help="results.jsonl, run folders, leaderboards, grids, or folders of them"
    )
    top_parser.add_argument("--check", action="store_true", help="compare observations, rewards, endings (the default)")
    top_parser.add_argument(
        "--module", action="append", default=[], help="Python module that registers your own environments"
    )
    top_parser.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE", help=TRUSTED_HELP)
    top_parser.add_argument(
        "--sample", type=int, metavar="K", help="replay only K episodes of each file, always the same ones"
    )
    top_parser.add_argument("--num-workers", type=int, default=-1, help="environment processes; -1 as needed, 0 none")
    top_parser.add_argument("-v", "--verbose", action="store_true", help="a line for every episode")
    return top_parser


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv)


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    if args.sample is not None and args.sample < 1:
        raise UsageError(f"--sample must be at least 1, not {args.sample}.")
    cli.import_modules(args.module)
    trusted = dict(parse_setting(word) for word in args.set)
    failed = checked = 0
    for path in args.files:
        files = _files(path)
        checked += len(files)
        if not files:
            print(f"{path}: skipped, it holds no records of episodes", flush=True)
        players: tuple[str, ...] = ()
        if (path / "metadata.json").exists():  # a leaderboard: is it complete, and under its suite's protocol?
            players = leaderboards.COMPUTED
            for fault in leaderboards.faults(leaderboards.read(path)):
                cli.print_safely(f"{path}: {fault}", sys.stderr)
                failed += 1
        for fault in _grid_faults(path):
            cli.print_safely(fault, sys.stderr)
            failed += 1
        for file in files:
            failed += _replay(file, players, trusted, args)
    if not checked:
        raise UsageError(f"Nothing to replay in {', '.join(map(str, args.files))}: name results files or run folders.")
    return 1 if failed else 0


def _files(path: Path) -> list[Path]:
    """Returns the results files of a path: the file itself, a folder's own, or all that are below a folder."""
    if not path.is_dir():
        return [path]
    file = records.results_file(path)
    if file.exists() or (path / "metadata.json").exists():
        return [file]
    return sorted({*path.rglob("results.jsonl"), *path.rglob("results.jsonl.gz")})


def _grid_faults(path: Path) -> Iterator[str]:
    """Yields where the generalization grids in a folder, or directly below it, contradict their records."""
    if not path.is_dir():
        return
    for grid in sorted({*path.glob("grid.json"), *path.glob("*/grid.json")}):
        for fault in grid_check.faults(grid.parent):
            yield f"{grid.parent}: {fault}"


def _replay(file: Path, players: tuple[str, ...], trusted: Mapping[str, Any], args: argparse.Namespace) -> int:
    """Replays one file, prints what differs and the totals, and returns the number of differences."""
    same = differ = 0
    stored = len(records.read_results(file))
    total = min(stored, args.sample or stored)
    terminal = sys.stderr.isatty()
    for record, difference in check(file, args.num_workers, players=players, trusted=trusted, sample=args.sample):
        same, differ = same + (not difference), differ + bool(difference)
        if terminal:
            print(f"\r\x1b[K{file}: {same + differ:,} of {total:,} episodes\r", end="", file=sys.stderr, flush=True)
        if difference or args.verbose:
            name = f"{record['task']} seed {record['seed']} attempt {record['attempt']}"
            cli.print_safely(f"{file}: {name}: {difference or 'same'}", sys.stderr if difference else sys.stdout)
    part = f" (a sample of {stored:,})" if total < stored else ""
    if terminal:
        print("\x1b[K", end="", file=sys.stderr, flush=True)
    print(f"{file}: {same} episodes replayed the same, {differ} differ{part}", flush=True)
    return differ


if __name__ == "__main__":
    main()
