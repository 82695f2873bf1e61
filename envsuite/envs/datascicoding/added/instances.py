"""Playable instances of an added table (`TableGame`)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from envsuite.envs.datascicoding.added.partition import HOLDOUT, TRAIN, VALIDATION
from envsuite.envs.datascicoding.added.storage import StoredTable
from envsuite.envs.datascicoding.instances import few_of_each
from envsuite.envs.datascicoding.metrics import mean_auc, r2

if TYPE_CHECKING:
    import pandas as pd

Parts = tuple["pd.DataFrame", np.ndarray, "pd.DataFrame", np.ndarray]


@dataclass(frozen=True, eq=False)
class TableGame:
    """An added table with the training rows of one episode. It has a single split."""

    table: StoredTable
    train: np.ndarray
    """numbers of the training rows"""

    @cached_property
    def digest(self) -> str:
        """Digest of the table and the chosen training rows."""
        return hashlib.sha256(self.table.digest.encode() + self.train.astype("<i8").tobytes()).hexdigest()[:16]

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def output(self) -> str:
        return "numbers" if self.table.is_regression else "classes"

    @property
    def classes(self) -> tuple[str, ...]:
        return self.table.classes

    @cached_property
    def features(self) -> pd.DataFrame:
        """Features of the training rows, in the order in which the player gets them."""
        return self.table.frame(self.train)

    @lru_cache(maxsize=1)  # noqa: B019  every attempt of an episode uses the same split
    def splits(self, count: int = 1) -> list[Parts]:
        """Returns (x_train, y_train, x_validation, y_validation) in a list of one."""
        validation = self.table.rows(VALIDATION)
        return [(self.features, self._answers(self.train), self.table.frame(validation), self._answers(validation))]

    @lru_cache(maxsize=1)  # noqa: B019
    def held_out(self) -> tuple[pd.DataFrame, np.ndarray]:
        """Returns features and answers of the rows that count."""
        rows = self.table.rows(HOLDOUT)
        return self.table.frame(rows), self._answers(rows)

    def width(self, y_train: np.ndarray) -> int:
        return 1 if self.table.is_regression else len(self.table.classes)

    def measure(self, y_train: np.ndarray, y: np.ndarray, values: np.ndarray) -> float:
        """Returns the ROC AUC of probabilities [rows, classes], or the R2 of numbers [rows, 1], at least 0."""
        if self.table.is_regression:
            return max(0.0, r2(y, values[:, 0]))
        return mean_auc(y, values, np.arange(len(self.table.classes)))

    def _answers(self, rows: np.ndarray) -> np.ndarray:
        answers = self.table.answers[rows]
        return answers if self.table.is_regression else answers.astype(int)


def table_game(table: StoredTable, rows: int, seed: int) -> TableGame:
    """Returns the game on `table` with `rows` of its training rows (0: all), drawn and ordered by `seed`.

    At least four rows of every class are among them.
    """
    rng = np.random.default_rng([seed, *table.digest.encode()])
    train = rng.permutation(table.rows(TRAIN))
    if 0 < rows < len(train):
        codes = table.answers.astype(int)
        first = train[:0] if table.is_regression else few_of_each(codes, train, rng)
        remaining = train[~np.isin(train, first)]
        train = np.concatenate([first, remaining[: max(0, rows - len(first))]])
    return TableGame(table, train)
