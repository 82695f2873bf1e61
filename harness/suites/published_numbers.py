"""Published numbers as they are stored in `published.jsonl`: typed, each with what its source says about its error.

`numbers` returns all of them. `PublishedNumber.estimate` turns one into a likelihood, as far as its source allows.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
import math
from dataclasses import dataclass
from typing import Any

from envsuite.errors import DataError
from harness.stats import student
from harness.stats.estimates import Estimate, error_over_splits, from_error, proportion

KINDS = ("standard error", "deviation over seeds", "deviation over splits", "interval", "unknown")
"""kinds of a printed spread; 'unknown' where the source does not say"""
ORIGINS = ("printed", "derived", "figure")
"""'derived' from other printed numbers, or read off a 'figure' without labels"""
SHORT = {
    "standard error": "SE",
    "deviation over seeds": "over seeds",
    "deviation over splits": "over splits",
    "unknown": "?",
}


@dataclass(frozen=True)
class Spread:
    """The +- beside a printed number."""

    kind: str
    value: float
    """half-width, in the number's unit"""
    level: float | None = None
    """confidence of an interval"""


@dataclass(frozen=True)
class Selection:
    """The choice behind a number that is a maximum and no mean."""

    over: str
    """the runs it was chosen from"""
    count: int | None = None


@dataclass(frozen=True)
class PublishedNumber:
    """One printed number with its set-up, its source and its error."""

    key: str
    paper: str
    arxiv_or_venue: str
    table_or_figure: str
    env: str
    task_variant: str
    split: str | None
    model: str
    method: str
    metric: str
    value: float
    unit: str
    higher_is_better: bool
    setup_notes: str
    source: str
    confidence: str
    origin: str
    rounding: float
    """half a unit of the last printed digit, or the error of reading a figure, in the number's unit"""
    games: int | None
    """games of one evaluation; None where the source does not say"""
    seeds: int | None
    """training seeds that were averaged; None where the source does not say"""
    splits: int | None
    """splits of the data that were averaged"""
    spread: Spread | None
    best_of: Selection | None

    @property
    def total_games(self) -> int | None:
        """Games of all seeds together."""
        return None if self.games is None else self.games * (self.seeds or 1)

    def estimate(self, scale: float = 1.0) -> Estimate | None:
        """Returns the likelihood of the number times `scale`, or None if its source gives neither games nor spread.

        Where the source does not explain a spread, it is read as the widest of the usual kinds. Without a spread the
        number is a share of games, or a mean whose variance is at most that of such a share.
        """
        value, slack = min(1.0, max(0.0, self.value * scale)), self.rounding * scale
        error = 0.0 if self.spread is None else self._error(self.spread, scale)
        several = (self.seeds or 1) > 1
        if self.games is not None and not several and self._is_share(value, error):
            return proportion(value, self.games, slack)
        if error == 0.0:
            return None if self.games is None else Estimate(value, self.games, slack=slack, games=self.games)
        clusters = self.seeds if several else self.splits or self.games
        df = math.inf if clusters is None else max(1, clusters - 1)
        estimate = from_error(value, error, self.total_games, df, slack)
        return estimate if clusters == self.games else dataclasses.replace(estimate, games=None)

    def _is_share(self, value: float, error: float) -> bool:
        """True if a share of games explains the number: it has no spread, or the standard error of a share."""
        if self.splits is not None or self.games is None:
            return False
        expected = math.sqrt(value * (1 - value) / self.games)
        return error == 0.0 or abs(error - expected) < 0.05 * expected

    def _error(self, spread: Spread, scale: float) -> float:
        """Returns the standard error that a spread stands for."""
        width = spread.value * scale
        over_splits = error_over_splits(width, self.splits) if self.splits else 0.0
        if spread.kind == "interval":
            return width / student.quantile((1 - (spread.level or 0.95)) / 2, math.inf)
        if spread.kind == "deviation over seeds":
            return width / math.sqrt(self.seeds or 1)
        if spread.kind == "deviation over splits":
            return over_splits
        return width if spread.kind == "standard error" else max(width, over_splits)

    def count_in_words(self) -> str:
        """Returns 'n=100', 'n=2x1000', 'n=5 splits' or ''."""
        if self.splits:
            return f"n={self.splits} splits"
        if self.games is None:
            return f"{self.seeds} seeds" if self.seeds else ""
        return f"n={self.seeds}x{self.games}" if (self.seeds or 1) > 1 else f"n={self.games}"

    def in_words(self, scale: float = 1.0) -> str:
        """Returns the number as printed, with the kind of its spread, its games, and how it was read."""
        parts = [f"{'~' if self.origin == 'figure' else ''}{self.value * scale:.3f}"]
        if self.spread:
            kind = SHORT.get(self.spread.kind) or f"{100 * (self.spread.level or 0.95):.0f} %"
            parts.append(f"± {self.spread.value * scale:.3f} ({kind})")
        parts += [self.count_in_words(), "(derived)" if self.origin == "derived" else ""]
        return " ".join(part for part in parts if part)


@functools.cache
def numbers() -> tuple[PublishedNumber, ...]:
    """Returns every published number."""
    lines = (importlib.resources.files("harness.suites") / "published.jsonl").read_text("utf-8").splitlines()
    return tuple(parse(json.loads(line), f"published.jsonl:{place}") for place, line in enumerate(lines, 1))


def parse(record: dict[str, Any], where: str = "record") -> PublishedNumber:
    """Returns one record typed. Raises DataError with `where` if a field is missing, unknown or of the wrong kind."""
    try:
        spread = record["spread"] and Spread(**record["spread"])
        number = PublishedNumber(
            **{**record, "spread": spread, "best_of": record["best_of"] and Selection(**record["best_of"])}
        )
        for name in ("games", "seeds", "splits"):
            count = getattr(number, name)
            if count is not None and (type(count) is not int or count < 1):
                raise ValueError(f"{name} is {count!r}, not a positive whole number or null")
        if number.origin not in ORIGINS:
            raise ValueError(f"origin is {number.origin!r}, not one of {', '.join(ORIGINS)}")
        if spread and (spread.kind not in KINDS or (spread.kind == "interval") != (spread.level is not None)):
            raise ValueError(f"spread is {dataclasses.asdict(spread)}")
        if number.rounding <= 0 or not math.isfinite(number.value):
            raise ValueError(f"value {number.value} and rounding {number.rounding} must be finite and positive")
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(f"{where} is not a published number ({type(error).__name__}: {error}).") from error
    return number
