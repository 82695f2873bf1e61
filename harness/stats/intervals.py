"""Confidence intervals: means of bounded and unbounded quantities, proportions, differences."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from harness.stats.student import incomplete_beta, quantile

Range = tuple[float, float]
"""smallest and largest possible value of a quantity"""
SHARE: Range = (0.0, 1.0)
"""range of success, progression and every other share"""

GROUPS = 500
"""distinct values up to which `bounded` is exact; more are replaced by the means of this many equal bins"""
NODES = 64
"""frequencies evaluated at a time"""
MOST_NODES = 128 * NODES


class Interval(NamedTuple):
    """Estimate with confidence bounds and the number of independent units. NaN bounds: nothing is known."""

    value: float
    low: float
    high: float
    n: int
    deviation: float | None = None
    """standard deviation of the units; None where it is not defined"""


def interval_fields(interval: Interval) -> dict[str, Any]:
    """Returns an interval as JSON fields mean, low, high and n, with null for unknown values."""
    values = {"mean": interval.value, "low": interval.low, "high": interval.high, "n": interval.n}
    return {name: None if value != value else value for name, value in values.items()}


def mean_interval(
    values: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    limits: Range | None = None,
    confidence: float = 0.95,
) -> Interval:
    """Returns the mean over clusters with its interval: `bounded` if the range is known, else `unbounded`.

    `values` [n], `clusters` [n], or None for one cluster per value. Attempts at one game are not independent: they form
    a cluster and are averaged first. The n of the interval counts clusters. There are no bounds if the range is unknown
    and the clusters have equal means, or there is only one.
    """
    means = _cluster_means(values, clusters)
    if not len(means):
        return Interval(math.nan, math.nan, math.nan, 0)
    if limits is not None and limits[0] <= means.min() and means.max() <= limits[1]:
        return bounded(means, limits, confidence)
    interval = unbounded(means, confidence)
    if means.max() - means.min() <= 1e-9 * abs(means).max():  # no spread but for rounding
        return interval._replace(low=math.nan, high=math.nan)
    return interval


def success_interval(wins: Sequence[bool], clusters: Sequence[Hashable], confidence: float = 0.95) -> Interval:
    """Returns the success over clusters with the interval of `bounded`.

    With one episode per cluster it is the exact interval of Clopper and Pearson (1934).

    Examples:
        >>> interval = success_interval([True] * 31 + [False], range(32))
        >>> f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
        '0.97 [0.84, 1.00]'
    """
    return mean_interval([float(win) for win in wins], clusters, SHARE, confidence)


def _cluster_means(values: Sequence[float], clusters: Sequence[Hashable] | None) -> np.ndarray:
    """Returns the mean of each cluster [clusters]."""
    if clusters is None:
        return np.array(values, float)
    members: dict[Hashable, list[float]] = defaultdict(list)
    for label, value in zip(clusters, values, strict=True):
        members[label].append(value)
    return np.array([sum(scores) / len(scores) for scores in members.values()])


def _deviation(values: Sequence[float] | np.ndarray) -> float | None:
    """Returns the standard deviation of values [n]; None for a single one."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


# ---- unknown range ---------------------------------------------------------------------------------------------------


def student(values: Sequence[float] | np.ndarray, confidence: float = 0.95) -> Interval:
    """Returns the mean with Student's bounds, which are infinite for a single value.

    Exact for normal values, and meant for a few training seeds; results of games have `mean_interval`.
    """
    n = len(values)
    mean = sum(values) / n
    if n == 1:
        return Interval(mean, -math.inf, math.inf, 1)
    deviation = float(np.std(values, ddof=1))
    reach = quantile((1 - confidence) / 2, n - 1) * deviation / math.sqrt(n)
    return Interval(mean, mean - reach, mean + reach, n, deviation)


def unbounded(values: Sequence[float] | np.ndarray, confidence: float = 0.95) -> Interval:
    """Returns the mean with bounds for values of unknown range: on each side the wider of two.

    One is Student's, the other is adjusted for the skewness of the values (Johnson, 1978; Hesterberg, "What teachers
    should know about the bootstrap", 2015). Strongly skewed values have less coverage (benchmarks/coverage.md): no
    method keeps it for every distribution of unknown range (Bahadur and Savage, 1956).
    """
    interval, n = student(values, confidence), len(values)
    if n < 3 or not interval.deviation:
        return interval
    error = interval.deviation / math.sqrt(n)
    cubes = float(((np.asarray(values) - interval.value) ** 3).sum())
    skewness = cubes * n / ((n - 1) * (n - 2) * interval.deviation**3)
    t = (interval.high - interval.value) / error
    shift = error * skewness / (6 * math.sqrt(n)) * (1 + 2 * t * t)
    return interval._replace(low=interval.low + min(shift, 0.0), high=interval.high + max(shift, 0.0))


# ---- known range -----------------------------------------------------------------------------------------------------


