"""Generalisation: models over a grid of places, what each saw in training, and the gap to what it did not see.

A place is a task with knobs and a split. Axes span a grid of places; `generalization.toml` names splits into seen and
unseen places. The gap is the mean over seen places less the mean over unseen ones, every place counting the same; its
interval resamples games within each place, or, where a place's games all ended alike, adds up the places' own intervals.
Where places hold the very same games in other words, the differences are taken game by game.
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

import numpy as np

from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.core import declared_knobs
from envsuite.errors import UsageError, did_you_mean
from envsuite.types import Task
from harness.generalization.grids import SCHEMA
from harness.prompting.rewording import WORDINGS
from harness.records import Record
from harness.stats.aggregate import difference, game_scores
from harness.stats.intervals import Interval, apart, bootstrap, paired, success_interval

SAME_GAMES = ("wording", "prompt-wording", "observation", "dialect")
"""axes that tell the same games in other words"""


@dataclass(frozen=True)
class Place:
    """A point of the grid: a task at a setting, and whether training holds it ('' where nobody said)."""

    at: Mapping[str, str]
    task: Task
    split: str = ""
    knobs: Mapping[str, str] = field(default_factory=dict)
    prompt_wording: str = ""
    seen: bool | None = None


@dataclass(frozen=True)
class Model:
    """A model, and where it was trained: NAME@AXIS=VALUE,AXIS=VALUE."""

    name: str
    trained: Mapping[str, str]

    @property
    def label(self) -> str:
        words = ",".join(f"{axis}={value}" for axis, value in self.trained.items())
        return self.name + (f"@{words}" if words else "")

    def saw(self, place: Place) -> bool | None:
        """Whether `place` is as in training; None where neither model nor place say."""
        if not self.trained:
            return place.seen
        return all(place.at.get(axis) == value for axis, value in self.trained.items())


@dataclass(frozen=True)
class Cell:
    """What one model did at one place."""

    model: Model
    place: Place
    interval: Interval
    scores: Mapping[int, float]
    """seed -> score: the games"""
    run: str
    turns: float = math.nan


def model(word: str) -> Model:
    """A model as a command line spells it. Raises UsageError."""
    name, at, conditions = word.rpartition("@")
    if not at or "=" not in conditions:
        return Model(word, {})
    return Model(name, dict(_pair(one, "-m NAME@AXIS=VALUE") for one in conditions.split(",")))


def axes(words: Sequence[str]) -> dict[str, list[str]]:
    """`NAME=V1,V2` -> its values, in the order given. Raises UsageError."""
    found: dict[str, list[str]] = {}
    for word in words:
        name, text = _pair(word, "--axis NAME=V1,V2,...")
        values = [value.strip() for value in text.split(",") if value.strip()]
        if name in found:
            raise UsageError(f"--axis {name} is given twice: put all its values into one.")
        if len(values) != len(set(values)) or not values:
            raise UsageError(f"--axis {word}: give one or more values, none of them twice.")
        found[name] = values
    return found


def _pair(word: str, form: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not (equals and name.strip() and value.strip()):
        raise UsageError(f"{word!r} is not of the form {form}.")
    return name.strip(), value.strip()


def grid(env: str, spans: Mapping[str, Sequence[str]]) -> list[Place]:
    """Every combination of the axes' values on `env`'s task. Raises UsageError or BadKnob before anything is played.

    Axes are knobs of the task, and `split`, `task` (other environments, which makes `env` needless), `prompt-wording`.
    """
    found = []
    for values in itertools.product(*spans.values()):
        at = dict(zip(spans, values, strict=True))
        named = registry.tasks(at.get("task", env))
        if len(named) != 1:
            raise UsageError(f"{at.get('task', env)!r} names {len(named)} tasks; a grid is spanned on one.")
        knobs = {name: value for name, value in at.items() if name not in ("split", "task", "prompt-wording")}
        declared = declared_knobs(registry.env_class(named[0]))
        for name in knobs:
            if name not in declared:
                known = [*declared, "split", "task", "prompt-wording"]
                raise UsageError(
                    f"--axis {name}: {named[0].id} has no such knob; axes are {', '.join(known)}."
                    + did_you_mean(name, known)
                )
        wording = at.get("prompt-wording", "")
        if wording and wording not in WORDINGS:
            raise UsageError(
                f"No wording {wording!r}: there are {', '.join(WORDINGS)}.{did_you_mean(wording, WORDINGS)}"
            )
        registry.overrides(named[0], knobs)
        found.append(Place(at, named[0], at.get("split", ""), knobs, wording))
    return found


def splits() -> dict[str, dict[str, Any]]:
    """The named splits into seen and unseen, from the package's own `generalization.toml`."""
    return tomllib.loads((importlib.resources.files("harness.generalization") / "generalization.toml").read_text())


