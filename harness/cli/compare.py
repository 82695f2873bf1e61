"""envsuite-compare: paired differences between runs on the same episodes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from envsuite.errors import UsageError
from harness import cli
from harness.stats.compare import PROTOCOL, Standing, compare, read_run, refuse_unlike, standing
from harness.stats.intervals import Interval


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
    found.add_argument(
        "--allow",
        action="append",
        default=[],
        choices=PROTOCOL,
        metavar="SETTING",
        help=f"a setting that may differ between the runs: {', '.join(PROTOCOL)}",
    )
    found.add_argument("--profile", action="store_true", help="share of games above each score, per run")
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
    alone = [standing(run, args.metric, args.level) for run in runs]
    if args.json:
        pairs = [_numbers({**asdict(one), "mean": _numbers(one.mean._asdict())}) for one in found]
        print(json.dumps({"runs": [_plain(one) for one in alone], "differences": pairs}, indent=2))
        return 0
    console = cli.console()
    interval = f"[{100 * (1 - args.level):.0f} %]"
    console.print(_runs(alone, args.metric, interval))
    if any(one.repeats for one in alone):
        console.print(_repeats(alone, interval))
    if args.profile:
        console.print(_profile(alone, args.metric, interval))
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
            f"{mean.value:+.3f}" + ("" if mean.low != mean.low else f" [{mean.low:+.3f}, {mean.high:+.3f}]"),
            f"{one.p:.4f}",
            f"{one.p_holm:.4f}",
            # Games that all differ alike show no spread to reckon with.
            f"{one.detectable:.3f}" if one.detectable > 0 else "–",
            f"{one.needed:,}" if one.needed else "–",
        )
    console.print(table)
    return 0


def _said(found: Interval) -> str:
    bounds = "" if found.low != found.low else f" [{found.low:.3f}, {found.high:.3f}]"
    return f"{found.value:.3f}{bounds} n={found.n}"


def _numbers(found: dict[str, Any]) -> dict[str, Any]:
    """What JSON can hold: no number is null."""
    return {key: None if value != value else value for key, value in found.items()}


def _plain(one: Standing) -> dict[str, Any]:
    spell = lambda found: _numbers(found._asdict())
    return {
        "name": one.name,
        **{name: spell(getattr(one, name)) for name in ("success", "mean", "iqm")},
        "repeats": {name: spell(found) for name, found in one.repeats.items()},
        "profile": {str(level): spell(found) for level, found in one.profile.items()},
    }


def _runs(alone: Sequence[Standing], metric: str, interval: str) -> Table:
    table = Table(title=f"{metric}, each run by itself", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("run")
    for head in (f"mean {interval}", f"interquartile mean {interval}"):
        table.add_column(head, justify="right")
    for one in alone:
        table.add_row(one.name, _said(one.mean), _said(one.iqm))
    return table


def _repeats(alone: Sequence[Standing], interval: str) -> Table:
    table = Table(title=f"share of games won in k attempts {interval}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("run")
    names = list(dict.fromkeys(name for one in alone for name in one.repeats))
    for name in names:
        table.add_column(name, justify="right")
    for one in alone:
        table.add_row(one.name, *(_said(one.repeats[name]) if name in one.repeats else "–" for name in names))
    return table


def _profile(alone: Sequence[Standing], metric: str, interval: str) -> Table:
    table = Table(title=f"share of games with {metric} above a score {interval}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("above", justify="right")
    for one in alone:
        table.add_column(one.name, justify="right")
    for level in alone[0].profile:
        table.add_row(f"{level:g}", *(_said(one.profile[level]) for one in alone))
    return table


if __name__ == "__main__":
    main()
