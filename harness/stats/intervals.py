"""The statistics printed beside every number."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

DRAWN_AT_ONCE = 2_000_000
"""clusters a bootstrap holds in memory at a time: a run may have a million"""


class Interval(NamedTuple):
    """An estimate with its confidence bounds and the number of independent units behind it."""

    value: float
    low: float
    high: float
    n: int


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """The score interval of a proportion (Wilson, 1927): honest at 0 and 1, and for small n.

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
"""Student's t at 97.5 % for 0 to 9 degrees of freedom; from there on 2.26 is kept, which is wide"""


def student(values: Sequence[float]) -> Interval:
    """Mean and Student's 95 % bounds, which are infinitely wide for one value."""
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
    """Percentile bootstrap of the mean, resampling whole clusters (attempts at one seed are not independent).

    `values` [n], `clusters` [n] or None for one cluster each. The interval's n counts clusters.
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
    """Mean of `first` less mean of `second`, of independent estimates, from their own intervals (Newcombe, 1998, method
    10; Zou and Donner, 2008). Of shares that are 0 or 1 it still tells how little that says; a bootstrap does not.
    """
    shares = [(1 / len(first), one) for one in first] + [(-1 / len(second), one) for one in second]
    value = sum(weight * one.value for weight, one in shares)
    down = sum((weight * (one.value - (one.low if weight > 0 else one.high))) ** 2 for weight, one in shares)
    up = sum((weight * ((one.high if weight > 0 else one.low) - one.value)) ** 2 for weight, one in shares)
    return Interval(value, value - math.sqrt(down), value + math.sqrt(up), sum(one.n for _, one in shares))


def apart(first: Sequence[Interval], second: Sequence[Interval]) -> Interval:
    """The difference from both sides' own intervals; no bounds where these have no width, as of scores that are no shares."""
    found = square_and_add(first, second)
    return found if found.low < found.high else found._replace(low=math.nan, high=math.nan)


def paired(
    deltas: Sequence[float], first: Sequence[Interval], second: Sequence[Interval], confidence: float = 0.95
) -> Interval:
    """Mean of paired differences, of `first` less `second`. Where all are alike a bootstrap would be certain after two
    games: then from both sides' own intervals, as if they were of different games, which is wide and should be.
    """
    found = bootstrap(deltas, confidence=confidence)
    return found if len(set(deltas)) > 1 else apart(first, second)._replace(value=found.value, n=len(deltas))


def share(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Mean of shares, one a game: a bootstrap, and Wilson's where all are 0 or all are 1."""
    if len(values) and set(values) in ({0.0}, {1.0}):
        return wilson(round(sum(values)), len(values), confidence)
    return bootstrap(values, confidence=confidence)


def success_interval(wins: Sequence[bool], clusters: Sequence[Hashable], confidence: float = 0.95) -> Interval:
    """Wilson where every episode is its own cluster; the clustered bootstrap where attempts repeat a seed.

    Where all episodes ended alike a bootstrap cannot tell how little that says: Wilson's over clusters, each counted once.
    """
    count = len(set(clusters))
    if count == len(wins):
        return wilson(sum(wins), len(wins), confidence)
    if all(wins) or not any(wins):
        return wilson(count if wins[0] else 0, count, confidence)
    return bootstrap([float(win) for win in wins], clusters, confidence)
