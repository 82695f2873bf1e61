"""Tables of studies: mean, interval and paired differences, with starts as the outer unit.

A plan states which factor is compared (`compare`) and which one holds repetitions (`outer`, such as
the weights that runs start from); every combination of the other factors is a section. The mean of
a method is the mean over starts of the mean over seeds, and its interval is Student's t over starts.
Without `outer` the seeds are the units.
A difference pairs runs of one start and seed. It has two intervals: over starts, which speaks of
other starts of this kind, and over all pairs, which speaks of these starts alone. Without `outer` the
second interval is the simultaneous one (Bonferroni): all of a table's such intervals of a measure hold
together in 95 % of studies.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from harness.stats.intervals import Interval, student
from harness.suites.training_studies import cells, seeds

Run = dict[str, Any]
Measure = Callable[[Run], float]
Unit = tuple[str, int]
"""A start and a seed."""

LAST = 5
"""Updates at the end of a run whose mean is the final value."""


class MethodDifference(NamedTuple):
    """The difference of two methods in a measure."""

    over_starts: Interval
    over_pairs: Interval
    """Simultaneous with other differences if `difference` is told their number."""


def area(run: Run) -> float:
    """Returns the mean success over a run's updates: the area under its curve, as a share."""
    return sum(update["success"] for update in run["updates"]) / len(run["updates"])


def final(run: Run) -> float:
    """Returns the mean success of a run's last updates."""
    return _last(run, "success")


def held_out(run: Run) -> float:
    """Returns the share of held-out games that a run wins after its last update."""
    return float(run["evals"][-1]["success"])


def _last(run: Run, key: str) -> float:
    values = [update[key] for update in run["updates"][-LAST:] if key in update]
    return sum(values) / len(values) if values else math.nan


def _first(run: Run, key: str) -> float:
    """Returns the first value of a number that updates without a policy step lack."""
    return float(next((update[key] for update in run["updates"] if key in update), math.nan))


def _policy_steps(run: Run) -> float:
    """Returns the policy steps of a run; NaN for records that do not count them."""
    taken = [update["policy_steps"] for update in run["updates"] if "policy_steps" in update]
    return sum(taken) if taken else math.nan


def by_unit(runs: Sequence[Run], outer: str | None, levels: dict[str, dict[str, str]]) -> dict[Unit, Run]:
    """Returns runs by start and seed; without `outer` the seed is the start. `levels`: of each variant."""
    return {(levels[run["variant"]].get(outer or "", str(run["seed"])), run["seed"]): run for run in runs}


def over_starts(values: dict[Unit, float]) -> Interval:
    """Returns the mean over starts of the means over seeds, with Student's t over starts."""
    grouped: dict[str, list[float]] = defaultdict(list)
    for (start, _), value in values.items():
        grouped[start].append(value)
    return student([sum(group) / len(group) for group in grouped.values()])


def difference(
    first: dict[Unit, Run], second: dict[Unit, Run], measure: Measure, count: int = 1
) -> MethodDifference | None:
    """Returns first minus second over the starts and seeds that both have, one of `count` differences; None if
    there are none."""
    pairs = {unit: measure(first[unit]) - measure(second[unit]) for unit in first if unit in second}
    if not pairs:
        return None
    return MethodDifference(over_starts(pairs), student(list(pairs.values()), 1 - 0.05 / count))


def sections(plan: dict[str, Any]) -> list[tuple[str, dict[str, str]]]:
    """Returns the title and the levels of each section; a single one without other factors."""
    others = [factor for factor in plan["factors"] if factor not in (plan["compare"], plan.get("outer"))]
    combinations = itertools.product(*(plan["factors"][factor] for factor in others))
    return [(" ".join(names) or "all", dict(zip(others, names, strict=True))) for names in combinations]


def runs_of(plan: dict[str, Any], runs: Sequence[Run], section: dict[str, str]) -> dict[str, list[Run]]:
    """Returns the runs of a section by the level of the compared factor, without levels that have none."""
    levels = {cell.variant: cell.levels for cell in cells(plan)}
    result: dict[str, list[Run]] = {name: [] for name in plan["factors"][plan["compare"]]}
    for run in runs:
        of_run = levels.get(run["variant"])
        if of_run is not None and section.items() <= of_run.items() and run["seed"] in seeds(plan):
            result[of_run[plan["compare"]]].append(run)
    return {name: members for name, members in result.items() if members}


