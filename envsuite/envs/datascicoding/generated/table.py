"""One episode's table: training rows, rows whose score is shown, and rows that count."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from envsuite.envs.datascicoding.generated import scores
from envsuite.envs.datascicoding.generated.streams import Stream
from envsuite.envs.datascicoding.generated.world import Rows, World, draw_world

if TYPE_CHECKING:
    import pandas as pd

SHOWN_ROWS = 500
HELD_ROWS = 1500
LARGEST_NUMBER = 1e9
"""Predicted numbers are cut off here, so that every score is finite."""


@dataclass(frozen=True, eq=False)
class CausalTable:
    """A table in the form that `scoring.evaluate` takes, a `PlayableTable`.

    Later rows have no labels: predictions are scored against their true chances (or means), so no label can leak.
    """

    world: World
    training: Rows
    shown: Rows
    held: Rows
    digest: str

    @property
    def name(self) -> str:
        """Rows of the table in words."""
        return self.world.theme.rows

    @property
    def output(self) -> str:
        """Predictions of a model: `classes` or `numbers`."""
        return "numbers" if self.world.numeric else "classes"

    def splits(self, count: int) -> list[tuple[pd.DataFrame, np.ndarray, pd.DataFrame, np.ndarray]]:
        """Returns the single split: training rows with outcomes, and later rows whose score is shown."""
        return [(self.training.frame, self.training.outcomes, self.shown.frame, self.shown.truth)]

    def held_out(self) -> tuple[pd.DataFrame, np.ndarray]:
        """Returns the later rows that count, with the true chance (or mean) of each."""
        return self.held.frame, self.held.truth

    def width(self, y_train: np.ndarray) -> int:
        """Returns the number of columns of predictions."""
        return 1 if self.world.numeric else 2

    def measure(self, y_train: np.ndarray, y: np.ndarray, values: np.ndarray) -> float:
        """Returns the share of the attainable score for rows whose true chances (or means) are `y`, 0 to 1."""
        predicted = np.clip(values[:, -1], -LARGEST_NUMBER, LARGEST_NUMBER)
        return max(0.0, scores.share(self.score(y, predicted), self.trivial, self.score(y, y)))

    @property
    def trivial(self) -> float:
        """Score of a constant prediction."""
        return 0.0 if self.world.numeric else 0.5

    def score(self, truth: np.ndarray, values: np.ndarray) -> float:
        """Returns the expected AUC or R2 of `values` [rows]."""
        if self.world.numeric:
            return scores.expected_errors(truth, self.world.noise**2, values)[0]
        return scores.expected_auc(truth, values)

    def scores_of(self, share: float) -> dict[str, float]:
        """Returns AUC, or R2 and RMSE, that belong to a share on the rows that count, and the best there are."""
        truth = self.held.truth
        best = self.score(truth, truth)
        score = self.trivial + share * (best - self.trivial)
        if not self.world.numeric:
            return {"auc": score, "best_auc": best}
        total = float(truth.var()) + self.world.noise**2
        rmse, best_rmse = (float(np.sqrt((1.0 - r2) * total)) for r2 in (score, best))
        return {"r2": score, "best_r2": best, "rmse": rmse, "best_rmse": best_rmse}


def draw_table(settings: SimpleNamespace, seed: int) -> CausalTable:
    """Returns the table of a seed."""
    world = draw_world(settings, seed)
    training = world.sample(Stream("rows", seed, "training"), settings.rows)
    shown = world.sample(Stream("rows", seed, "shown"), SHOWN_ROWS, later=True)
    held = world.sample(Stream("rows", seed, "held"), HELD_ROWS, later=True)
    content = b"".join(
        rows.frame.to_csv(index=False).encode() + rows.outcomes.astype("<f8").tobytes()
        for rows in (training, shown, held)
    )
    return CausalTable(world, training, shown, held, hashlib.sha256(content).hexdigest()[:16])
