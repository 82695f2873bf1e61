"""DataSciCoding in the form of CAAFE: features are proposed step by step, and kept if they help.

Rules. Each turn the player answers with code that defines `transform(df)`. It gets the table as the
kept steps left it and returns a DataFrame with the same rows. The step is kept if, on the validation
halves, the gain in ROC AUC plus the gain in accuracy of the first classifier is above zero
(Hollmann et al., 2023, section 3, and their code); otherwise it is discarded. The player sees both
scores before and after. The episode ends after `attempts` steps or with `done`.

Rewards. The final score is the ROC AUC on the holdout, whose labels never enter a sandbox with a
step, averaged over the classifiers `downstream`. `dense`: the change of the final score by a step
that is kept, `penalty` for code that fails. `sparse`: 1 if the final score reaches the threshold,
half-way from the unchanged table to the reference's single step, but at least `margin` above the
unchanged table (and never above the reference).

Differences from CAAFE: random halves in place of ten-fold cross-validation, logistic regression, a
random forest and gradient boosting in place of TabPFN and AutoML systems, and success by threshold.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from envsuite.envs.datascicoding import pipelines, references, replies, scoring
from envsuite.envs.datascicoding.env import DataSciCoding
from envsuite.envs.datascicoding.steps import scores
from envsuite.envs.datascicoding.steps.scores import StepScore
from envsuite.errors import DataError
from envsuite.sandbox.pool import Lease
from envsuite.types import Knob, Outcome

INSTRUCTIONS = (
    "Improve a table for classifiers, step by step. Each turn, write Python code that defines transform(df). It gets "
    "a pandas DataFrame of features, as the steps kept so far made it, and returns one with the same rows and the "
    "columns you choose. Answer with the code alone, or with one fenced code block. numpy is there as np, pandas as "
    "pd. The step is kept if it improves ROC AUC plus accuracy of {keeper} on validation rows, and "
    "discarded otherwise. You have {attempts} steps of {seconds:g} seconds each, or say done to stop. What counts is "
    "the ROC AUC on further rows, which is not shown, averaged over {classifiers}."
)
NAMES = {"logistic": "a logistic regression", "forest": "a random forest", "boosting": "gradient boosting"}
KEPT = (
    *("dataset", "rows", "holdout", "errors", "draw", "complete", "noise", "missing"),
    *("categorical", "imbalance", "tell", "margin", "max_code", "memory_mb", "sandbox"),
)
IDLE_WORDS = ("done", "done.", "done!")


class FeatureSteps(DataSciCoding):
    """Feature engineering in steps that are kept if they help. Rules: docs/envs/datascicoding.md."""

    knobs = (
        Knob("attempts", 10, "steps that may be proposed", low=1, high=50),
        Knob("splits", 3, "random halves", low=1, high=50),
        Knob("downstream", scores.CLASSIFIERS, "classifiers of the final score", choices=scores.CLASSIFIERS),
        Knob("penalty", 0.0, "dense reward of code that fails", low=-100.0, high=0.0),
        Knob("mode", "improve", "end after all steps, or at `done`", choices=("improve",)),
        Knob("seconds", 60.0, "wall clock of one step", low=0.1, high=3600.0, trusted_only=True),
        *(knob for knob in DataSciCoding.knobs if knob.name in KEPT),
    )
    ranges = {"auc": (0.0, 1.0), "ran": (0.0, 1.0), "gain": (-1.0, 1.0)}
    levels = {}
    function = "transform"
    experts = ("",)

    def _write_instructions(self) -> str:
        settings = self.settings
        named = [NAMES[name] for name in settings.downstream]
        listed = " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))
        return INSTRUCTIONS.format(
            attempts=settings.attempts, seconds=settings.seconds, classifiers=listed, keeper=named[0]
        )

    def _reset(self, seed: int) -> str:
        text = super()._reset(seed)
        self._steps: list[str] = []
        self._start = self._now = self._cached_steps(())
        self._verdict = "no_code"
        return f"{text}\n{self._scores(self._now)}"

    def _act(self, command: str) -> Outcome:
        settings = self.settings
        if command.strip().lower() in IDLE_WORDS:
            return Outcome("You stop here.", 0.0, done=True, success=self._reached())
        code = replies.extract(command, "transform")
        before = self._now
        score = self._propose(code)
        self._verdict = score.verdict
        self._codes += 1
        left = settings.attempts - self._codes
        ran = score.verdict == "ok"
        reward = 0.0
        if not ran:
            detail = f" {score.message}" if score.message else ""
            text = f"{scoring.VERDICTS[score.verdict]}{detail} The step is discarded."
            reward = settings.penalty
        elif score.gain(before) > 0:
            self._steps.append(code)
            self._now = score
            reward = score.final - before.final
            text = f"The step is kept. {self._scores(score)}"
        else:
            text = f"The step is discarded. With it: {self._scores(score)} Without it: {self._scores(before)}"
        done = left <= 0
        text += "" if done else f" Steps left: {left}."
        return Outcome(text, reward, done, done and self._reached(), valid=ran, progression=self._share())

    def _propose(self, code: str) -> StepScore:
        if not code.strip():
            return StepScore("no_code")
        if len(code) > self.settings.max_code:
            return StepScore("too_long", f"{len(code)} characters, of {self.settings.max_code} allowed")
        return self._score_steps([*self._steps, code])

    def _score_steps(self, codes: list[str]) -> StepScore:
        if self._lease is None:
            self._lease = Lease(scoring.SPEC, self.driver)
        settings = self.settings
        short = 100 if settings.errors == "short" else 0
        return scores.evaluate(self._lease.pool, codes, self.game, self.splits, settings.downstream, self.limits, short)

    def _scores(self, score: StepScore) -> str:
        return f"Validation: ROC AUC {score.auc:.4f}, accuracy {score.accuracy:.4f}."

    def _cached_steps(self, codes: tuple[str, ...]) -> StepScore:
        """Returns the score of steps of ours, cached on disk."""

        def read(stored: dict[str, Any]) -> StepScore:
            return StepScore(**{**stored, "by_classifier": tuple(stored["by_classifier"])})

        def compute() -> dict[str, Any]:
            score = self._score_steps(list(codes))
            if score.verdict != "ok":
                raise DataError(f"A reference step does not run on {self.game.name}: {score.verdict} {score.message}")
            return asdict(score)

        parts = ["steps", self.game.digest, self.splits, self.settings.downstream, codes]
        return references.remembered(parts, read, compute)

    # ---- success and players ---------------------------------------------------------------------------------------

    def threshold(self) -> float:
        """Returns the final score that counts as success."""
        unchanged, reference = self._cached_steps(()).final, self._cached_steps((pipelines.TRANSFORM,)).final
        needed = max((unchanged + reference) / 2, unchanged + self.settings.margin)
        return min(reference, needed) if reference > unchanged else needed

    def _ran(self) -> bool:
        return bool(self._steps)

    def _reached(self) -> bool:
        return self._ran() and self._now.final >= self.threshold()

    def _share(self) -> float:
        start = self._start.final
        return min(1.0, max(0.0, (self._now.final - start) / max(0.001, self.threshold() - start)))

    def expert(self, kind: str = "") -> str | None:
        return "done" if self._steps else pipelines.TRANSFORM

    def remaining(self) -> int | None:
        return 1 if self._steps else 2

    def random_command(self, rng: np.random.Generator) -> str:
        return "done" if rng.random() < 0.1 else pipelines.random_transform(rng)

    def metrics(self) -> dict[str, float]:
        named = zip(self.settings.downstream, self._now.by_classifier, strict=True)
        return {
            "auc": self._now.final,
            "gain": self._now.final - self._start.final,
            "ran": float(bool(self._steps)),
            "kept": float(len(self._steps)),
            "attempts": float(self._codes),
            **{f"auc_{name}": value for name, value in named},
        }

    def extra_info(self) -> dict[str, Any]:
        return {"verdict": self._verdict, "auc": self._now.final, "isolation": self.driver, "score": self._now.final}
