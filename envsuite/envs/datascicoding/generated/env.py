"""Generated tables: write a scikit-learn model for a table that no one has seen before; the reward is the share of
the attainable score.

Rules. Each episode has a new table, drawn from a structural causal model (`world.py`). The player reads what
the rows are and a note on each column, and answers with Python code that defines `build_model(x_train, y_train)`, which
returns a fitted estimator with `predict_proba` (classes) or `predict` (a number). The code runs once in a sandbox: it
gets the training rows with outcomes, and later rows without. Later rows differ in their mix (drift), and some columns,
as their notes say, are only known after the outcome: in later rows they hold the entry of an unrelated case (traps).
On some rows entries are turned round: one column marks these rows, and the notes give the rule. Notes also name columns
without bearing and pairs that act together.

Rewards. The true chance (or mean) of each outcome is known, so the best score there is can be computed exactly.
`dense`: the share (score - trivial) / (best - trivial), at least 0; code that fails pays `penalty`; in `improve` only the
gain. `sparse`: 1 if the share reaches `goal` times the share of the reference program, which has read the notes and
blends models. `shaped`: from the reference program, which always needs one turn.

The later rows have no labels at all: a program is scored against their true chances. Every split has its own
combinations of graph and mechanism, and its own words.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from envsuite.envs.datascicoding import exploring, scoring
from envsuite.envs.datascicoding.env import DataSciCoding
from envsuite.envs.datascicoding.generated import graphs, programs
from envsuite.envs.datascicoding.generated.columns import KINDS_OF_LEVELS, NUMBER_CODE
from envsuite.envs.datascicoding.generated.levels import LEVELS
from envsuite.envs.datascicoding.generated.table import HELD_ROWS, SHOWN_ROWS, CausalTable, draw_table
from envsuite.envs.datascicoding.instructions import ANSWER
from envsuite.errors import UsageError
from envsuite.sandbox import drivers
from envsuite.types import Knob

INSTRUCTIONS = (
    "Write Python code that defines build_model(x_train, y_train). It gets a pandas DataFrame and a Series, and returns a "
    "fitted scikit-learn estimator: with predict_proba if you are to predict one of two classes (0 or 1, scored by ROC "
    "AUC), with predict if you are to predict a number (scored by R2).{answer} is run once, with {seconds:g} seconds. numpy "
    "is there as np, pandas as pd; scikit-learn can be imported; there is no network.{forbidden} The model is fitted to older "
    "cases and scored on later ones, whose mix differs. You are shown the score on some later cases, as a share of the best "
    "score there is. What counts is the score on other later cases, which is not shown."
)
ENDINGS = {
    "first": " The first code that runs counts; you have {attempts} attempts.",
    "improve": " The program with the best score shown counts; you have {attempts} attempts, or say done to stop.",
}
KEPT: tuple[str, ...] = (
    "mode",
    "attempts",
    "explore",
    "explore_chars",
    "explore_seconds",
    "forbidden",
    "max_code",
    "memory_mb",
    "sandbox",
)


class GeneratedTables(DataSciCoding):
    """A table from a random causal model, whose best score is known. Rules: docs/envs/datascicoding.md."""

    knobs = (
        Knob("outcome", "both", "classes, a number, or one of them by seed", choices=("classes", "number", "both")),
        Knob("columns", 11, "columns besides traps", low=5, high=16),
        Knob("unrelated", 3, "columns that are linked to nothing, if five others remain", low=0, high=10),
        Knob("causes", 4, "columns on which the outcome depends", low=1, high=8),
        Knob("interactions", 0.5, "pairs of causes that act together, per cause", low=0.0, high=1.0),
        Knob("nonlinear", 0.7, "share of the mechanism that is not linear", low=0.0, high=1.0),
        Knob("categories", 0.2, "share of columns that are categories, half of them as numbers", low=0.0, high=0.5),
        Knob("codes", 0.1, "share of columns that are text codes", low=0.0, high=0.5),
        Knob("missing", 0.15, "share of missing cells in every second column", low=0.0, high=0.6),
        Knob("traps", 4, "columns known only after the outcome, noise in later rows", low=0, high=8),
        Knob("trap_strength", 2.0, "distance of the classes in a trap, in units of its noise", low=0.0, high=6.0),
        Knob("hidden_traps", 0.75, "share of traps that predict only together with another column", low=0.0, high=1.0),
        Knob("drift", 0.6, "shift of causes and share of broken links in later rows", low=0.0, high=2.0),
        Knob(
            "signal", 0.8, "middle of the range of the best AUC; of the best R2: twice that less 1", low=0.6, high=0.95
        ),
        Knob("signal_spread", 0.05, "half of the range of the best AUC", low=0.0, high=0.05),
        Knob("rows", 400, "training rows", low=100, high=20_000),
        Knob("turned", 1.0, "share of columns that are entered in two ways, as another says", low=0.0, high=1.0),
        Knob("hints", True, "notes say which columns have no bearing and which act together"),
        Knob("notes", True, "show a note on every column; without them traps cannot be told"),
        Knob("penalty", 0.0, "dense reward of code that fails", low=-100.0, high=0.0),
        Knob("goal", 0.9, "share of the reference program's share that counts as success", low=0.1, high=1.0),
        Knob("seconds", 60.0, "wall clock of one attempt", low=0.1, high=3600.0, trusted_only=True),
        Knob("errors", "short", "text of an error: up to 300 characters, or 100 in ASCII", choices=("long", "short")),
        *(knob for knob in DataSciCoding.knobs if knob.name in KEPT),
    )
    ranges = {"share": (0.0, 1.0), "ran": (0.0, 1.0), "dense": (0.0, 1.0)}
    levels = LEVELS
    experts = ("",)
    splits = 1
    chance = 0.0
    game: CausalTable  # type: ignore[assignment]

    # ---- the data --------------------------------------------------------------------------------------------------

    def _load_data(self) -> None:
        settings = self.settings
        if settings.causes > max(graphs.SMALLEST, settings.columns - settings.unrelated):
            raise UsageError(f"causes={settings.causes} is more than the linked columns: set fewer causes.")

    def _new_game(self, seed: int) -> CausalTable:  # type: ignore[override]
        return draw_table(self.settings, seed)

    def _write_instructions(self) -> str:
        settings = self.settings
        never = ", ".join(settings.forbidden)
        return (INSTRUCTIONS + ENDINGS[settings.mode]).format(
            seconds=settings.seconds,
            attempts=settings.attempts,
            forbidden=f" Not allowed: {never}." if never else "",
            answer=exploring.instructions(settings) if settings.explore else ANSWER,
        )

    def _write_objective(self) -> str:
        world = self.game.world
        outcome = world.theme.amount if world.numeric else f"{world.theme.question} (1) or not (0)"
        return f"The rows are {world.theme.rows}. Predict: {outcome}."

    def _describe(self) -> str:
        frame, world = self.game.training.frame, self.game.world
        lines = [f"x_train has {len(frame)} rows and {frame.shape[1]} columns:"]
        marker = (world.marker,) if world.marker else ()
        columns = (*world.node_columns, *(trap.column for trap in world.traps), *marker)
        described = {column.name: column for column in columns}
        for name in frame.columns:
            column = described[name]
            kind = "text" if column.kind in KINDS_OF_LEVELS and column.kind != NUMBER_CODE else "number"
            missing = ", some missing" if frame[name].isna().any() else ""
            example = frame[name].dropna().iloc[0]
            text = example if isinstance(example, str) else f"{example:g}"
            note = f": {column.note}" if self.settings.notes else ""
            lines.append(f"- {name} ({kind}{missing}, e.g. {text}){note}")
        lines.append(f"The model is scored on {SHOWN_ROWS + HELD_ROWS} later cases.")
        return "\n".join(lines)

    def _score_text(self, score: scoring.Score) -> str:
        metric = "R2" if self.game.world.numeric else "ROC AUC above 0.5"
        return f"{score.shown_auc:.4f} of the attainable {metric} on {SHOWN_ROWS} later cases."

    # ---- reference and players -------------------------------------------------------------------------------------

    def threshold(self) -> float:
        """Returns the share that counts as success."""
        return float(self.settings.goal * self.reference())

    def _reached(self) -> bool:
        return super()._reached() and self._best.auc > 0.0  # a constant never wins, whatever the reference reaches

    def _reference_program(self) -> str:
        return programs.expert(self.game.world)

    def blind_script(self) -> list[str]:
        return [programs.blind(self.game.world.numeric)]

    def random_command(self, rng: np.random.Generator) -> str:
        return programs.random_program(self.game.world.numeric, rng)

    def labels(self) -> dict[str, str]:
        world = self.game.world
        labels = {"task_type": self.game.output, "graph": world.graph_family, "mechanism": world.mechanism_family}
        return {**labels, "isolation": self.driver, "leaky": str(drivers.is_leaky(self.driver)).lower()}

    def metrics(self) -> dict[str, float]:
        ran = self._best.verdict == "ok"
        values = {"share": self._best.auc, "ran": float(ran), "attempts": float(self._codes)}
        if self._explorer is not None:
            values["explored"] = float(self._explorer.turns - self._explorer.left)
        return {**values, **self.game.scores_of(self._best.auc)} if ran else values

    def extra_info(self) -> dict[str, Any]:
        share = self._last.auc
        return {"verdict": self._last.verdict, "share": share, "isolation": self.driver, "score": self._best.auc}
