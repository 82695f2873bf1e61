"""Contents of a generalization grid: settings, models with their training settings, and cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from envsuite.errors import UsageError
from envsuite.types import Task
from harness.records import Record, is_broken
from harness.stats.aggregate import game_scores
from harness.stats.intervals import Interval, Range, mean_interval
from harness.stats.ranges import known_ranges


@dataclass(frozen=True)
class GridSetting:
    """Point of a grid: a task with knobs and split. `seen`: it was in training (None: unknown)."""

    at: Mapping[str, str]
    task: Task
    split: str = ""
    knobs: Mapping[str, str] = field(default_factory=dict)
    prompt_wording: str = ""
    seen: bool | None = None


@dataclass(frozen=True)
class EvaluatedModel:
    """Model with its training settings, written NAME@AXIS=VALUE,AXIS=VALUE."""

    name: str
    trained: Mapping[str, str]
    base: bool = False
    """a model before training: no setting was seen"""

    @property
    def label(self) -> str:
        words = ",".join(f"{axis}={value}" for axis, value in self.trained.items())
        return self.name + (f"@{words}" if words else "")

    def was_trained_at(self, setting: GridSetting) -> bool | None:
        """Returns whether the model was trained at `setting`; None if unknown."""
        if self.base:
            return False
        if not self.trained:
            return setting.seen
        return all(setting.at.get(axis) == value for axis, value in self.trained.items())


@dataclass(frozen=True)
class GridCell:
    """Result of one model at one setting."""

    model: EvaluatedModel
    setting: GridSetting
    interval: Interval
    scores: Mapping[int, float]
    """score by seed"""
    run: str
    limits: Range | None = None
    """range of the metric, where it is known"""


def model(word: str) -> EvaluatedModel:
    """Parses a model from the command line. Raises UsageError."""
    name, at, conditions = word.rpartition("@")
    if not at or "=" not in conditions:
        return EvaluatedModel(word, {})
    return EvaluatedModel(
        name, dict(split_pair(condition, "-m NAME@AXIS=VALUE") for condition in conditions.split(","))
    )


def split_pair(word: str, form: str) -> tuple[str, str]:
    """Splits `NAME=VALUE`. Raises UsageError that names the expected form."""
    name, equals, value = word.partition("=")
    if not (equals and name.strip() and value.strip()):
        raise UsageError(f"{word!r} is not of the form {form}.")
    return name.strip(), value.strip()


def cell(model: EvaluatedModel, setting: GridSetting, records: Iterable[Record], metric: str, run: Path) -> GridCell:
    """Converts a finished run to a cell. Raises UsageError if its records lack the metric."""
    try:
        scores = {seed: score for (_, _, seed), score in game_scores(records, metric).items()}
    except KeyError:
        raise UsageError(f"{run} has no metric {metric!r}.") from None
    reward_modes = {record["reward_mode"] for record in records if not is_broken(record)}
    limits = known_ranges(setting.task.id, reward_modes.pop()).get(metric) if len(reward_modes) == 1 else None
    interval = mean_interval(list(scores.values()), limits=limits)
    return GridCell(model, setting, interval, scores, str(run), limits)
