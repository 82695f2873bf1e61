"""Competitions in the form of MLE-bench (Chan et al., 2024): files, submissions, and public and private scores.

The player's script finds train.csv, test.csv and sample_submission.csv in its folder and writes
submission.csv. Test rows are the table's validation rows, which give the public score, and its
holdout, which gives the private score.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from envsuite.envs.datascicoding import scoring
from envsuite.envs.datascicoding.added.leaderboards import Thresholds, thresholds
from envsuite.envs.datascicoding.added.partition import TRAIN, VALIDATION
from envsuite.envs.datascicoding.added.storage import StoredTable
from envsuite.envs.datascicoding.metrics import METRICS, Metric
from envsuite.sandbox.pool import Pool
from envsuite.sandbox.protocol import Limits, Spec

SPEC = Spec(
    modules=scoring.SPEC.modules,
    program=Path(__file__).with_name("competition_runner.py"),
    distributions=scoring.SPEC.distributions,
    sockets=False,
    hidden=scoring.SPEC.hidden,
)
ID_NAMES = ("id", "row_id", "submission_id")
"""names of the column of ids; the first that the table does not use"""
LARGEST = 1e100
"""absolute value of a prediction: squares of larger ones are not finite"""


@dataclass(frozen=True)
class CompetitionScore(scoring.Score):
    """Result of a submission. `shown_auc` is the public score, `auc` the reward: see `Competition.scored`."""

    public: float = 0.0
    private: float = 0.0
    medal: str = ""


@dataclass(frozen=True, eq=False)
class Competition:
    """A table as a competition."""

    table: StoredTable

    @property
    def metric(self) -> Metric:
        return METRICS[self.table.metric]

    @cached_property
    def ids(self) -> np.ndarray:
        """Ids [rows], in an order that says nothing about the rows."""
        key = hashlib.sha256(f"{self.table.digest}/ids".encode()).digest()
        return np.random.default_rng(list(key)).permutation(len(self.table.parts))

    @cached_property
    def test_rows(self) -> np.ndarray:
        """Numbers of the test rows, in the order of their ids."""
        rows = np.flatnonzero(self.table.parts != TRAIN)
        return rows[np.argsort(self.ids[rows])]

    @cached_property
    def id_name(self) -> str:
        taken = {self.table.target, *self.table.classes, *(column.name for column in self.table.columns)}
        names = itertools.chain(ID_NAMES, (f"id_{number}" for number in itertools.count(2)))
        return next(name for name in names if name not in taken)

    @cached_property
    def header(self) -> list[str]:
        """Columns of a submission: the id, and the target or, for more than two classes, each class."""
        return [self.id_name, *(self.table.classes if len(self.table.classes) > 2 else (self.table.target,))]

    @cached_property
    def files(self) -> dict[str, bytes]:
        """Files in the script's folder."""
        rows = self.table.rows(TRAIN)
        rows = rows[np.argsort(self.ids[rows])]
        train = self.table.frame(rows)
        answers = self.table.answers[rows]
        train[self.table.target] = (
            np.array(self.table.classes, object)[answers.astype(int)] if self.table.classes else answers
        )
        test = self.table.frame(self.test_rows)
        for frame, chosen in ((train, rows), (test, self.test_rows)):
            frame.insert(0, self.id_name, self.ids[chosen])
        return {
            "train.csv": train.to_csv(index=False).encode(),
            "test.csv": test.to_csv(index=False).encode(),
            "sample_submission.csv": self._sample().encode(),
        }

    def _sample(self) -> str:
        """Returns a submission of one constant prediction: equal probabilities, or the mean of the training rows."""
        constant = 1 / max(2, len(self.table.classes))
        if self.table.is_regression:
            constant = float(np.round(self.table.answers[self.table.rows(TRAIN)].mean(), 6))
        ending = "," + ",".join([f"{constant:.6g}"] * (len(self.header) - 1))
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(self.header)
        return text.getvalue() + "".join(f"{number}{ending}\n" for number in self.ids[self.test_rows])

    def scores(self, submission: bytes) -> tuple[float, float]:
        """Returns the public and the private score of a submission, higher is better.

        Raises ValueError, with a message for the player, if the submission is invalid.
        """
        predictions = self._parse(submission)
        public = self.table.parts[self.test_rows] == VALIDATION
        answers = self.table.answers[self.test_rows]
        return tuple(self.metric.score(answers[part], predictions[part]) for part in (public, ~public))  # type: ignore[return-value]

    def _parse(self, submission: bytes) -> np.ndarray:
        """Returns the predictions [test rows, columns] of a submission in the order of `test_rows`."""
        try:
            rows = csv.reader(io.StringIO(submission.decode("utf-8-sig"), newline=""))
            header = [name.strip() for name in next(rows, [])]
            if header != [name.strip() for name in self.header]:
                raise ValueError(f"its columns are {_listed(header)}, not {_listed(self.header)}")
            cells = [row for row in rows if row]
        except UnicodeDecodeError:
            raise ValueError("it is no UTF-8 text") from None
        except csv.Error as error:
            raise ValueError(f"it is no CSV: {error}") from None
        if len(cells) != len(self.test_rows):
            raise ValueError(f"it has {len(cells)} rows, not {len(self.test_rows)}")
        try:
            values = np.array(cells, dtype=float)
        except ValueError:
            raise ValueError("it holds a cell that is no number, or a row of another length") from None
        if not (np.abs(values) <= LARGEST).all():
            raise ValueError(f"it holds a value that is not finite or beyond {LARGEST:g}")
        order = np.argsort(values[:, 0], kind="stable")
        if not (values[order, 0] == self.ids[self.test_rows]).all():
            raise ValueError("its ids are not those of test.csv, each once")
        predictions = values[order, 1:]
        if len(self.table.classes) == 2:
            predictions = np.column_stack([1 - predictions[:, 0], predictions[:, 0]])
        if self.metric.name == "log_loss" and (predictions < 0).any():
            raise ValueError("it holds a probability outside 0 to 1")
        return predictions

    def run(self, pool: Pool, code: str, limits: Limits, error_characters: int) -> tuple[scoring.Score, bytes]:
        """Runs a script; returns its verdict and the submission. Raises EngineFailure if the sandbox fails."""
        job: dict[str, object] = {"code": code, "files": self.files}
        verdict, submission, _ = scoring.run_job(pool, job, limits, error_characters)
        return verdict, submission

    def leaderboard_thresholds(self) -> Thresholds | None:
        """Returns the thresholds of the table's own leaderboard, if it has one."""
        return thresholds(self.table.leaderboard) if self.table.leaderboard else None


def _listed(names: list[str]) -> str:
    text = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
    return text.encode("ascii", "replace").decode()[:80] or "none"
