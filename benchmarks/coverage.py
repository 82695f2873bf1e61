"""Coverage of the 95 % intervals, by simulation: python -m benchmarks.coverage -o benchmarks/coverage.md

Draws many small evaluations from populations with a known mean, computes the interval that the harness would print, and
counts how often it contains the mean. Populations resemble evaluations: success near 0 and 1, returns that pile up at 0
or near 1, several attempts per game, training seeds, and paired differences with many ties. The columns `before` show
the methods of earlier versions: Wilson's interval for success, and percentile bootstraps.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from envsuite.cache import write_atomically
from harness.stats.estimates import Estimate
from harness.stats.intervals import SHARE, Interval, Range, mean_interval, paired, square_and_add

SIZES = (5, 10, 20)
GOAL = 0.93
RESAMPLES = 500

Draw = Callable[[np.random.Generator, int], np.ndarray]
"""draws the results of n games [n], or of n games and some attempts [n, attempts]"""


@dataclass(frozen=True)
class Population:
    """Results of games with a known mean."""

    name: str
    draw: Draw
    mean: float
    limits: Range | None = SHARE
    old: str = "bootstrap"
    """method of earlier versions: wilson, bootstrap or paired"""


def won(rate: float) -> Draw:
    return lambda rng, n: (rng.random(n) < rate).astype(float)


def won_or_nothing(rate: float) -> Draw:
    """Draws BabyAI's return: near 0.8 after success, which fewer steps raise, and 0 after failure."""
    return lambda rng, n: np.where(rng.random(n) < rate, 1 - 0.9 * rng.beta(2, 8, n), 0.0)


def attempts(a: float, b: float, count: int) -> Draw:
    """Draws wins of `count` attempts at games whose chance of success has a beta distribution."""
    return lambda rng, n: (rng.random((n, count)) < rng.beta(a, b, n)[:, None]).astype(float)


def paired_success(first: float, second: float, alike: float) -> Draw:
    """Draws differences of success on common games; with probability `alike` one draw decides both sides."""

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        common, luck = rng.random(n) < alike, rng.random((2, n))
        ours = np.where(common, luck[0], luck[1])
        return (luck[0] < first).astype(float) - (ours < second)

    return draw


