"""One episode's table: training rows, rows whose score is shown, and rows that count."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from envsuite.envs.datascicoding import scoring
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
class Table:
    """A table in the form that `scoring.evaluate` takes, as `Instance` is.

    The rows that count have no labels: a prediction is scored against their true chances, so no label can leak.
    """

    world: World
    training: Rows
    shown: Rows
    held: Rows
    digest: str

    def splits(self, count: int) -> list[tuple[pd.DataFrame, np.ndarray, pd.DataFrame, np.ndarray]]:
        """Returns the single split: training rows with outcomes, and later rows whose score is shown."""
        return [(self.training.frame, self.training.outcomes, self.shown.frame, self.shown.outcomes)]

    def held_out(self) -> tuple[pd.DataFrame, np.ndarray]:
        """Returns the later rows that count, with the true chance (or mean) of each."""
        return self.held.frame, self.held.truth

    def score_shown(self, outcomes: np.ndarray, values: np.ndarray, classes: np.ndarray) -> float:
        """Returns AUC or R2 on the shown rows, from their outcomes."""
        if not self.world.numeric:
            return scoring.mean_auc(outcomes, values, classes)
        predicted = np.clip(values[:, 0], -LARGEST_NUMBER, LARGEST_NUMBER)
        return 1.0 - float(np.mean((outcomes - predicted) ** 2) / outcomes.var())

    def score_held(self, truth: np.ndarray, values: np.ndarray, classes: np.ndarray) -> float:
        """Returns the expected AUC or R2 on the rows that count."""
        if not self.world.numeric:
            return scores.expected_auc(truth, values[:, 1])
        predicted = np.clip(values[:, 0], -LARGEST_NUMBER, LARGEST_NUMBER)
        return scores.expected_errors(truth, self.world.noise**2, predicted)[0]

    def best(self) -> float:
        """Returns the largest score there is on the rows that count: that of the true chances (or means)."""
        truth = self.held.truth
        return self.score_held(truth, truth[:, None] if self.world.numeric else np.stack([1 - truth, truth], 1), truth)

    def share(self, score: float) -> float:
        """Returns the share of the attainable score: 0 for a constant prediction, 1 for the best one."""
        return scores.share(score, 0.0 if self.world.numeric else 0.5, self.best())

    def root_error(self, score: float) -> float:
        """Returns the root of the expected squared error that belongs to an R2."""
        total = float(self.held.truth.var()) + self.world.noise**2
        return float(np.sqrt((1.0 - score) * total))


def draw_table(settings: SimpleNamespace, seed: int) -> Table:
    """Returns the table of a seed."""
    world = draw_world(settings, seed)
    training = world.sample(Stream("rows", seed, "training"), settings.rows)
    shown = world.sample(Stream("rows", seed, "shown"), SHOWN_ROWS, later=True)
    held = world.sample(Stream("rows", seed, "held"), HELD_ROWS, later=True)
    content = b"".join(
        rows.frame.to_csv(index=False).encode() + rows.outcomes.astype("<f8").tobytes()
        for rows in (training, shown, held)
    )
    return Table(world, training, shown, held, hashlib.sha256(content).hexdigest()[:16])