def bounded(values: Sequence[float] | np.ndarray, limits: Range, confidence: float = 0.95) -> Interval:
    """Returns the mean of independent `values` [n] within `limits`, with bounds that assume nothing else.

    Each bound is a quantile of the mean under random weights, uniform on the simplex, of the values and one more value
    at the limit of that side (Gaffke, 2005; Learned-Miller and Thomas, "A new confidence interval for the mean of a
    bounded random variable", 2019). For zeros and ones this is the exact interval of Clopper and Pearson (1934). In all
    simulations, theirs and ours, the coverage is at least nominal; a proof exists for special cases only.
    """
    points, counts = _grouped(np.asarray(values, float))
    low_limit, high_limit = limits
    mean, tail = float(np.dot(points, counts) / counts.sum()), (1 - confidence) / 2

    def bound_at(limit: float, probability: float) -> float:
        if len(points) == 1:  # the weight of the values has a beta distribution
            share = min(probability, 1 - probability) ** (1 / counts[0])
            return float(limit + (mean - limit) * share)
        same = points == limit
        steps, weights = (points, counts + same) if same.any() else (np.append(points, limit), np.append(counts, 1.0))

        def excess(bound: float) -> float:
            return positive_share(steps - bound, weights) - probability

        return _root(excess, *sorted((mean, limit)))

    low = low_limit if points[-1] <= low_limit else bound_at(low_limit, 1 - tail)
    high = high_limit if points[0] >= high_limit else bound_at(high_limit, tail)
    return Interval(mean, min(low, mean), max(high, mean), len(values), _deviation(values))


def _grouped(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns distinct values in ascending order with their numbers; many values as the means of `GROUPS` bins."""
    points, counts = np.unique(values, return_counts=True)
    if len(points) <= GROUPS:
        return points, counts.astype(float)
    bins = np.minimum((values - points[0]) * GROUPS / (points[-1] - points[0]), GROUPS - 1).astype(int)
    counts = np.bincount(bins, minlength=GROUPS)
    filled = counts > 0
    return np.bincount(bins, values, GROUPS)[filled] / counts[filled], counts[filled].astype(float)


def positive_share(steps: np.ndarray, counts: np.ndarray) -> float:
    """Returns the probability that a sum of `steps` [k], weighted by gamma variables of shape `counts` [k], is above 0.

    Two steps of different sign leave a beta distribution, as for zeros and ones. Otherwise it inverts the
    characteristic function by the series of Davies (1973, "Numerical inversion of a characteristic function"); the
    error is below 1e-7, unless nearly all weight lies on a step that is tiny beside the others.
    """
    if len(steps) == 2 and steps.min() < 0 < steps.max():
        share = -steps.min() / (steps.max() - steps.min())
        return 1.0 - incomplete_beta(float(share), float(counts[steps.argmax()]), float(counts[steps.argmin()]))
    scale = math.sqrt(float((counts * steps * steps).sum()))
    if scale == 0:
        return 0.5
    steps = steps / scale
    spread = 30 + abs(float((counts * steps).sum()))  # the sum lies within this with a probability of 1 - e**-25
    total, first = 0.0, 0
    while first < MOST_NODES:
        numbers = np.arange(first, first + NODES) + 0.5
        products = np.outer(numbers * (2 * math.pi / spread), steps)
        size = np.exp(-0.5 * (np.log1p(products * products) @ counts))
        total += float((np.sin(np.arctan(products) @ counts) * size / numbers).sum())
        first += NODES
        if size[-1] < 1e-7:
            break
    return 0.5 + total / math.pi


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Returns the zero of a monotone function between `low` and `high` (Illinois' variant of false position)."""
    at_low, at_high = function(low), function(high)
    replaced = ""
    for _ in range(100):
        if high - low < 1e-12 * max(1.0, abs(high)) or at_low == at_high:
            break
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        at_middle = function(middle)
        if at_middle == 0:
            return middle
        if (at_middle > 0) == (at_high > 0):
            high, at_high = middle, at_middle
            at_low /= 2 if replaced == "high" else 1
            replaced = "high"
        else:
            low, at_low = middle, at_middle
            at_high /= 2 if replaced == "low" else 1
            replaced = "low"
    return (low + high) / 2


# ---- differences -----------------------------------------------------------------------------------------------------


def square_and_add(first: Sequence[Interval], second: Sequence[Interval]) -> Interval:
    """Returns the mean of `first` minus the mean of `second` for independent estimates, from their intervals.

    Newcombe, 1998, method 10; Zou and Donner, 2008. The bounds remain meaningful for proportions of 0 or 1, where a
    bootstrap would have no width. They are NaN if one of the estimates has no bounds.
    """
    terms = [(1 / len(first), term) for term in first] + [(-1 / len(second), term) for term in second]
    value = sum(weight * term.value for weight, term in terms)
    down = sum((weight * (term.value - (term.low if weight > 0 else term.high))) ** 2 for weight, term in terms)
    up = sum((weight * ((term.high if weight > 0 else term.low) - term.value)) ** 2 for weight, term in terms)
    return Interval(value, value - math.sqrt(down), value + math.sqrt(up), sum(term.n for _, term in terms))


def paired(deltas: Sequence[float], limits: Range | None = None, confidence: float = 0.95) -> Interval:
    """Returns the mean of paired differences [n], one per game; `limits` is the range of the compared quantity."""
    between = None if limits is None else (limits[0] - limits[1], limits[1] - limits[0])
    return mean_interval(deltas, limits=between, confidence=confidence)
