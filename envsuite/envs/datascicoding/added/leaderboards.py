"""Medals by the rule of Kaggle that MLE-bench uses (Chan et al., 2024, table 1), and files of leaderboards."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envsuite.errors import DataError

MAX_TEAMS = 100_000
MEDALS = ("gold", "silver", "bronze")


@dataclass(frozen=True)
class Thresholds:
    """Scores that earn each medal, in the direction in which higher is better."""

    gold: float
    silver: float
    bronze: float

    def medal(self, score: float) -> str:
        """Returns the best medal that `score` earns, or ""."""
        return next((name for name in MEDALS if score >= getattr(self, name)), "")


def positions(teams: int) -> tuple[int, int, int]:
    """Returns the last positions (from 1) that earn gold, silver and bronze among `teams`."""
    if teams < 100:
        return max(1, teams // 10), max(1, teams // 5), max(1, teams * 2 // 5)
    if teams < 250:
        return 10, teams // 5, teams * 2 // 5
    gold = 10 + teams // 500
    return (gold, 50, 100) if teams < 1000 else (gold, teams // 20, teams // 10)


def thresholds(scores: Sequence[float]) -> Thresholds:
    """Returns the thresholds of a leaderboard, whose best score comes first."""
    return Thresholds(*(scores[position - 1] for position in positions(len(scores))))


def read(path: Path, loss: bool) -> tuple[float, ...]:
    """Returns the scores in the column `score` of a leaderboard's CSV, the best first.

    The scores of a `loss` are negated, so that higher is better. Raises DataError with one line.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file.read(20_000_000).splitlines()))
    except (OSError, UnicodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as a leaderboard: {error}.") from error
    header = [name.strip().lower() for name in rows[0]] if rows else []
    if "score" not in header:
        raise DataError(f"{path} is no leaderboard: it has no column 'score', as Kaggle's files have.")
    column = header.index("score")
    try:
        scores = [float(row[column]) for row in rows[1:] if row]
    except (ValueError, IndexError) as error:
        raise DataError(f"{path} holds a row without a number in column 'score'.") from error
    if not 1 <= len(scores) <= MAX_TEAMS or not all(map(math.isfinite, scores)):
        raise DataError(f"{path} holds {len(scores):,} scores; a leaderboard has 1 to {MAX_TEAMS:,}, all finite.")
    if scores != sorted(scores, reverse=not loss):
        raise DataError(
            f"{path}: the scores of this metric must {'rise' if loss else 'fall'} from the best team to the worst. "
            "Check --metric, or sort the file."
        )
    return tuple(-score if loss else score for score in scores)
