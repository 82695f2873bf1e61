"""DataSciCoding: write a scikit-learn classifier that runs; the reward is its ROC AUC.

Rules. Each turn the player answers with Python code, raw or in one fenced block. The code defines
`build_model(x_train, y_train)`, which returns a fitted estimator with `predict_proba`. The code runs on `splits`
random halves of the data, each
in a fresh process of a sandbox that contains the training rows with labels and the test rows
without; the score is computed outside. An episode ends with the first code that runs (`mode=first`,
the paper's) or continues until the attempts are used up (`mode=improve`; `done` ends it earlier).

Rewards. `dense`: the mean ROC AUC over the splits (multi-class: one-vs-one), `penalty` if the code
fails; in `improve` only the gain over the best score so far, so that submitting a program twice
pays once. `sparse`: 1 if the score reaches the threshold, which is the reference program's score on
the same data minus `margin`. `shaped`: from the reference program, which always needs one turn. A constant
prediction scores 0.5 and so earns a dense reward of 0.5, as in the paper; a test states this.

Harder: fewer rows, noise columns, missing values, text columns, class imbalance, fewer attempts, a higher threshold, less information about the data.

Source: POAD (Wen et al., 2024), App. E; data sets after CAAFE (Hollmann et al., 2023).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from envsuite.core import TextEnv
from envsuite.envs.datascicoding import datasets, exploring, instructions, pipelines, references, replies, scoring
from envsuite.envs.datascicoding.instances import Instance, columns_text, instance
from envsuite.envs.datascicoding.menu import LADDER
from envsuite.errors import UsageError
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Lease
from envsuite.sandbox.protocol import Limits
from envsuite.tools import Tool
from envsuite.types import Knob, Outcome, StopReason

RUN_CODE = Tool("run_code", "Runs and scores a program.", "{code}", {"code": "the whole program, in Python"})
STOP = Tool("done", "Stops; your best score counts.", "done")
PLAY_HELP = "By hand: begin a program with a line of ```, end it with another; or write it with :edit."


class DataSciCoding(TextEnv):
    """A data set for which the player writes scikit-learn code. Rules: docs/envs/datascicoding.md."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("dataset", datasets.EMBEDDED, "data sets, used in turn by seed", choices=tuple(datasets.SOURCES)),
        Knob("rows", 0, "number of rows, sampled by `draw`; 0 uses all", low=0, high=1_000_000),
        Knob(
            "holdout",
            0.0,
            "share of rows that count and are never shown; 0: the paper's protocol, whose labels leak",
            low=0.0,
            high=0.8,
        ),
        Knob("errors", "long", "text of an error: up to 300 characters, or 100 in ASCII", choices=("long", "short")),
        Knob("draw", -1, "seed of rows and noise; -1 uses the episode's seed", low=-1, high=2**31 - 1),
        Knob("complete", False, "drop rows with missing values in the file"),
        Knob("noise", 0, "number of noise columns to add", low=0, high=1_000),
        Knob("missing", 0.0, "share of cells to blank", low=0.0, high=0.9),
        Knob("categorical", 0.0, "share of columns shown as text; others are numbers or codes", low=0.0, high=1.0),
        Knob("imbalance", 1.0, "ratio of largest class to smallest, by dropping rows", low=1.0, high=100.0),
        Knob("tell", "columns", "information about the data in the prompt", choices=("little", "columns", "full")),
        Knob("mode", "first", "end at the first code that runs, or continue to improve", choices=("first", "improve")),
        Knob("attempts", 5, "programs that may be submitted", low=1, high=50),
        Knob("penalty", -1.0, "dense reward of code that fails", low=-100.0, high=0.0),
        Knob("margin", 0.02, "largest distance below the reference that counts as success", low=0.0, high=0.5),
        Knob("explore", 0, "turns in which code runs in an interpreter on training rows", low=0, high=1_000),
        Knob("explore_chars", 2_000, "characters of output shown per exploring turn", low=100, high=100_000),
        Knob("explore_seconds", 10.0, "wall clock of an exploring turn", low=0.1, high=600.0, trusted_only=True),
        Knob("splits", 5, "random halves", low=1, high=50),
        Knob("forbidden", ("GridSearchCV", "SVC"), "estimators that may not be used", trusted_only=False),
        Knob("max_code", 20_000, "characters of code", low=1, high=1_000_000),
        Knob("seconds", 30.0, "wall clock for all splits of one attempt", low=0.1, high=3600.0, trusted_only=True),
        Knob("memory_mb", 2048, "memory of one attempt", low=64, high=1_000_000, trusted_only=True),
        Knob(
            "sandbox",
            "auto",
            "sandbox driver; `process` offers no protection",
            choices=("auto", *drivers.DRIVERS),
            trusted_only=True,
        ),
    )
    ranges = {"auc": (0.0, 1.0), "ran": (0.0, 1.0)}
    levels = LADDER
    function: ClassVar[str] = "build_model"
    """name of the function that a program defines"""
    experts: ClassVar[tuple[str, ...]] = ("", "blend")
    """'': the program that sets the threshold; `blend`: a cross-validated blend, which takes longer"""
    isolate = True
    chance = 0.5
    """score of a constant prediction"""

    @classmethod
    def resources(cls, settings: dict[str, Any]) -> dict[str, float]:
        return drivers.resources(settings["sandbox"])

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        settings = self.settings
        self.driver = drivers.choose(settings.sandbox)  # raises at once if no sandbox works
        self.limits = Limits(seconds=settings.seconds, memory_mb=settings.memory_mb)
        explores = bool(getattr(settings, "explore", 0))  # a form of the game without the knob has no interpreter
        programs = (exploring.RUN_PYTHON, exploring.SUBMIT) if explores else (RUN_CODE,)
        self.tools = (STOP, *programs) if settings.mode == "improve" else programs
        if explores and not getattr(settings, "holdout", True):
            raise UsageError("explore needs a holdout, or it would show labels that count: set holdout=0.3.")
        self._load_data()
        self._explorer = exploring.Explorer(self.driver, settings, self.limits) if explores else None
        self.instructions = self._write_instructions()
        self._lease: Lease | None = None
        self._best = scoring.Score("no_code")
        self._last = self._best
        self._codes = 0

    # ---- the data, which other forms of the game replace -----------------------------------------------------------

    def _load_data(self) -> None:
        """Loads the tables. Raises at once if one is missing or cannot be played."""
        self._tables = [_table(name) for name in self.settings.dataset]

    @property
    def splits(self) -> int:
        """Number of splits on which a program runs."""
        return int(self.settings.splits)

    def _new_game(self, seed: int) -> Instance:
        table = self._tables[seed % len(self._tables)]
        return instance(table, self.settings, seed if self.settings.draw < 0 else self.settings.draw)

    def _write_objective(self) -> str:
        return f"{self.game.about} Predict which of {len(self.game.classes)} classes."

    def _score_text(self, score: scoring.Score) -> str:
        return (
            f"Mean ROC AUC {score.shown_auc:.4f} (standard deviation {score.shown_std:.4f}) over {self.splits} splits."
        )

    def _write_instructions(self) -> str:
        text = self.settings.explore and exploring.instructions(self.settings)
        return instructions.write(self.settings, text or instructions.ANSWER)

    # ---- the game --------------------------------------------------------------------------------------------------

    def _reset(self, seed: int) -> str:
        self.game = self._new_game(seed)
        self._best = self._last = scoring.Score("no_code")
        self._codes = 0
        if self._explorer is not None:
            self._explorer.reset(self.game)
        self.objective = self._write_objective()
        return self._describe()

    def _act(self, command: str) -> Outcome:
        settings = self.settings
        improve = settings.mode == "improve"
        if self._is_stop(command):
            return Outcome("You stop here.", 0.0, done=True, success=self._reached())
        code: str | None = replies.extract(command, self.function)
        if self._explorer is not None:
            code = replies.submitted(command, self.function)
            if code is None and self._explorer.left:
                text, ran = self._explorer.run(replies.cell(command)[: settings.max_code])
                return Outcome(text, 0.0, valid=ran, progression=self._share())
        score = self._last = self._judge(replies.extract(command, self.function) if code is None else code)
        self._codes += 1
        left = settings.attempts - self._codes
        ran = score.verdict == "ok"
        before = self._best
        better = ran and (before.verdict != "ok" or score.shown_auc > before.shown_auc)
        if better:
            self._best = score
        done = left <= 0 or (ran and not improve)
        if ran:
            text = self._score_text(score)
            reward = score.auc
            if improve and before.verdict == "ok":
                reward = score.auc - before.auc if better else 0.0
        else:
            detail = f" {score.message}" if score.message else ""
            text = f"{scoring.VERDICTS[score.verdict]}{detail}" + ("" if detail.endswith((".", "")) else ".")
            reward = settings.penalty
        if not done:
            text += f" Attempts left: {left}."
        return Outcome(text, reward, done, done and self._reached(), valid=ran, progression=self._share())

    def _judge(self, code: str) -> scoring.Score:
        if not code.strip():
            return scoring.Score("no_code")
        if len(code) > self.settings.max_code:
            return scoring.Score("too_long", f"{len(code)} characters, of {self.settings.max_code} allowed")
        return self._evaluate(code)

    def _evaluate(self, code: str) -> scoring.Score:
        if self._lease is None:
            self._lease = Lease(scoring.spec(self.settings.forbidden), self.driver)
        settings = self.settings
        return scoring.evaluate(
            self._lease.pool,
            code,
            self.game,
            self.splits,
            settings.forbidden,
            self.limits,
            error_characters=100 if settings.errors == "short" else 0,
        )

    def _reached(self) -> bool:
        return self._best.verdict == "ok" and self._best.auc >= self.threshold()

    def _share(self) -> float:
        if self._best.verdict != "ok":
            return 0.0
        return min(1.0, max(0.0, (self._best.auc - self.chance) / max(0.01, self.threshold() - self.chance)))

    # ---- the reference program -------------------------------------------------------------------------------------

    def reference(self) -> float:
        """Returns the reference program's score on this instance, cached on disk."""
        return self._cached_score(self._reference_program())

    def threshold(self) -> float:
        """Returns the score that counts as success."""
        return self.reference() - self.settings.margin

    def _reference_program(self) -> str:
        return pipelines.expert(self.game.name)

    def _blend_program(self) -> str:
        return pipelines.ceiling(self.game.name)

    def _cached_score(self, program: str) -> float:
        def compute() -> float:
            with self._wide_limits(120.0):
                score = self._evaluate(program)
            if score.verdict != "ok":
                raise datasets.DataError(
                    f"The reference program does not run on {self.game.name} with these knobs: "
                    f"{score.verdict} {score.message}"
                )
            return score.auc

        return references.remembered([self.game.digest, self.splits, program], float, compute)

    @contextlib.contextmanager
    def _wide_limits(self, seconds: float) -> Iterator[None]:
        """Gives programs of ours at least `seconds` and 4 GB."""
        limits = self.limits
        self.limits = replace(limits, seconds=max(seconds, limits.seconds), memory_mb=max(4096, limits.memory_mb))
        try:
            yield
        finally:
            self.limits = limits

    # ---- TextEnv's other methods -----------------------------------------------------------------------------------

    def _describe(self) -> str:
        frame, settings = self.game.features, self.settings
        rows, columns = int((~self.game.holdout).sum()), frame.shape[1]
        text = [] if settings.holdout else [self.objective]  # as published: prompts state the objective, too
        text += [f"x_train has {rows - (rows + 1) // 2} rows and {columns} columns."]
        if settings.tell != "little":
            text.append(columns_text(frame))
        if settings.tell == "full":
            counts = np.bincount(self.game.labels[~self.game.holdout])
            named = zip(self.game.classes, counts, strict=True)
            text.append("Classes in all the data: " + ", ".join(f"{name} {count}" for name, count in named) + ".")
            text.append(f"An AUC of {self.threshold():.4f} is wanted.")
        return "\n".join(text)

    def expert(self, kind: str = "") -> str | None:
        if self.settings.mode == "improve" and self._reached():
            return "done"
        program = self._blend_program() if kind == "blend" else self._reference_program()
        return ("# submit\n" if self._explorer is not None else "") + program

    def remaining(self) -> int | None:
        if self.settings.mode == "improve":
            return 1 if self._ran() and (self._reached() or self._codes + 1 >= self.settings.attempts) else 2
        return 1

    def random_command(self, rng: np.random.Generator) -> str:
        return pipelines.random_program(rng)

    def labels(self) -> dict[str, str]:
        leaky = self.game.leaky or drivers.is_leaky(self.driver)
        kind = "binary" if len(self.game.classes) == 2 else "multi-class"
        return {"instance": self.game.name, "task_type": kind, "isolation": self.driver, "leaky": str(leaky).lower()}

    def metrics(self) -> dict[str, float]:
        values = {"auc": self._best.auc, "auc_std": self._best.std}
        values |= {"ran": float(self._ran()), "attempts": float(self._codes)}
        if self._explorer is not None:
            values["explored"] = float(self._explorer.turns - self._explorer.left)
        return values

    def extra_info(self) -> dict[str, Any]:
        return {
            "verdict": self._last.verdict,
            "auc": self._last.auc,
            "auc_std": self._last.std,
            "isolation": self.driver,
            "score": self._best.auc,
        }

    def _info(self, valid: bool, reason: StopReason | None) -> dict[str, Any]:
        info = super()._info(valid, reason)
        if self._over and self._ran():
            info["threshold"] = self.threshold()  # no model reads it: the episode is over
        return info

    def _ran(self) -> bool:
        """Returns True if a program has run, so that the episode has a score."""
        return self._best.verdict == "ok"

    def play_help(self) -> str:
        return exploring.PLAY_HELP if self._explorer is not None else PLAY_HELP

    def typed_command(self, line: str) -> str:
        if self._explorer is None or not self._explorer.left or self._is_stop(line):
            return line
        return exploring.typed_command(line)

    def play_result(self) -> str:
        if not self._ran():
            return "No program ran, so there is no score."
        return f"The score that counts is {self._best.auc:.4f}; success needs {self.threshold():.4f}."

    def _is_stop(self, command: str) -> bool:
        """Returns True if a command ends the episode."""
        return self.settings.mode == "improve" and command.strip().lower().rstrip(".!") == "done"

    def close(self) -> None:
        if self._explorer is not None:
            self._explorer.close()
        if self._lease is not None:
            self._lease.close()
            self._lease = None


@lru_cache(maxsize=16)
def _table(name: str) -> datasets.Dataset:
    return datasets.load(name)