def split_places(name: str) -> list[Place]:
    """The places of a named split. Raises UsageError naming the nearest."""
    known = splits()
    if name not in known:
        raise UsageError(f"No split {name!r}: there are {', '.join(known)}.{did_you_mean(name, known)}")
    found = []
    for side in ("seen", "unseen"):
        for label, one in known[name][side].items():
            place = f"{label} ({side})"
            task = registry.TASKS[one["task"]]
            found.append(Place({"split": place}, task, one.get("split", ""), one.get("knobs", {}), seen=side == "seen"))
    return found


def cell(who: Model, place: Place, records: Iterable[Record], metric: str, run: Path) -> Cell:
    """One finished run as a cell. Raises UsageError where its records lack the metric."""
    try:
        scores = {seed: score for (_, _, seed), score in game_scores(records, metric).items()}
    except KeyError:
        raise UsageError(f"{run} has no metric {metric!r}.") from None
    scored = [one for one in records if one["seed"] in scores and one["stop_reason"] != "broken"]
    if metric == "success":
        interval = success_interval([bool(one["success"]) for one in scored], [one["seed"] for one in scored])
    else:
        interval = bootstrap(list(scores.values()))
    turns = sum(one["num_turns"] for one in scored) / len(scored) if scored else math.nan
    return Cell(who, place, interval, scores, str(run), turns)


@dataclass(frozen=True)
class Gap:
    """Seen less unseen, of one model."""

    model: Model
    seen: int
    unseen: int
    interval: Interval
    paired: bool


def gaps(cells: Sequence[Cell]) -> list[Gap]:
    """The generalisation gap of each model that has cells of both kinds."""
    found = []
    for who in dict.fromkeys(one.model.label for one in cells):
        mine = [one for one in cells if one.model.label == who and one.scores]
        seen = [one for one in mine if one.model.saw(one.place) is True]
        unseen = [one for one in mine if one.model.saw(one.place) is False]
        if not (seen and unseen):
            continue
        common = set.intersection(*(set(one.scores) for one in mine))
        same = _same_games(mine) and all(len(one.scores) == len(common) for one in mine)
        here, there = ([one.interval for one in side] for side in (seen, unseen))
        if same:
            deltas = [
                _mean(one.scores[seed] for one in seen) - _mean(one.scores[seed] for one in unseen)
                for seed in sorted(common)
            ]
            interval = paired(deltas, here, there)
        elif any(len(set(one.scores.values())) == 1 for one in mine):
            interval = apart(here, there)
        else:
            scores = [[np.array(list(one.scores.values())) for one in side] for side in (seen, unseen)]
            interval = difference(*scores)
        found.append(Gap(mine[0].model, len(seen), len(unseen), interval, same))
    return found


def _same_games(cells: Sequence[Cell]) -> bool:
    """Whether the places differ in words alone."""
    kinds = {
        (one.place.task.id, one.place.split, *sorted((k, v) for k, v in one.place.at.items() if k not in SAME_GAMES))
        for one in cells
    }
    return len(kinds) == 1


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return float(sum(found) / len(found))


def names_of(models: Sequence[Model], places: Sequence[Place]) -> list[dict[str, Any]]:
    """The grid's axes in order, with their values in order; `model` first where there are several."""
    found: list[dict[str, Any]] = []
    if len(models) > 1:
        found.append({"name": "model", "values": [one.label for one in models]})
    for name in dict.fromkeys(name for place in places for name in place.at):
        found.append({"name": name, "values": list(dict.fromkeys(place.at[name] for place in places))})
    return found


def write_grid(
    folder: Path, metric: str, models: Sequence[Model], places: Sequence[Place], cells: Sequence[Cell]
) -> dict[str, Any]:
    """`grid.json`, and beside it `heatmap.svg`, as far as the grid has been played. Returns what was written; runs are
    named by their place in `folder`.
    """
    from harness.generalization.heatmap import svg

    several = len(models) > 1
    found = {
        "schema_version": SCHEMA,
        "metric": metric,
        "models": [one.label for one in models],
        "axes": names_of(models, places),
        "cells": [
            {
                "at": {**({"model": one.model.label} if several else {}), **one.place.at},
                **_spelt(one.interval),
                "seen": one.model.saw(one.place),
                "task": one.place.task.id,
                "knobs": dict(one.place.knobs),
                "run": Path(one.run).relative_to(folder).as_posix(),
            }
            for one in cells
        ],
        "gaps": [
            {
                "model": one.model.label,
                "seen": one.seen,
                "unseen": one.unseen,
                "paired": one.paired,
                **_spelt(one.interval),
            }
            for one in gaps(cells)
        ],
    }
    write_atomically(folder / "grid.json", json.dumps(found, indent=2) + "\n")
    write_atomically(folder / "heatmap.svg", svg(found))
    return found


def _spelt(interval: Interval) -> dict[str, Any]:
    """mean, low, high, n; null for what is not known."""
    plain = {key: None if value != value else value for key, value in interval._asdict().items()}
    return {"mean": plain.pop("value"), **plain}
