"""Generated tables: write a scikit-learn model for a table that no one has seen before; the reward is the share of
the attainable score.

Rules. Each episode has a table of its own, drawn from a structural causal model (`world.py`). The player reads what
the rows are and a note on each column, and answers with Python code that defines `build_model(x_train, y_train)`, which
returns a fitted estimator with `predict_proba` (classes) or `predict` (a number). The code runs once in a sandbox: it
gets the training rows with outcomes, and later rows without. Later rows differ in their mix (drift), and some columns,
as their notes say, are only known after the outcome: in later rows they hold the entry of an unrelated case (traps).

Rewards. The true chance (or mean) of each outcome is known, so the best score there is can be computed exactly.
`dense`: the share (score - trivial) / (best - trivial), at least 0; code that fails pays `penalty`; in `improve` only the
gain. `sparse`: 1 if the share reaches `goal` times the share of the reference program, which has read the notes and
blends models. `shaped`: from the reference program, which always needs one turn.

The rows that count have no labels at all: a program is scored against their true chances. Every split has its own
combinations of graph and mechanism, and its own words.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from envsuite.cache import cache_dir, write_atomically
from envsuite.core import TextEnv
from envsuite.envs.datascicoding import scoring
from envsuite.envs.datascicoding.generated import graphs, programs
from envsuite.envs.datascicoding.generated.columns import KINDS_OF_LEVELS, NUMBER_CODE
from envsuite.envs.datascicoding.generated.levels import LEVELS
from envsuite.envs.datascicoding.generated.table import HELD_ROWS, SHOWN_ROWS, draw_table
from envsuite.envs.datascicoding.replies import extract
from envsuite.errors import DataError, UsageError
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Lease
from envsuite.sandbox.protocol import Limits
from envsuite.tools import Tool
from envsuite.types import Knob, Outcome

INSTRUCTIONS = (
    "Write Python code that defines build_model(x_train, y_train). It gets a pandas DataFrame and a Series, and returns a "
    "fitted scikit-learn estimator: with predict_proba if you are to predict one of two classes (0 or 1, scored by ROC "
    "AUC), with predict if you are to predict a number (scored by R2). Answer with the code alone, or with one fenced "
    "code block. It has {seconds:g} seconds. numpy is there as np, pandas as pd; scikit-learn can be imported; there is no "
    "network.{forbidden} The model is fitted to older cases and scored on later ones, whose mix differs. What counts is "
    "the score on later cases that is not shown; you are shown the score on others of them."
)
ENDINGS = {
    "first": " The first code that runs counts; you have {attempts} attempts.",
    "improve": " The program with the best score shown counts; you have {attempts} attempts, or say done to stop.",
}
RUN_CODE = Tool("run_code", "Runs and scores a program.", "{code}", {"code": "the whole program, in Python"})
STOP = Tool("done", "Stops; the program with the best score shown counts.", "done")


class GeneratedTables(TextEnv):
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
        Knob("notes", True, "show a note on every column; without them traps cannot be told"),
        Knob("mode", "first", "end at the first code that runs, or continue to improve", choices=("first", "improve")),
        Knob("attempts", 5, "programs that may be submitted", low=1, high=50),
        Knob("penalty", 0.0, "dense reward of code that fails", low=-100.0, high=0.0),
        Knob("goal", 0.9, "share of the reference program's share that counts as success", low=0.1, high=1.0),
        Knob("forbidden", ("GridSearchCV", "SVC"), "estimators that may not be used", trusted_only=False),
        Knob("max_code", 20_000, "characters of code", low=1, high=1_000_000),
        Knob("seconds", 60.0, "wall clock of one attempt", low=0.1, high=3600.0, trusted_only=True),
        Knob("memory_mb", 2048, "memory of one attempt", low=64, high=1_000_000, trusted_only=True),
        Knob(
            "sandbox",
            "auto",
            "sandbox driver; `process` offers no protection",
            choices=("auto", *drivers.DRIVERS),
            trusted_only=True,
        ),
    )
    ranges = {"share": (-1.0, 1.0), "ran": (0.0, 1.0)}
    levels = LEVELS
    isolate = True

    @classmethod
    def resources(cls, settings: dict[str, Any]) -> dict[str, float]:
        return drivers.resources(settings["sandbox"])

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        settings = self.settings
        if settings.causes > max(graphs.SMALLEST, settings.columns - settings.unrelated):
            raise UsageError(f"causes={settings.causes} is more than the linked columns: set fewer causes.")
        self.driver = drivers.choose(settings.sandbox)  # raises at once if no sandbox works
        self.limits = Limits(seconds=settings.seconds, memory_mb=settings.memory_mb)
        never = ", ".join(settings.forbidden)
        self.instructions = (INSTRUCTIONS + ENDINGS[settings.mode]).format(
            seconds=settings.seconds, attempts=settings.attempts, forbidden=f" Not allowed: {never}." if never else ""
        )
        self.tools = (STOP, RUN_CODE) if settings.mode == "improve" else (RUN_CODE,)
        self._lease: Lease | None = None

    # ---- the game --------------------------------------------------------------------------------------------------

    def _reset(self, seed: int) -> str:
        self.table = draw_table(self.settings, seed)
        self._best = self._last = scoring.Score("no_code")
        self._codes = 0
        theme = self.table.world.theme
        wanted = (
            f"predict the {theme.amount}" if self.table.world.numeric else f"predict {theme.question} (1) or not (0)"
        )
        self.objective = f"The rows are {theme.rows}: {wanted}."
        return self._describe()

    def _describe(self) -> str:
        frame, settings = self.table.training.frame, self.settings
        lines = [self.objective, f"x_train has {len(frame)} rows and {frame.shape[1]} columns:"]
        described = {column.name: column for column in self.table.world.node_columns}
        described.update({trap.column.name: trap.column for trap in self.table.world.traps})
        for name in frame.columns:
            column = described[name]
            kind = "text" if column.kind in KINDS_OF_LEVELS and column.kind != NUMBER_CODE else "number"
            some = ", some missing" if frame[name].isna().any() else ""
            example = next(value for value in frame[name] if value == value and value is not None)
            shown = example if isinstance(example, str) else f"{example:g}"
            lines.append(f"- {name} ({kind}{some}, e.g. {shown})" + (f": {column.note}" if settings.notes else ""))
        lines.append(f"The model is scored on {SHOWN_ROWS + HELD_ROWS} later cases.")
        return "\n".join(lines)

    def _act(self, command: str) -> Outcome:
        settings = self.settings
        improve = settings.mode == "improve"
        if improve and command.strip().lower().rstrip(".!") == "done":
            return Outcome("You stop here.", 0.0, done=True, success=self._reached())
        score = self._last = self._judge(command)
        self._codes += 1
        left = settings.attempts - self._codes
        ran = score.verdict == "ok"
        before = self._best
        better = ran and (before.verdict != "ok" or score.shown_auc > before.shown_auc)
        if better:
            self._best = score
        done = left <= 0 or (ran and not improve)
        if ran:
            text = (
                f"{'R2' if self.table.world.numeric else 'ROC AUC'} {score.shown_auc:.4f} on {SHOWN_ROWS} later cases."
            )
            reward = max(0.0, self._share(score)) - max(0.0, self._share(before)) if better else 0.0
        else:
            detail = f" {score.message}" if score.message else ""
            text = f"{scoring.VERDICTS[score.verdict]}{detail}" + ("" if detail.endswith((".", "")) else ".")
            reward = settings.penalty
        if not done:
            text += f" Attempts left: {left}."
        share = max(0.0, self._share(self._best))
        return Outcome(text, reward, done, done and self._reached(), valid=ran, progression=min(1.0, share))

    def _judge(self, command: str) -> scoring.Score:
        code = extract(command, "build_model")
        if not code.strip():
            return scoring.Score("no_code")
        if len(code) > self.settings.max_code:
            return scoring.Score("too_long", f"{len(code)} characters, of {self.settings.max_code} allowed")
        return self._evaluate(code, self.limits)

    def _evaluate(self, code: str, limits: Limits) -> scoring.Score:
        if self._lease is None:
            self._lease = Lease(scoring.SPEC, self.driver)
        variant = "number" if self.table.world.numeric else "model"
        forbidden = self.settings.forbidden
        return scoring.evaluate(self._lease.pool, code, self.table, variant, 1, forbidden, limits, error_characters=100)

    def _share(self, score: scoring.Score) -> float:
        return self.table.share(score.auc) if score.verdict == "ok" else 0.0

    def _reached(self) -> bool:
        return self._best.verdict == "ok" and self._share(self._best) >= self.threshold()

    # ---- the reference program -------------------------------------------------------------------------------------

    def threshold(self) -> float:
        """Returns the share that counts as success."""
        return float(self.settings.goal * self.reference())

    def reference(self) -> float:
        """Returns the reference program's share on this table, cached on disk."""
        from importlib.metadata import version

        program = programs.expert(self.table.world)
        key = json.dumps([self.table.digest, program, version("scikit-learn"), version("numpy")])
        path = cache_dir("datascicoding", "references") / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
        if path.exists():
            return float(json.loads(path.read_text()))
        score = self._evaluate(program, Limits(seconds=max(300.0, self.limits.seconds), memory_mb=4096))
        if score.verdict != "ok":
            raise DataError(f"The reference program does not run with these knobs: {score.verdict} {score.message}")
        share = self._share(score)
        write_atomically(path, json.dumps(share))
        return share

    # ---- TextEnv's other methods -----------------------------------------------------------------------------------

    def expert(self, kind: str = "") -> str | None:
        if self.settings.mode == "improve" and self._reached():
            return "done"
        return programs.expert(self.table.world)

    def blind_script(self) -> list[str]:
        return [programs.blind(self.table.world.numeric)]

    def remaining(self) -> int | None:
        if self.settings.mode == "improve" and self._codes + 1 < self.settings.attempts and not self._reached():
            return 2
        return 1

    def random_command(self, rng: np.random.Generator) -> str:
        return programs.random_program(self.table.world.numeric, rng)

    def labels(self) -> dict[str, str]:
        world = self.table.world
        return {
            "task_type": "number" if world.numeric else "classes",
            "graph": world.graph_family,
            "mechanism": world.mechanism_family,
            "isolation": self.driver,
            "leaky": str(self.driver == "process").lower(),
        }

    def metrics(self) -> dict[str, float]:
        best, ran = self._best, self._best.verdict == "ok"
        values = {"share": self._share(best), "ran": float(ran), "attempts": float(self._codes)}
        if ran and self.table.world.numeric:
            values.update(r2=best.auc, best_r2=self.table.best())
            values.update(rmse=self.table.root_error(best.auc), best_rmse=self.table.root_error(self.table.best()))
        elif ran:
            values.update(auc=best.auc, best_auc=self.table.best())
        return values

    def extra_info(self) -> dict[str, Any]:
        return {"verdict": self._last.verdict, "share": self._share(self._last), "isolation": self.driver}

    def close(self) -> None:
        if self._lease is not None:
            self._lease.close()
            self._lease = None
