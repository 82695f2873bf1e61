"""Paired differences of a study of one setting, for the pairs that its plan names in `pairs`.

Runs of one seed are a pair. Trainers that compare groups play the same games in the first update, drawing with the
same random numbers; PPO plays as many different games instead. A study compares several pairs, so that one of many
95 % intervals excludes 0 by chance in more than 5 % of studies. The second interval of the area is therefore
simultaneous (Bonferroni): all of a study's such intervals hold together in 95 % of studies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from baselines.studies.factorial import LAST, Measure, Run, area, final
from harness.stats.intervals import Interval, student

COLUMNS = (
    "pairs",
    "area under the curve",
    "area, all {count} differences at once",
    f"last {LAST} updates",
    "held-out games after training",
)


class Contrast(NamedTuple):
    """First minus second value of a setting, over the seeds that both have."""

    area: Interval
    area_of_all: Interval
    final: Interval
    held_out: Interval


def held_out(run: Run) -> float:
    """Returns the share of held-out games that a run wins after its last update."""
    return float(run["evals"][-1]["success"])


def contrast(first: Sequence[Run], second: Sequence[Run], count: int) -> Contrast | None:
    """Returns the differences over common seeds, one of `count` in its study; None without a common seed."""
    others = {run["seed"]: run for run in second}
    pairs = [(run, others[run["seed"]]) for run in first if run["seed"] in others]
    if not pairs:
        return None

    def over_pairs(measure: Measure, confidence: float = 0.95) -> Interval:
        return student([measure(one) - measure(other) for one, other in pairs], confidence)

    return Contrast(over_pairs(area), over_pairs(area, 1 - 0.05 / count), over_pairs(final), over_pairs(held_out))


def table(plan: dict[str, Any], by_value: dict[str, list[Run]]) -> list[str]:
    """Returns the lines of the table of a plan's `pairs`; none if it names none, or if none has been run."""
    pairs = plan.get("pairs", ())
    rows = []
    for first, second in pairs:
        found = contrast(by_value[first], by_value[second], len(pairs))
        if found is not None:
            rows.append(f"| {first} - {second} | {found.area.n} | {' | '.join(map(_signed, found))} |")
    if not rows:
        return []
    heads = [column.format(count=len(pairs)) for column in COLUMNS]
    return [
        "Differences over pairs of runs with one seed, with 95 % intervals (Student's t):",
        "",
        f"| difference | {' | '.join(heads)} |",
        "|" + "---|" * (len(heads) + 1),
        *rows,
        "",
    ]


def _signed(interval: Interval) -> str:
    if interval.n < 2:
        return f"{interval.value:+.2f} (of one)"
    return f"{interval.value:+.2f} ({interval.low:+.2f} to {interval.high:+.2f})"