def tables(plan: dict[str, Any], by_method: dict[str, list[Run]]) -> list[str]:
    """Returns the lines of a section: a table of methods, and one of the differences in `pairs`."""
    levels = {cell.variant: cell.levels for cell in cells(plan)}
    outer = plan.get("outer")
    units = {name: by_unit(runs, outer, levels) for name, runs in by_method.items()}
    over = f"{outer}s" if outer else "seeds"
    columns = (
        *("runs", over, "success at first", f"area under the curve (95 % over {over})"),
        *(f"final, last {LAST} updates (95 % over {over})", f"explained variance, last {LAST} updates"),
        *("held-out games before -> after", "entropy, first -> last", "policy steps taken", "CPU s per run"),
    )
    lines = [f"| {plan['compare']} | {' | '.join(columns)} |", "|" + "---|" * (len(columns) + 1)]
    lines += [_row(name, of_method) for name, of_method in units.items()]
    named = [(first, second) for first, second in plan.get("pairs", ()) if first in units and second in units]
    if named:
        count = 1 if outer else len(named)
        second_interval = "over pairs" if outer else f"all {count} at once"
        measures = ("area", "final", "held-out games")
        heads = ["pairs", *(f"{what}: {by}" for what in measures for by in (f"over {over}", second_interval))]
        lines += ["", f"| difference | {' | '.join(heads)} |", "|" + "---|" * (len(heads) + 1)]
        lines += [_difference_row(first, second, units, count) for first, second in named]
    return lines


def _row(name: str, units: dict[Unit, Run]) -> str:
    runs = list(units.values())

    def mean(measure: Measure) -> float:
        return sum(map(measure, runs)) / len(runs)

    updates = sum(len(run["updates"]) for run in runs)
    cells_of_row = (
        str(len(runs)),
        str(len({start for start, _ in units})),
        f"{mean(lambda run: float(run['updates'][0]['success'])):.2f}",
        _bounded(over_starts({unit: area(run) for unit, run in units.items()})),
        _bounded(over_starts({unit: final(run) for unit, run in units.items()})),
        _number(mean(lambda run: _last(run, "explained_variance"))),
        " -> ".join(_wins([run["evals"][index] for run in runs]) for index in (0, -1)),
        f"{_number(mean(lambda run: _first(run, 'entropy')))} -> {_number(mean(lambda run: _last(run, 'entropy')))}",
        f"{_number(mean(_policy_steps), 0)} in {updates / len(runs):.0f} updates",
        f"{mean(lambda run: float(run['cpu_seconds'])):.0f}",
    )
    return f"| {name} | {' | '.join(cells_of_row)} |"


def _wins(evaluations: Sequence[dict[str, Any]]) -> str:
    """Returns the number of games won over all runs."""
    won = sum(evaluation["success"] * evaluation["n"] for evaluation in evaluations)
    return f"{won:.0f} of {sum(evaluation['n'] for evaluation in evaluations)}"


def _difference_row(first: str, second: str, units: dict[str, dict[Unit, Run]], count: int) -> str:
    parts: list[str] = []
    for measure in (area, final, held_out):
        result = difference(units[first], units[second], measure, count)
        if result is None:
            return f"| {first} - {second} | 0 |" + " |" * 6
        parts = [*(parts or [str(result.over_pairs.n)]), _signed(result.over_starts), _signed(result.over_pairs)]
    return f"| {first} - {second} | {' | '.join(parts)} |"


def _number(value: float, digits: int = 2) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _bounded(interval: Interval) -> str:
    if interval.n < 2:
        return f"{interval.value:.2f} (of one)"
    return f"{interval.value:.2f} ({max(0.0, interval.low):.2f} to {min(1.0, interval.high):.2f})"


def _signed(interval: Interval) -> str:
    if interval.n < 2:
        return f"{interval.value:+.2f} (of one)"
    return f"{interval.value:+.2f} ({interval.low:+.2f} to {interval.high:+.2f})"
