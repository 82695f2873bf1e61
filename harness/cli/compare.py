"""envsuite compare: paired differences between runs on the games that they share."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from envsuite.errors import UsageError
from harness import cli
from harness.cli.arguments.flags import add_common
from harness.interop import other_runs
from harness.stats.compare import PROTOCOL, Difference, Run, Standing, compare, read_run, refuse_unlike, standing
from harness.stats.intervals import Interval


def parser() -> argparse.ArgumentParser:
    parser = cli.CliParser(
        prog="envsuite compare",
        description="Compare runs in pairs: paired by game, clustered by seed, adjusted by Holm's method. "
        "Runs that played different games are compared on the games that both played.",
    )
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        help="two or more run folders, inspect logs (.eval), Harbor jobs, verifiers folders, or SWE-bench reports",
    )
    add_common(parser, "metric")
    parser.add_argument("--effect", type=float, default=0.05, help="difference that would matter (default: 0.05)")
    parser.add_argument("--level", type=float, default=0.05, help="significance level (default: 0.05)")
    parser.add_argument("--power", type=float, default=0.8, help="power (default: 0.8)")
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        choices=PROTOCOL,
        metavar="SETTING",
        help=f"a setting that may differ between the runs: {', '.join(PROTOCOL)}",
    )
    parser.add_argument("--profile", action="store_true", help="print the share of games above each score, per run")
    add_common(parser, "json", "verbose")
    return parser


def _main(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv)
    if not args.effect > 0 or not 0 < args.level < 1 or not 0 < args.power < 1:
        raise UsageError("--effect must be above 0, --level and --power between 0 and 1.")
    runs = [run for path in args.runs for run in other_runs.read(path) or [read_run(path)]]
    cli.print_warnings(run.warning for run in runs)
    if len(runs) < 2:
        raise UsageError("Name two or more run folders to compare.")
    refuse_unlike(runs, [*args.allow, "seeds"])
    differences = compare(runs, args.metric, args.effect, args.level, args.power)
    standings = [standing(run, args.metric, args.level) for run in runs]
    if args.json:
        pairs = [{**asdict(pair), "mean": pair.mean._asdict()} for pair in differences]
        cli.print_json({"runs": [_plain(entry) for entry in standings], "differences": pairs})
        return 0
    console = cli.console()
    interval = f"[{100 * (1 - args.level):.0f} %]"
    console.print(_run_table(standings, args.metric, interval))
    if any(entry.repeats for entry in standings):
        console.print(_repeats(standings, interval))
    if args.profile:
        console.print(_profile(standings, args.metric, interval))
    console.print(_difference_table(differences, args.metric, args.effect, interval))
    for note in filter(None, [_unequal_games(runs), *map(_unstated, runs)]):
        console.print(note, highlight=False, soft_wrap=True)
    return 0


def _unstated(run: Run) -> str:
    """Names the settings that the run of another harness does not state; else ''."""
    missing = ", ".join(name for name in run.config.get("unstated", ()) if name not in ("seeds", "panel"))
    return f"{run.path} does not state {missing}: check yourself that these are equal." if missing else ""


def _unequal_games(runs: Sequence[Run]) -> str:
    """Says that pairs are compared on their common games, if the runs played different ones; else ''."""
    games = [{record["seed"] for record in run.records} for run in runs]
    if all(seeds == games[0] for seeds in games):
        return ""
    counts = ", ".join(f"{run.name} {len(seeds)}" for run, seeds in zip(runs, games, strict=True))
    return f"The runs played different games ({counts}): each pair is compared on the games that both played."


def _difference_table(differences: Sequence[Difference], metric: str, effect: float, interval: str) -> Table:
    heads = ("games", f"difference {interval}", "p", "p (Holm)", "detectable", f"games for {effect:g}")
    table = cli.new_table(f"{metric}, second minus first", ("first", "second"), heads)
    table.caption_justify = "left"
    table.caption = (
        "detectable: the smallest difference that this number of games would show; "
        f"games for {effect:g}: games needed to show a difference of {effect:g}"
    )
    for pair in differences:
        mean = pair.mean
        table.add_row(
            pair.first,
            pair.second,
            str(pair.games),
            f"{mean.value:+.3f}" + ("" if math.isnan(mean.low) else f" [{mean.low:+.3f}, {mean.high:+.3f}]"),
            _p_value(pair.p),
            _p_value(pair.p_holm),
            # If all games differ by the same amount, there is no spread to compute it from.
            f"{pair.detectable:.3f}" if pair.detectable > 0 else "–",
            f"{pair.needed:,}" if pair.needed else "–",
        )
    return table


def _p_value(p: float) -> str:
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"


def _in_words(interval: Interval) -> str:
    bounds = "" if math.isnan(interval.low) else f" [{interval.low:.3f}, {interval.high:.3f}]"
    return f"{interval.value:.3f}{bounds} n={interval.n}"


def _plain(entry: Standing) -> dict[str, Any]:
    return {
        "name": entry.name,
        **{name: getattr(entry, name)._asdict() for name in ("success", "mean", "iqm")},
        "repeats": {name: interval._asdict() for name, interval in entry.repeats.items()},
        "profile": {str(level): interval._asdict() for level, interval in entry.profile.items()},
    }


def _run_table(standings: Sequence[Standing], metric: str, interval: str) -> Table:
    heads = (f"mean {interval}", f"interquartile mean {interval}")
    table = cli.new_table(f"{metric}, each run by itself", ["run"], heads)
    for entry in standings:
        table.add_row(entry.name, _in_words(entry.mean), _in_words(entry.iqm))
    return table


def _repeats(standings: Sequence[Standing], interval: str) -> Table:
    names = list(dict.fromkeys(name for entry in standings for name in entry.repeats))
    table = cli.new_table(f"share of games won in k attempts {interval}", ["run"], names)
    for entry in standings:
        table.add_row(entry.name, *(_in_words(entry.repeats[name]) if name in entry.repeats else "–" for name in names))
    return table


def _profile(standings: Sequence[Standing], metric: str, interval: str) -> Table:
    names = [entry.name for entry in standings]
    table = cli.new_table(f"share of games with {metric} above a score {interval}", (), ["above", *names])
    for level in standings[0].profile:
        table.add_row(f"{level:g}", *(_in_words(entry.profile[level]) for entry in standings))
    return table


main = cli.command(_main)
