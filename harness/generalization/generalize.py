"""Generalization grids: models evaluated at seen and unseen places, and the gap between the two.

A place is a task with knobs and a split. Axes span a grid of places; `generalization.toml` defines named splits into
seen and unseen places. The gap is the mean over seen places minus the mean over unseen ones, with equal weights. Its
interval combines the intervals of the places. If the places hold the same games in different words, the differences
are paired by game.
"""

from __future__ import annotations

import importlib.resources
import itertools
import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.core import declared_knobs
from envsuite.errors import UsageError, did_you_mean
from envsuite.types import Task
from harness.generalization.grids import SCHEMA
from harness.prompting.rewording import WORDINGS
from harness.records import Record
from harness.stats.aggregate import game_scores
from harness.stats.intervals import Interval, Range, interval_fields, mean_interval, paired, square_and_add
from harness.stats.ranges import known_ranges

SAME_GAMES = ("wording", "prompt-wording", "observation", "dialect")
"""axes that only change the wording of the same games"""


@dataclass(frozen=True)
class GridPlace:
    """Point of a grid: a task with knobs and split; `seen` tells whether it was in training (None: unknown)."""

    at: Mapping[str, str]
    task: Task
    split: str = ""
    knobs: Mapping[str, str] = field(default_factory=dict)
    prompt_wording: str = ""
    seen: bool | None = None


@dataclass(frozen=True)
class EvaluatedModel:
    """Model with its training places, written NAME@AXIS=VALUE,AXIS=VALUE."""

    name: str
    trained: Mapping[str, str]

    @property
    def label(self) -> str:
        words = ",".join(f"{axis}={value}" for axis, value in self.trained.items())
        return self.name + (f"@{words}" if words else "")

    def was_trained_at(self, place: GridPlace) -> bool | None:
        """Returns whether the model was trained at `place`; None if unknown."""
        if not self.trained:
            return place.seen
        return all(place.at.get(axis) == value for axis, value in self.trained.items())


@dataclass(frozen=True)
class GridCell:
    """Result of one model at one place."""

    model: EvaluatedModel
    place: GridPlace
    interval: Interval
    scores: Mapping[int, float]
    """score by seed"""
    run: str
    turns: float = math.nan
    limits: Range | None = None
    """range of the metric, where it is known"""


def model(word: str) -> EvaluatedModel:
    """Parses a model from the command line. Raises UsageError."""
    name, at, conditions = word.rpartition("@")
    if not at or "=" not in conditions:
        return EvaluatedModel(word, {})
    return EvaluatedModel(name, dict(_pair(condition, "-m NAME@AXIS=VALUE") for condition in conditions.split(",")))


def axes(words: Sequence[str]) -> dict[str, list[str]]:
    """Parses axes `NAME=V1,V2,...` into values by name, in order. Raises UsageError."""
    spans: dict[str, list[str]] = {}
    for word in words:
        name, text = _pair(word, "--axis NAME=V1,V2,...")
        values = [value.strip() for value in text.split(",") if value.strip()]
        if name in spans:
            raise UsageError(f"--axis {name} is given twice: put all its values into one.")
        if len(values) != len(set(values)) or not values:
            raise UsageError(f"--axis {word}: give one or more values, none of them twice.")
        spans[name] = values
    return spans


