"""Tail probabilities and quantiles of Student's t distribution, for any number of degrees of freedom."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

STEPS = 10_000
"""most terms of the continued fraction; it ends as soon as double precision is reached"""

NORMAL_FROM = 1e6
"""degrees of freedom from which t is normal to six digits, and the continued fraction would need more terms"""


def tail(quantile: float, df: float) -> float:
    """Returns P(T > `quantile`) for T of Student's t with `df` degrees of freedom (infinite: the normal).

    Uses the incomplete beta function (Abramowitz and Stegun, 1964, 26.7.1).

    Examples:
        >>> round(2 * tail(2.776, 4), 3)
        0.05
    """
    if quantile < 0:
        return 1.0 - tail(-quantile, df)
    if df > NORMAL_FROM:
        return 0.5 * math.erfc(quantile / math.sqrt(2))
    return 0.5 * incomplete_beta(df / (df + quantile * quantile), df / 2, 0.5)


@functools.lru_cache(maxsize=4096)
def quantile(probability: float, df: float) -> float:
    """Returns the positive value that T exceeds with `probability`, which is below 0.5."""
    if df > NORMAL_FROM:
        return -NormalDist().inv_cdf(probability)
    low, high = 0.0, 1.0
    while tail(high, df) > probability:
        high *= 2
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, df) > probability else (low, middle)
    return high


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Returns the regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - incomplete_beta(1 - x, b, a)
    scale = a * math.log(x) + b * math.log1p(-x)
    scale += math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(scale) / (a * _fraction(x, a, b))


def _fraction(x: float, a: float, b: float) -> float:
    """Returns the continued fraction of the incomplete beta function (26.5.8), by Lentz's method."""
    tiny = 1e-300
    value, c, d = 1.0, 1.0, 0.0
    for step in range(1, STEPS):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / (1.0 + term * d or tiny)
        c = 1.0 + term / c or tiny
        value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value
