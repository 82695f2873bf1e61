"""DataSciCoding on a table that the user added: `--set table=NAME`.

Rules. As in DataSciCoding, the player writes `build_model(x_train, y_train)`. It is fitted once to
the training rows of the stored split. The player sees its score on the validation rows; reward,
success and the reported score come from the holdout, whose answers never enter a sandbox.

A target of classes is scored by ROC AUC (for more than two: the mean over pairs), a target of
numbers by R2, which counts as 0 where it is negative. `rows` limits the training rows, which the
seed then draws; without it every seed is the same game.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from envsuite.envs.datascicoding import exploring, scoring
from envsuite.envs.datascicoding.added import programs, storage
from envsuite.envs.datascicoding.added.instances import TableGame, table_game
from envsuite.envs.datascicoding.added.partition import HOLDOUT, VALIDATION
from envsuite.envs.datascicoding.env import DataSciCoding
from envsuite.envs.datascicoding.instances import columns_text
from envsuite.envs.datascicoding.instructions import ANSWER
from envsuite.sandbox import drivers
from envsuite.types import Knob

MODELS = {
    False: "a fitted scikit-learn classifier with predict_proba. It gets a pandas DataFrame and a Series of class numbers.",
    True: "a fitted scikit-learn regressor with predict. It gets a pandas DataFrame and a Series of numbers.",
}
METRICS = {False: ("auc", "ROC AUC"), True: ("r2", "R2")}
RULES = (
    "{answer} is run once, with {seconds:g} seconds, and scored "
    "by {metric}. numpy is there as np, pandas as pd; scikit-learn can be imported; there is no network.{forbidden}"
)
ENDINGS = {
    "first": " The first code that runs counts; you have {attempts} attempts. You are shown the score on validation "
    "rows. What counts is the score on further rows, which is not shown.",
    "improve": " You have {attempts} attempts, or say done to stop. You are shown the score on validation rows. What "
    "counts is the score, on further rows, of the program with the best score shown.",
}
KEPT: tuple[str, ...] = ("errors", "tell", "mode", "attempts", "penalty", "margin", "forbidden", "max_code", "sandbox")
KEPT += ("explore", "explore_chars", "explore_seconds")


class AddedTable(DataSciCoding):
    """A table that the user added with `envsuite data add`. Rules: docs/envs/datascicoding.md."""

    knobs = (
        Knob("table", "", "name of a table that `envsuite data add FILE --target COLUMN` stored", trusted_only=False),
        Knob("rows", 0, "number of training rows, drawn by the seed; 0 uses all", low=0, high=1_000_000),
        Knob("seconds", 120.0, "wall clock of one attempt", low=0.1, high=3600.0, trusted_only=True),
        Knob("memory_mb", 4096, "memory of one attempt", low=64, high=1_000_000, trusted_only=True),
        *(knob for knob in DataSciCoding.knobs if knob.name in KEPT),
    )
    ranges = {"auc": (0.0, 1.0), "r2": (0.0, 1.0), "ran": (0.0, 1.0)}
    levels = {}
    experts = ("",)
    splits = 1
    game: TableGame  # type: ignore[assignment]

    def _load_data(self) -> None:
        self.table = storage.load(self.settings.table)
        self.chance = 0.0 if self.table.is_regression else 0.5
        predicted = int(np.isin(self.table.parts, (VALIDATION, HOLDOUT)).sum()) * max(1, len(self.table.classes))
        self.limits = replace(self.limits, value_mb=max(64, math.ceil(predicted * 8 / 1e6) + 1))

    def _write_instructions(self) -> str:
        settings = self.settings
        never = ", ".join(settings.forbidden)
        start = "Write Python code that defines build_model(x_train, y_train), which returns "
        text = start + MODELS[self.table.is_regression] + RULES + ENDINGS[settings.mode]
        return text.format(
            seconds=settings.seconds,
            attempts=settings.attempts,
            metric=METRICS[self.table.is_regression][1],
            forbidden=f" Not allowed: {never}." if never else "",
            answer=exploring.instructions(settings) if settings.explore else ANSWER,
        )

    def _new_game(self, seed: int) -> TableGame:  # type: ignore[override]
        return table_game(self.table, self.settings.rows, seed)

    def _write_objective(self) -> str:
        predicted = "a number" if self.table.is_regression else f"one of {len(self.table.classes)} classes"
        return f"Predict column {self.table.target!r} of the table {self.table.name!r}: {predicted}."

    def _describe(self) -> str:
        frame, settings = self.game.features, self.settings
        text = [f"x_train has {len(frame)} rows and {frame.shape[1]} columns."]
        if settings.tell != "little":
            text.append(columns_text(frame))
        if settings.tell == "full":
            if self.table.classes:
                counts = np.bincount(self.table.answers[self.game.train].astype(int), minlength=len(self.table.classes))
                named = zip(self.table.classes, counts, strict=True)
                text.append(
                    "Classes of the training rows: " + ", ".join(f"{name} {count}" for name, count in named) + "."
                )
            text.append(f"A score of {self.threshold():.4f} is wanted.")
        return "\n".join(text)

    def _score_text(self, score: scoring.Score) -> str:
        return f"{METRICS[self.table.is_regression][1]} {score.shown_auc:.4f} on the validation rows."

    def _reference_program(self) -> str:
        return programs.reference(len(self.table.classes))

    def random_command(self, rng: np.random.Generator) -> str:
        return programs.random_program(self.game.output, rng)

    def labels(self) -> dict[str, str]:
        kind = "regression" if self.table.is_regression else "binary" if len(self.table.classes) == 2 else "multi-class"
        labels = {"instance": self.table.name, "digest": self.table.digest, "task_type": kind}
        return {**labels, "isolation": self.driver, "leaky": str(drivers.is_leaky(self.driver)).lower()}

    def metrics(self) -> dict[str, float]:
        ran = self._best.verdict == "ok"
        return {
            METRICS[self.table.is_regression][0]: self._best.auc,
            "validation": self._best.shown_auc,
            "ran": float(ran),
            "attempts": float(self._codes),
        }

    def extra_info(self) -> dict[str, Any]:
        return {
            "verdict": self._last.verdict,
            METRICS[self.table.is_regression][0]: self._last.auc,
            "isolation": self.driver,
            "score": self._best.auc,
        }
