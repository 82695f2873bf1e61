"""Confidence intervals: Wilson, Student, bootstrap, paired differences."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

DRAWN_AT_ONCE = 2_000_000
"""clusters that a bootstrap holds in memory at a time, since a run can have a million"""


class Interval(NamedTuple):
    """Estimate with confidence bounds and the number of independent units."""

    value: float
    low: float
    high: float
    n: int


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Returns the score interval of a proportion (Wilson, 1927), which is valid at 0 and 1 and for small n.

    Examples:
        >>> interval = wilson(31, 32)
        >>> f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
        '0.97 [0.84, 0.99]'
    """
    if n == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return Interval(share, low, high, n)


T95 = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t at 97.5 % for 0 to 9 degrees of freedom; larger ones use 2.262, which is conservative"""


def student(values: Sequence[float]) -> Interval:
    """Returns the mean with Student's 95 % bounds, which are infinite for a single value."""
    n = len(values)
    mean = sum(values) / n
    if n == 1:
        return Interval(mean, -math.inf, math.inf, 1)
    reach = T95[min(n - 1, len(T95) - 1)] * math.sqrt(sum((x - mean) ** 2 for x in values) / (n - 1) / n)
    return Interval(mean, mean - reach, mean + reach, n)


def bootstrap(
    values: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Returns the percentile bootstrap interval of the mean, resampling whole clusters.

    `values` [n], `clusters` [n], or None for one cluster per value. Attempts at one seed are not independent and form a
    cluster. The n of the interval counts clusters.
    """
    if not len(values):
        return Interval(math.nan, math.nan, math.nan, 0)
    labels = list(range(len(values))) if clusters is None else list(clusters)
    index = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    sums, counts = np.zeros(len(index)), np.zeros(len(index))
    for label, value in zip(labels, values, strict=True):
        sums[index[label]] += value
        counts[index[label]] += 1
    mean = float(sums.sum() / counts.sum())
    if len(index) == 1:
        return Interval(mean, math.nan, math.nan, 1)
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    block = max(1, DRAWN_AT_ONCE // len(index))
    for start in range(0, resamples, block):
        picks = rng.integers(len(index), size=(min(block, resamples - start), len(index)))
        means[start : start + block] = sums[picks].sum(axis=1) / counts[picks].sum(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(mean, float(low), float(high), len(index))


def square_and_add(first: Sequence[Interval], second: Sequence[Interval]) -> Interval:
    """Returns the mean of `first` minus the mean of `second` for independent estimates, from their intervals.

    Newcombe, 1998, method 10; Zou and Donner, 2008. The bounds remain meaningful for proportions of 0 or 1, where a
    bootstrap would have no width.
    """
    terms = [(1 / len(first), term) for term in first] + [(-1 / len(second), term) for term in second]
    value = sum(weight * term.value for weight, term in terms)
    down = sum((weight * (term.value - (term.low if weight > 0 else term.high))) ** 2 for weight, term in terms)
    up = sum((weight * ((term.high if weight > 0 else term.low) - term.value)) ** 2 for weight, term in terms)
    return Interval(value, value - math.sqrt(down), value + math.sqrt(up), sum(term.n for _, term in terms))


def unpaired(first: Sequence[Interval], second: Sequence[Interval]) -> Interval:
    """Returns the difference of unpaired estimates from their intervals; no bounds if these have no width."""
    interval = square_and_add(first, second)
    return interval if interval.low < interval.high else interval._replace(low=math.nan, high=math.nan)


def paired(
    deltas: Sequence[float], first: Sequence[Interval], second: Sequence[Interval], confidence: float = 0.95
) -> Interval:
    """Returns the mean of paired differences `first` minus `second`.

    If all differences are equal, a bootstrap would be certain after two games. The interval then treats both sides
    as unpaired, which is deliberately wide.
    """
    interval = bootstrap(deltas, confidence=confidence)
    if len(set(deltas)) > 1:
        return interval
    return unpaired(first, second)._replace(value=interval.value, n=len(deltas))


def share(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Returns the mean of proportions, one per game: a bootstrap, or Wilson's interval if all are 0 or all 1."""
    if len(values) and set(values) in ({0.0}, {1.0}):
        return wilson(round(sum(values)), len(values), confidence)
    return bootstrap(values, confidence=confidence)


def success_interval(wins: Sequence[bool], clusters: Sequence[Hashable], confidence: float = 0.95) -> Interval:
    """Returns Wilson's interval if every episode is its own cluster, else a clustered bootstrap.

    If all episodes ended alike, a bootstrap would have no width; Wilson's interval then counts each cluster once.
    """
    count = len(set(clusters))
    if count == len(wins):
        return wilson(sum(wins), len(wins), confidence)
    if all(wins) or not any(wins):
        return wilson(count if wins[0] else 0, count, confidence)
    return bootstrap([float(win) for win in wins], clusters, confidence)
