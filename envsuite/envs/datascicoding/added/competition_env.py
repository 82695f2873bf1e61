"""DataSciCoding in the form of MLE-bench: files, submission.csv, public and private scores, medals.

Rules. Each turn the player answers with a whole Python script. It runs in a folder with train.csv,
test.csv and sample_submission.csv and writes submission.csv. The player sees the public score, from
the table's validation rows. Reward, success and the private score come from the holdout.

Medals follow MLE-bench (Chan et al., 2024, table 1) where the table has a leaderboard: the private
score is compared with the score at the last position that earns the medal. Without a leaderboard
the thresholds come from two baselines of ours, the reference program R and a linear model L: gold
is the better of them, bronze the worse one but at least half-way from the sample submission to
gold, and silver half-way between bronze and gold.

Rewards. `sparse`: 1 if the private score earns the medal `medal` or a better one. `dense`: the
share of the way from the sample submission's private score to gold's, from 0 to 1; `penalty` for a
script that fails. With several attempts the submission with the best public score counts.

Source: MLE-bench (Chan et al., 2024). Differences: small tables, minutes instead of hours, a public
score after each submission as on Kaggle, and no internet, machine or files beside the table.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from envsuite.envs.datascicoding import datasets, references, scoring
from envsuite.envs.datascicoding.added import competition, programs, storage
from envsuite.envs.datascicoding.added.competition import Competition, CompetitionScore
from envsuite.envs.datascicoding.added.env import AddedTable
from envsuite.envs.datascicoding.added.leaderboards import MEDALS, Thresholds
from envsuite.envs.datascicoding.instances import shortened
from envsuite.errors import DataError
from envsuite.sandbox.pool import Lease
from envsuite.types import Knob

INSTRUCTIONS = (
    "Write a Python script. It runs in a folder with train.csv, test.csv and sample_submission.csv, and must write "
    "submission.csv with the columns and ids of sample_submission.csv. Answer with the script alone, or with one "
    "fenced code block. It has {seconds:g} seconds; numpy, pandas, scipy and scikit-learn can be imported; there is no "
    "network."
)
ENDINGS = {
    "first": " The first submission that is valid counts; you have {attempts} attempts.",
    "improve": " You have {attempts} attempts, or say done to stop. The submission with the best public score counts.",
}
SCORES = (
    " You are shown the public score, on some of the test rows. What counts is the private score, on the others, which "
    "is not shown."
)
DATASETS = ("breast-cancer", "digits", "balance-scale")
"""bundled sets on which a linear model does not reach the largest score"""
KEPT = ("errors", "tell", "mode", "attempts", "penalty", "max_code", "sandbox", "seconds", "memory_mb")


class CompetitionEnv(AddedTable):
    """A competition on a bundled data set or an added table. Rules: docs/envs/datascicoding.md."""

    knobs = (
        Knob("table", "", "name of an added table to use instead of `dataset`", trusted_only=False),
        Knob("dataset", DATASETS, "data sets, used in turn by seed", choices=tuple(datasets.SOURCES)),
        Knob("medal", "bronze", "medal that counts as success", choices=MEDALS),
        *(knob for knob in AddedTable.knobs if knob.name in KEPT),
    )
    ranges = {"ran": (0.0, 1.0), "medal": (0.0, 3.0)}
    chance = 0.0
    function = "main"
    game: Competition  # type: ignore[assignment]

    def _load_data(self) -> None:
        if self.settings.table:
            self._competitions = [_added(storage.load(self.settings.table))]
        else:
            self._competitions = [_bundled(name) for name in self.settings.dataset]

    def _write_instructions(self) -> str:
        settings = self.settings
        text = INSTRUCTIONS + ENDINGS[settings.mode] + SCORES
        return text.format(seconds=settings.seconds, attempts=settings.attempts)

    def _new_game(self, seed: int) -> Competition:  # type: ignore[override]
        game = self._competitions[seed % len(self._competitions)]
        self.table = game.table
        size = sum(map(len, game.files.values())) / 1e6
        predicted = len(game.test_rows) * len(game.header) * 30 / 1e6
        self.limits = replace(
            self.limits, disk_mb=max(64, math.ceil(2 * size + predicted)), value_mb=max(64, math.ceil(predicted))
        )
        return game

    def _write_objective(self) -> str:
        table, metric = self.game.table, self.game.metric
        direction = "lower is better" if metric.loss else "higher is better"
        if table.is_regression:
            predicted = f"Predict column {table.target!r}, a number"
        elif len(table.classes) == 2:
            predicted = f"Predict column {table.target!r}: the probability of {table.classes[1]!r}"
        else:
            predicted = f"Predict column {table.target!r}: a probability for each of {len(table.classes)} classes"
        return f"Competition {table.name!r}. {predicted}. The metric is {metric.name}; {direction}."

    def _describe(self) -> str:
        game, settings = self.game, self.settings
        text = []
        if settings.tell != "little":
            listed = shortened([column.name for column in game.table.columns])
            train = len(game.table.parts) - len(game.test_rows)
            text.append(f"train.csv: {train} rows; test.csv: {len(game.test_rows)} rows; {', '.join(listed)}.")
        text.append(f"submission.csv: {', '.join(game.header)}.")
        if settings.tell == "full":
            score = game.metric.written(getattr(self.thresholds(), settings.medal))
            text.append(f"The {settings.medal} medal needs a private score of {score}.")
        return "\n".join(text)

    # ---- scores ----------------------------------------------------------------------------------------------------

    def _evaluate(self, code: str) -> scoring.Score:
        result = self._submit(code)
        if isinstance(result, scoring.Score):
            return result
        public, private = result
        limits = self.thresholds()
        floor = self._floor()
        share = min(1.0, max(0.0, (private - floor) / (limits.gold - floor)))
        medal = limits.medal(private) if private > floor else ""
        return CompetitionScore("ok", "", public, 0.0, share, 0.0, public=public, private=private, medal=medal)

    def _submit(self, code: str) -> scoring.Score | tuple[float, float]:
        """Runs a script; returns the public and the private score, or why there are none."""
        if self._lease is None:
            self._lease = Lease(competition.SPEC, self.driver)
        short = 100 if self.settings.errors == "short" else 0
        verdict, submission = self.game.run(self._lease.pool, code, self.limits, short)
        if verdict.verdict != "ok":
            return verdict
        try:
            return self.game.scores(submission)
        except ValueError as error:
            return scoring.Score("bad_return", f"submission.csv: {error}")

    def thresholds(self) -> Thresholds:
        """Returns the private scores that earn medals."""
        if (from_leaderboard := self.game.leaderboard_thresholds()) is not None:
            return from_leaderboard
        floor = self._floor()
        scores = sorted(self._baseline(program) for program in (self._reference_program(), self._linear_program()))
        gold = scores[1]
        bronze = max(scores[0], (floor + gold) / 2)
        return Thresholds(gold, (bronze + gold) / 2, bronze)

    def threshold(self) -> float:
        """Returns the dense reward at the medal that counts as success."""
        limits, floor = self.thresholds(), self._floor()
        return min(1.0, (getattr(limits, self.settings.medal) - floor) / (limits.gold - floor))

    def _reached(self) -> bool:
        accepted = MEDALS[: MEDALS.index(self.settings.medal) + 1]
        return isinstance(self._best, CompetitionScore) and self._best.medal in accepted

    def _floor(self) -> float:
        """Returns the sample submission's private score. Raises DataError if the medals are not above it."""
        floor = self._baseline(programs.SAMPLE)
        board = self.game.leaderboard_thresholds()
        if (board.gold if board else self._baseline(self._reference_program())) <= floor:
            raise DataError(
                f"{self.game.table.name}: the sample submission is as good as "
                f"{'the gold medal' if board else 'the reference program'}, so medals would mean nothing."
            )
        return floor

    def _baseline(self, program: str) -> float:
        """Returns the private score of a program of ours, cached on disk."""
        table = self.game.table

        def compute() -> float:
            with self._wide_limits(300.0):
                result = self._submit(program)
            if isinstance(result, scoring.Score):
                raise DataError(f"A baseline does not run on {table.name}: {result.verdict} {result.message}")
            return result[1]

        return references.remembered([table.digest, table.metric, program], float, compute)

    # ---- players and reports ---------------------------------------------------------------------------------------

    @property
    def _output(self) -> str:
        return "numbers" if self.game.table.is_regression else "classes"

    def _reference_program(self) -> str:
        return programs.script(self._output, programs.reference(len(self.game.table.classes)))

    def _linear_program(self) -> str:
        return programs.script(self._output, programs.linear(self._output))

    def expert(self, kind: str = "") -> str | None:
        """Returns the better of the two baselines that set the thresholds."""
        if self.settings.mode == "improve" and self._reached():
            return "done"
        return max((self._reference_program(), self._linear_program()), key=self._baseline)

    def random_command(self, rng: np.random.Generator) -> str:
        return programs.random_script(self._output, rng)

    def _score_text(self, score: scoring.Score) -> str:
        return f"Public score {self.game.metric.written(score.shown_auc)} ({self.game.metric.name})."

    def labels(self) -> dict[str, str]:
        source = "leaderboard" if self.game.table.leaderboard else "baselines"
        return {**super().labels(), "metric": self.game.metric.name, "medals_from": source}

    def metrics(self) -> dict[str, float]:
        best = self._best
        metrics = {"ran": float(best.verdict == "ok"), "attempts": float(self._codes), "medal": 0.0}
        if isinstance(best, CompetitionScore):
            sign = -1.0 if self.game.metric.loss else 1.0
            metrics["public_score"], metrics["private_score"] = sign * best.public, sign * best.private
            metrics["medal"] = float(len(MEDALS) - MEDALS.index(best.medal)) if best.medal else 0.0
        return metrics

    def extra_info(self) -> dict[str, Any]:
        medal = self._best.medal if isinstance(self._best, CompetitionScore) else ""
        return {"verdict": self._last.verdict, "medal": medal, "isolation": self.driver, "score": self._best.auc}


@lru_cache(maxsize=8)
def _bundled(name: str) -> Competition:
    return Competition(storage.from_dataset(datasets.load(name)))


@lru_cache(maxsize=2)
def _added(table: storage.StoredTable) -> Competition:
    return Competition(table)