def paired_attempts(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draws differences of the mean of four attempts at common games."""
    skill = rng.beta(1, 1, n)
    return (rng.binomial(4, np.minimum(1, skill + 0.1 * (1 - skill)), n) - rng.binomial(4, skill, n)) / 4


def seeds(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draws the success of n training seeds on 50 games each; one seed in ten fails to learn."""
    rate = np.where(rng.random(n) < 0.1, 0.05, rng.beta(40, 10, n))
    return rng.binomial(50, rate) / 50


GROUPS: dict[str, list[Population]] = {
    "Success, one attempt per game": [
        Population(f"success {rate}", won(rate), rate, old="wilson") for rate in (0.02, 0.05, 0.1, 0.3, 0.5, 0.9, 0.98)
    ],
    "Success, clustered": [
        Population("4 attempts, chance Beta(0.5, 0.5)", attempts(0.5, 0.5, 4), 0.5),
        Population("4 attempts, chance Beta(0.3, 2)", attempts(0.3, 2, 4), 0.3 / 2.3),
        Population("8 attempts, chance Beta(6, 1)", attempts(6, 1, 8), 6 / 7),
        Population("training seeds, a tenth fail", seeds, 0.1 * 0.05 + 0.9 * 0.8),
    ],
    "Mean of a score with a known range": [
        Population("progression, uniform", lambda rng, n: rng.random(n), 0.5),
        Population("progression, Beta(0.3, 0.3)", lambda rng, n: rng.beta(0.3, 0.3, n), 0.5),
        Population("AUC, Beta(27, 3)", lambda rng, n: rng.beta(27, 3, n), 0.9),
        Population("return, 80 % zeros", lambda rng, n: rng.random(n) * (rng.random(n) < 0.2), 0.1),
        Population("return, 5 % zeros", won_or_nothing(0.95), 0.95 * 0.82),
        Population("return, 20 % zeros", won_or_nothing(0.8), 0.8 * 0.82),
    ],
    "Mean of a score with an unknown range": [
        Population("normal", lambda rng, n: rng.normal(size=n), 0.0, None),
        Population("uniform", lambda rng, n: rng.random(n), 0.5, None),
        Population("exponential", lambda rng, n: rng.exponential(size=n), 1.0, None),
        Population("lognormal, sigma 0.5", lambda rng, n: rng.lognormal(0, 0.5, n), math.exp(0.125), None),
        Population("lognormal, sigma 1", lambda rng, n: rng.lognormal(0, 1, n), math.exp(0.5), None),
        Population(
            "70 % zeros, else exponential", lambda rng, n: rng.exponential(size=n) * (rng.random(n) < 0.3), 0.3, None
        ),
    ],
    "Paired differences": [
        Population("success 0.5 and 0.5, 80 % ties", paired_success(0.5, 0.5, 0.6), 0.0, old="paired"),
        Population("success 0.9 and 0.9, nearly all tied", paired_success(0.9, 0.9, 0.8), 0.0, old="paired"),
        Population("success 0.7 and 0.4, independent", paired_success(0.7, 0.4, 0.0), 0.3, old="paired"),
        Population("success 0.95 and 0.6", paired_success(0.95, 0.6, 0.5), 0.35, old="paired"),
        Population("four attempts, better by 0.05", paired_attempts, 0.05, old="paired"),
        Population("returns of unknown range", lambda rng, n: rng.normal(0.3, 1, n), 0.3, None, old="paired"),
    ],
}


def interval_of(population: Population, results: np.ndarray) -> Interval:
    """Returns the interval that the harness prints for results [n] or [n, attempts]."""
    if population.old == "paired":
        return paired(results.tolist(), population.limits)
    clusters = np.repeat(np.arange(len(results)), results.size // len(results)).tolist()
    return mean_interval(results.ravel().tolist(), clusters, population.limits)


def earlier_interval(population: Population, results: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """Returns the bounds of earlier versions."""
    games = results.reshape(len(results), -1).mean(axis=1)
    wins, n = round(float(games.sum())), len(games)
    if population.old == "wilson" or (
        population.old == "bootstrap" and results.ndim == 2 and set(games) in ({0.0}, {1.0})
    ):
        return Estimate(wins / n, n).interval()
    if population.old == "paired" and len(set(games)) == 1:
        half = [Interval(0.5, *Estimate(0.5, n).interval(), n)]
        return square_and_add(half, half)[1:3]
    means = games[rng.integers(n, size=(RESAMPLES, n))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


class Coverage(NamedTuple):
    """Share of intervals that contain the mean, and the median width."""

    share: float
    width: float


def finished(path: Path, key: str, compute: Callable[[], tuple[Coverage, Coverage]]) -> tuple[Coverage, Coverage]:
    """Returns a cell from the file of finished cells, after computing and adding it if it is not there."""
    cells = json.loads(path.read_text()) if path.exists() else {}
    if key not in cells:
        cells[key] = compute()
        write_atomically(path, json.dumps(cells))
    now, before = cells[key]
    return Coverage(*now), Coverage(*before)


def simulate(population: Population, n: int, evaluations: int) -> tuple[Coverage, Coverage]:
    """Returns the coverage now and before, on the same simulated evaluations."""
    rng = np.random.default_rng([n, *population.name.encode()])
    known: dict[bytes, tuple[float, float]] = {}
    bounds: list[list[tuple[float, float]]] = [[], []]
    for _ in range(evaluations):
        results = population.draw(rng, n)
        key = np.sort(results.reshape(n, -1).mean(axis=1)).tobytes()
        if key not in known:
            interval = interval_of(population, results)
            known[key] = (interval.low, interval.high)
        bounds[0].append(known[key])
        bounds[1].append(earlier_interval(population, results, rng))
    now, before = (_coverage(np.array(pairs), population.mean) for pairs in bounds)
    return now, before


def _coverage(bounds: np.ndarray, mean: float) -> Coverage:
    """Counts intervals [evaluations, 2]; one without bounds makes no claim and counts as covering."""
    low, high = bounds.T
    inside = ~((low > mean + 1e-9) | (high < mean - 1e-9))
    return Coverage(float(inside.mean()), float(np.nanmedian(high - low)))


def page(evaluations: int, cache: Path) -> str:
    """Returns the results as Markdown."""
    heads = "".join(f" n={n} | width | before |" for n in SIZES)
    lines = [
        "# Coverage of intervals\n",
        f"`make coverage` writes this page: {evaluations:,} simulated evaluations per cell, so that a share of 0.95",
        f"has a standard error of {math.sqrt(0.95 * 0.05 / evaluations):.3f}. `n` is the number of games, `width` the",
        "median width of the interval, and `before` the coverage of Wilson's interval (success) and of percentile",
        f"bootstraps on the same evaluations. Bold: below {GOAL}.",
        "An interval without bounds (no spread, unknown range) makes no claim and counts as covering.",
        "[Statistics](../docs/explanation/statistics.md) explains the methods.\n",
    ]
    short: list[str] = []
    for title, populations in GROUPS.items():
        lines += [f"## {title}\n", f"| population |{heads}", "|---|" + "--:|--:|--:|" * len(SIZES)]
        for population in populations:
            cells = []
            for n in SIZES:
                key = f"{population.name}, n={n}, {evaluations}"
                now, before = finished(cache, key, partial(simulate, population, n, evaluations))
                cells += [_marked(now.share), f"{now.width:.2f}", _marked(before.share)]
                if now.share < GOAL:
                    short.append(f"{population.name}, n={n}: {now.share:.3f}")
            lines.append(f"| {population.name} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
        lines.append("")
    if short:
        lines += ["## Below the goal\n", *(f"- {line}" for line in short), ""]
    return "\n".join(lines)


def _marked(share: float) -> str:
    return f"**{share:.3f}**" if share < GOAL else f"{share:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the coverage of the harness's intervals by simulation.")
    parser.add_argument("-o", "--output", type=Path, default=None, help="Markdown file to write")
    parser.add_argument("-n", "--evaluations", type=int, default=200, help="simulated evaluations per cell")
    parser.add_argument("--cache", type=Path, default=Path("build/coverage.json"), help="finished cells")
    args = parser.parse_args()
    args.cache.parent.mkdir(parents=True, exist_ok=True)
    text = page(args.evaluations, args.cache)
    if args.output:
        write_atomically(args.output, text)


if __name__ == "__main__":
    main()
