"""Estimates of a bounded score and the comparison of two independent ones: difference, equivalence, games needed.

`Estimate` describes a mean by its value and its effective number of games: the number of won-or-lost games that would
be as informative. `Comparison` holds the difference of two estimates, the test that it is 0 and the test that it is
within a margin.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness.stats import student

MOST = 40.0
"""largest quantile that is searched; its tail is below 1e-300"""
HALVINGS = 30


@dataclass(frozen=True)
class Estimate:
    """A mean score in [0, 1] with its uncertainty."""

    value: float
    units: float
    """effective number of games: the mean of this many won-or-lost games has the same error"""
    df: float = math.inf
    """degrees of freedom of the error"""
    slack: float = 0.0
    """largest error of rounding, or of reading a figure"""
    games: int | None = None
    """games, or training seeds, that a longer evaluation would have more of; None if their number is unknown"""

    def bounds(self, quantile: float) -> tuple[float, float]:
        """Returns Wilson's bounds at a quantile. They are inside [0, 1], also for a value of 0 or 1."""
        square = quantile * quantile / self.units
        centre = (self.value + square / 2) / (1 + square)
        reach = math.sqrt(square * self.value * (1 - self.value) + square * square / 4) / (1 + square)
        low = 0.0 if self.value <= 0 else max(0.0, centre - reach)
        high = 1.0 if self.value >= 1 else min(1.0, centre + reach)
        return low, high

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Returns the bounds at a confidence, with `slack` on each side."""
        low, high = self.bounds(student.quantile((1 - confidence) / 2, self.df))
        return max(0.0, low - self.slack), min(1.0, high + self.slack)

    @property
    def variance(self) -> float:
        """Squared standard error, with the value drawn a little towards 1/2 so that it is positive at 0 and 1."""
        value = _drawn(self.value, self.units)
        return value * (1 - value) / self.units


def _drawn(value: float, units: float) -> float:
    """Returns a value drawn a little towards 1/2, so that its variance is positive at 0 and 1."""
    return (value * units + 1) / (units + 2)


def proportion(value: float, games: int, slack: float = 0.0) -> Estimate:
    """Returns the estimate of a share of won games.

    A rounded share that only one number of wins explains is replaced by that exact share.
    """
    wins = round(value * games)
    if 2 * slack * games < 1 + 1e-9 and abs(wins / games - value) <= slack + 1e-9:
        value, slack = wins / games, 0.0
    return Estimate(value, games, slack=slack, games=games)


def mean(value: float, deviation: float, games: int) -> Estimate:
    """Returns the estimate of a mean over games from their standard deviation.

    One imagined game at each end of the range is added to the variance: games that all ended alike do not prove
    that no game ends otherwise.
    """
    total = games * deviation**2 + value**2 + (1 - value) ** 2
    error = math.sqrt(total / (games + 2) / games)
    return from_error(value, error, games, max(1, games - 1))


def mean_over_splits(value: float, deviation: float, games: int, over_splits: float, splits: int) -> Estimate:
    """Returns the estimate of a mean over games, each scored over the same splits of one data set.

    The deviation over the splits is an error that more games do not reduce.
    """
    of_games = deviation**2 / games
    of_splits = error_over_splits(over_splits, splits) ** 2
    squares = of_games**2 / max(1, games - 1) + of_splits**2 / (splits - 1)
    if squares == 0:
        return mean(value, deviation, games)
    estimate = from_error(value, math.sqrt(of_games + of_splits), None, (of_games + of_splits) ** 2 / squares)
    return dataclasses.replace(estimate, games=games)


def error_over_splits(deviation: float, splits: int) -> float:
    """Returns the standard error of a mean over random halves of one data set.

    Splits overlap, so the error is larger than the deviation over the root of their number: the variance is
    multiplied by 1/splits + test rows per training row, which is 1 here (Nadeau and Bengio, 2003).
    """
    return deviation * math.sqrt(1 / splits + 1)


def from_error(value: float, error: float, games: int | None, df: float = math.inf, slack: float = 0.0) -> Estimate:
    """Returns the estimate with a given positive standard error."""
    drawn = value if games is None else _drawn(value, games)
    return Estimate(value, max(drawn * (1 - drawn), 1e-9) / error**2, df, slack, games)


def pooled(estimates: Sequence[Estimate]) -> Estimate:
    """Returns the mean over training seeds, from one estimate per seed. A single estimate is returned as it is.

    Seeds are clusters: their spread is an error with `len(estimates)` - 1 degrees of freedom. The error of the games
    is added in full and not divided by the number of seeds, because all seeds may have played the same games.
    """
    if len(estimates) == 1:
        return estimates[0]
    count = len(estimates)
    value = sum(estimate.value for estimate in estimates) / count
    between = sum((estimate.value - value) ** 2 for estimate in estimates) / (count - 1) / count
    within = sum(estimate.variance for estimate in estimates) / count
    fewest = min(estimate.df for estimate in estimates)
    squares = between**2 / (count - 1) + (0.0 if math.isinf(fewest) else within**2 / fewest)
    df = math.inf if squares == 0 else (between + within) ** 2 / squares
    games = sum(estimate.games or 0 for estimate in estimates)
    drawn = _drawn(value, games)
    return Estimate(value, drawn * (1 - drawn) / (between + within), df, games=count)


class Comparison(NamedTuple):
    """The difference of two estimates (first minus second) with its 95 % interval and two p-values."""

    value: float
    low: float
    high: float
    p_differs: float
    """two-sided, of the hypothesis that the difference is 0"""
    p_agrees: float
    """of the hypothesis that the difference is at least the margin, by two one-sided tests"""


@functools.lru_cache(maxsize=2**16)
def compare(first: Estimate, second: Estimate, margin: float) -> Comparison:
    """Compares two independent estimates.

    The interval combines the bounds of both (square and add: Newcombe, 1998, method 10; Zou and Donner, 2008), with
    the degrees of freedom of Welch and Satterthwaite. Both p-values are the levels at which the interval just reaches
    0 or the margin, so interval and tests never contradict each other. Equivalence: Schuirmann, 1987.
    """
    df = _degrees_of_freedom(first, second)
    value = first.value - second.value
    quantile = student.quantile(0.025, df)
    low, high = _lower(first, second, quantile), -_lower(second, first, quantile)
    from_margin = min(
        _largest(lambda quantile: _lower(first, second, quantile) > -margin),
        _largest(lambda quantile: _lower(second, first, quantile) > -margin),
    )
    p_differs = _p_differs(first, second, df)
    p_agrees = student.tail(from_margin, df) if abs(value) < margin else 1.0
    return Comparison(value, low, high, p_differs, p_agrees)


def _p_differs(first: Estimate, second: Estimate, df: float) -> float:
    """Returns the two-sided p-value of the hypothesis that the difference is 0."""
    larger, smaller = (first, second) if first.value - second.value > 0 else (second, first)
    from_zero = _largest(lambda quantile: _lower(larger, smaller, quantile) > 0)
    return min(1.0, 2 * student.tail(from_zero, df))


def _lower(first: Estimate, second: Estimate, quantile: float) -> float:
    """Returns the lower bound of `first` minus `second` at a quantile."""
    down = first.value - first.bounds(quantile)[0]
    up = second.bounds(quantile)[1] - second.value
    return max(-1.0, first.value - second.value - math.hypot(down, up) - first.slack - second.slack)


def _degrees_of_freedom(first: Estimate, second: Estimate) -> float:
    """Returns the degrees of freedom of Welch and Satterthwaite; few games have few of them, whatever they score."""
    squares = sum(estimate.variance**2 / min(estimate.df, max(1.0, estimate.units - 1)) for estimate in (first, second))
    return (first.variance + second.variance) ** 2 / squares


def _largest(holds: Callable[[float], bool]) -> float:
    """Returns the largest quantile up to which a condition holds, or 0 if it never does."""
    low, high = 0.0, MOST
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low if holds(low) else 0.0


class GamesNeeded(NamedTuple):
    """Games with which a comparison would very likely give an answer."""

    games: int
    both: bool
    """True if the second side needs them too, since no number on the first side alone is enough"""


def games_needed(
    first: Estimate, second: Estimate, margin: float, level: float = 0.05, power: float = 0.8
) -> GamesNeeded | None:
    """Returns the games of `first` with which both tests have the power asked for, in the normal approximation.

    The test of a difference: if the true difference is `margin`. The test of equivalence: if it is 0. Returns None
    if the second side's games are unknown and its error alone is too large.
    """
    room = margin - first.slack - second.slack
    if room <= 0:
        return None
    differs = student.quantile(level / 2, math.inf) + student.quantile(1 - power, math.inf)
    agrees = student.quantile(level, math.inf) + student.quantile((1 - power) / 2, math.inf)
    allowed = (room / max(differs, agrees)) ** 2
    few = student.quantile(level / 2, second.df) / student.quantile(level / 2, math.inf)
    fixed = second.variance * few**2
    per_game = first.variance * (first.games or first.units)
    if fixed < allowed:
        return GamesNeeded(math.ceil(per_game / (allowed - fixed)), both=False)
    if second.games is None:
        return None
    return GamesNeeded(math.ceil((per_game + second.variance * second.games) / allowed), both=True)


def fewest_games_that_differ(first: Estimate, value: float, level: float) -> int | None:
    """Returns how many games an estimate of `value` must rest on to differ from `first`, or None up to a million."""
    low, high = 1, 10**6

    def differs(games: int) -> bool:
        other = Estimate(value, games, games=games)
        return _p_differs(first, other, _degrees_of_freedom(first, other)) <= level

    if not differs(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if differs(middle) else (middle + 1, high)
    return low
