"""Types of settings: numbers with their range, and the names of variants."""

from __future__ import annotations

import math
from typing import Annotated, Literal, NamedTuple


class Range(NamedTuple):
    """The finite numbers from `low` to `high`; with `above`, `low` itself is excluded."""

    low: float = 0.0
    high: float = math.inf
    above: bool = False

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            return False
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        lower = f"{'above' if self.above else 'at least'} {self.low:g}"
        return lower if math.isinf(self.high) else f"{lower} and at most {self.high:g}"


Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range()]
NonNegative = Annotated[float, Range()]
Positive = Annotated[float, Range(above=True)]
Share = Annotated[float, Range(0, 1)]
PositiveShare = Annotated[float, Range(0, 1, above=True)]

Normalisation = Literal["sum", "token", "word"]
"""Divisor of a command's log-likelihood: none, its tokens, or its words."""
Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-sum-constant"]
AdvantageScope = Literal["none", "batch", "minibatch"]
Deviation = Literal["whiten", "sample", "population"]
Schedule = Literal["constant", "linear", "cosine"]