def _pair(word: str, form: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not (equals and name.strip() and value.strip()):
        raise UsageError(f"{word!r} is not of the form {form}.")
    return name.strip(), value.strip()


def grid(env: str, spans: Mapping[str, Sequence[str]]) -> list[GridPlace]:
    """Returns the places for every combination of axis values. Raises UsageError or BadKnob for invalid ones.

    Axes are knobs of the task `env`, `split`, `task` (which replaces `env`) and `prompt-wording`.
    """
    places = []
    for values in itertools.product(*spans.values()):
        at = dict(zip(spans, values, strict=True))
        tasks = registry.tasks(at.get("task", env))
        if len(tasks) != 1:
            raise UsageError(f"{at.get('task', env)!r} matches {len(tasks)} tasks: a grid needs exactly one.")
        knobs = {name: value for name, value in at.items() if name not in ("split", "task", "prompt-wording")}
        declared = declared_knobs(registry.env_class(tasks[0]))
        for name in knobs:
            if name not in declared:
                known = [*declared, "split", "task", "prompt-wording"]
                raise UsageError(
                    f"--axis {name}: {tasks[0].id} has no such knob; axes are {', '.join(known)}."
                    + did_you_mean(name, known)
                )
        wording = at.get("prompt-wording", "")
        if wording and wording not in WORDINGS:
            raise UsageError(
                f"No wording {wording!r}: there are {', '.join(WORDINGS)}.{did_you_mean(wording, WORDINGS)}"
            )
        registry.overrides(tasks[0], knobs)
        places.append(GridPlace(at, tasks[0], at.get("split", ""), knobs, wording))
    return places


def splits() -> dict[str, dict[str, Any]]:
    """Returns the named splits into seen and unseen places from `generalization.toml`."""
    return tomllib.loads((importlib.resources.files("harness.generalization") / "generalization.toml").read_text())


def split_places(name: str) -> list[GridPlace]:
    """Returns the places of a named split. Raises UsageError with the closest name."""
    known = splits()
    if name not in known:
        raise UsageError(f"No split {name!r}: there are {', '.join(known)}.{did_you_mean(name, known)}")
    places = []
    for side in ("seen", "unseen"):
        for label, fields in known[name][side].items():
            place = f"{label} ({side})"
            task = registry.TASKS[fields["task"]]
            places.append(
                GridPlace({"split": place}, task, fields.get("split", ""), fields.get("knobs", {}), seen=side == "seen")
            )
    return places


def cell(model: EvaluatedModel, place: GridPlace, records: Iterable[Record], metric: str, run: Path) -> GridCell:
    """Converts a finished run to a cell. Raises UsageError if its records lack the metric."""
    try:
        scores = {seed: score for (_, _, seed), score in game_scores(records, metric).items()}
    except KeyError:
        raise UsageError(f"{run} has no metric {metric!r}.") from None
    scored = [record for record in records if record["seed"] in scores and record["stop_reason"] != "broken"]
    reward_modes = {record["reward_mode"] for record in scored}
    limits = known_ranges(place.task.id, reward_modes.pop()).get(metric) if len(reward_modes) == 1 else None
    interval = mean_interval(list(scores.values()), limits=limits)
    turns = sum(record["num_turns"] for record in scored) / len(scored) if scored else math.nan
    return GridCell(model, place, interval, scores, str(run), turns, limits)


@dataclass(frozen=True)
class GeneralizationGap:
    """Difference between seen and unseen places for one model."""

    model: EvaluatedModel
    seen: int
    unseen: int
    interval: Interval
    paired: bool


def gaps(cells: Sequence[GridCell]) -> list[GeneralizationGap]:
    """Returns the generalization gap of each model with both seen and unseen cells."""
    result = []
    for label in dict.fromkeys(cell.model.label for cell in cells):
        own = [cell for cell in cells if cell.model.label == label and cell.scores]
        seen = [cell for cell in own if cell.model.was_trained_at(cell.place) is True]
        unseen = [cell for cell in own if cell.model.was_trained_at(cell.place) is False]
        if not (seen and unseen):
            continue
        common = set.intersection(*(set(cell.scores) for cell in own))
        same_games = _same_games(own) and all(len(cell.scores) == len(common) for cell in own)
        seen_intervals, unseen_intervals = ([cell.interval for cell in side] for side in (seen, unseen))
        if same_games:
            deltas = [
                _mean(cell.scores[seed] for cell in seen) - _mean(cell.scores[seed] for cell in unseen)
                for seed in sorted(common)
            ]
            interval = paired(deltas, own[0].limits)
        else:
            interval = square_and_add(seen_intervals, unseen_intervals)
        result.append(GeneralizationGap(own[0].model, len(seen), len(unseen), interval, same_games))
    return result


def _same_games(cells: Sequence[GridCell]) -> bool:
    """Returns True if the places differ only in wording."""
    kinds = {
        (cell.place.task.id, cell.place.split, *sorted((k, v) for k, v in cell.place.at.items() if k not in SAME_GAMES))
        for cell in cells
    }
    return len(kinds) == 1


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return float(sum(numbers) / len(numbers))


def names_of(models: Sequence[EvaluatedModel], places: Sequence[GridPlace]) -> list[dict[str, Any]]:
    """Returns the axes of the grid with their values, in order; `model` comes first if there are several."""
    listed_axes: list[dict[str, Any]] = []
    if len(models) > 1:
        listed_axes.append({"name": "model", "values": [model.label for model in models]})
    for name in dict.fromkeys(name for place in places for name in place.at):
        listed_axes.append({"name": name, "values": list(dict.fromkeys(place.at[name] for place in places))})
    return listed_axes


def write_grid(
    folder: Path, metric: str, models: Sequence[EvaluatedModel], places: Sequence[GridPlace], cells: Sequence[GridCell]
) -> dict[str, Any]:
    """Writes `grid.json` and `heatmap.svg` with the cells played so far. Returns the contents of `grid.json`.

    Runs are stored as paths relative to `folder`.
    """
    from harness.generalization.heatmap import svg

    several = len(models) > 1
    contents = {
        "schema_version": SCHEMA,
        "metric": metric,
        "models": [model.label for model in models],
        "axes": names_of(models, places),
        "cells": [
            {
                "at": {**({"model": cell.model.label} if several else {}), **cell.place.at},
                **interval_fields(cell.interval),
                "seen": cell.model.was_trained_at(cell.place),
                "task": cell.place.task.id,
                "knobs": dict(cell.place.knobs),
                "run": Path(cell.run).relative_to(folder).as_posix(),
            }
            for cell in cells
        ],
        "gaps": [
            {
                "model": gap.model.label,
                "seen": gap.seen,
                "unseen": gap.unseen,
                "paired": gap.paired,
                **interval_fields(gap.interval),
            }
            for gap in gaps(cells)
        ],
    }
    write_atomically(folder / "grid.json", json.dumps(contents, indent=2) + "\n")
    write_atomically(folder / "heatmap.svg", svg(contents))
    return contents
