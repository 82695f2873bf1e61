"""envsuite-compare: paired differences between runs on the same episodes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from envsuite.errors import UsageError
from harness import cli
from harness.compare import PROTOCOL, compare, read_run, refuse_unlike


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="envsuite-compare",
        description="Is B better than A? Paired by game, clustered by seed, Holm-adjusted over all pairs.",
    )
    found.add_argument("runs", nargs="+", type=Path, help="run folders, two or more")
    found.add_argument("--metric", default="success", help="success | reward | progression | a metric of the task")
    found.add_argument("--effect", type=float, default=0.05, help="difference one would want to see (default: 0.05)")
    found.add_argument("--level", type=float, default=0.05, help="significance level (default: 0.05)")
    found.add_argument("--power", type=float, default=0.8, help="power (default: 0.8)")
    found.add_argument("--allow", action="append", default=[], choices=PROTOCOL, help="may differ between the runs")
    found.add_argument("--json", action="store_true")
    found.add_argument("-v", "--verbose", action="store_true")
    return found


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv)


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    if len(args.runs) < 2:
        raise UsageError("Comparing takes two runs or more.")
    if not args.effect > 0 or not 0 < args.level < 1 or not 0 < args.power < 1:
        raise UsageError("--effect must be above 0, --level and --power between 0 and 1.")
    runs = [read_run(path) for path in args.runs]
    refuse_unlike(runs, args.allow)
    found = compare(runs, args.metric, args.effect, args.level, args.power)
    if args.json:
        print(json.dumps([{**asdict(one), "mean": one.mean._asdict()} for one in found], indent=2))
        return 0
    console = cli.console()
    interval = f"[{100 * (1 - args.level):.0f} %]"
    table = Table(title=f"{args.metric}, second less first", title_justify="left", box=SIMPLE_HEAD)
    for head in (
        "first",
        "second",
        "games",
        f"difference {interval}",
        "p",
        "p (Holm)",
        "detectable",
        f"games for {args.effect:g}",
    ):
        table.add_column(head, justify="left" if head in ("first", "second") else "right")
    for one in found:
        mean = one.mean
        table.add_row(
            one.first,
            one.second,
            str(one.games),
            f"{mean.value:+.3f} [{mean.low:+.3f}, {mean.high:+.3f}]",
            f"{one.p:.4f}",
            f"{one.p_holm:.4f}",
            f"{one.detectable:.3f}",
            f"{one.needed:,}",
        )
    console.print(table)
    return 0


if __name__ == "__main__":
    main()
