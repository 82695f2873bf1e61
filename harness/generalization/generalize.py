"""Generalization grids: settings spanned by axes or named in `generalization.toml`, and the files of a finished grid.

A setting is a task with knobs and a split. `cells` defines settings, models and cells; `transfer` computes what a
grid says about generalization; `grid_check` compares a stored grid with its records.
"""

from __future__ import annotations

import importlib.resources
import itertools
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.core import declared_knobs
from envsuite.errors import UsageError, did_you_mean
from harness.generalization.cells import EvaluatedModel, GridCell, GridSetting, split_pair
from harness.generalization.grids import SCHEMA
from harness.generalization.transfer import gaps, is_trained, transfers
from harness.prompting.rewording import WORDINGS
from harness.stats.intervals import interval_fields


def axes(words: Sequence[str]) -> dict[str, list[str]]:
    """Parses axes `NAME=V1,V2,...` into values by name, in order. Raises UsageError."""
    spans: dict[str, list[str]] = {}
    for word in words:
        name, text = split_pair(word, "--axis NAME=V1,V2,...")
        values = [value.strip() for value in text.split(",") if value.strip()]
        if name in spans:
            raise UsageError(f"--axis {name} is given twice: put all its values into one.")
        if len(values) != len(set(values)) or not values:
            raise UsageError(f"--axis {word}: give one or more values, none of them twice.")
        spans[name] = values
    return spans


def grid(env: str, spans: Mapping[str, Sequence[str]]) -> list[GridSetting]:
    """Returns the settings for every combination of axis values. Raises UsageError or BadKnob for invalid ones.

    Axes are knobs of the task `env`, `split`, `task` (which replaces `env`) and `prompt-wording`.
    """
    settings = []
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
        settings.append(GridSetting(at, tasks[0], at.get("split", ""), knobs, wording))
    return settings


def splits() -> dict[str, dict[str, Any]]:
    """Returns the named splits into seen and unseen settings from `generalization.toml`."""
    return tomllib.loads((importlib.resources.files("harness.generalization") / "generalization.toml").read_text())


def split_settings(name: str) -> list[GridSetting]:
    """Returns the settings of a named split. Raises UsageError with the closest name."""
    known = splits()
    if name not in known:
        raise UsageError(f"No split {name!r}: there are {', '.join(known)}.{did_you_mean(name, known)}")
    settings = []
    for side in ("seen", "unseen"):
        for label, fields in known[name][side].items():
            setting = f"{label} ({side})"
            task = registry.TASKS[fields["task"]]
            settings.append(
                GridSetting(
                    {"split": setting}, task, fields.get("split", ""), fields.get("knobs", {}), seen=side == "seen"
                )
            )
    return settings


def names_of(models: Sequence[EvaluatedModel], settings: Sequence[GridSetting]) -> list[dict[str, Any]]:
    """Returns the axes of the grid with their values, in order; `model` comes first if there are several."""
    listed_axes: list[dict[str, Any]] = []
    if len(models) > 1:
        listed_axes.append({"name": "model", "values": [model.label for model in models]})
    for name in dict.fromkeys(name for setting in settings for name in setting.at):
        listed_axes.append({"name": name, "values": list(dict.fromkeys(setting.at[name] for setting in settings))})
    return listed_axes


def write_grid(
    folder: Path,
    metric: str,
    models: Sequence[EvaluatedModel],
    settings: Sequence[GridSetting],
    cells: Sequence[GridCell],
) -> dict[str, Any]:
    """Writes `grid.json` with the cells played so far, and returns its contents.

    Runs are stored as paths relative to `folder`.
    """
    several = len(models) > 1
    contents = {
        "schema_version": SCHEMA,
        "metric": metric,
        "models": [model.label for model in models],
        "base": [model.label for model in models if model.base],
        "axes": names_of(models, settings),
        "cells": [
            {
                "at": {**({"model": cell.model.label} if several else {}), **cell.setting.at},
                **interval_fields(cell.interval),
                "seen": cell.model.was_trained_at(cell.setting),
                "task": cell.setting.task.id,
                "knobs": dict(cell.setting.knobs),
                "run": Path(cell.run).relative_to(folder).as_posix(),
            }
            for cell in cells
        ],
        **conclusions(cells),
    }
    write_atomically(folder / "grid.json", json.dumps(contents, indent=2) + "\n")
    return contents


def conclusions(cells: Sequence[GridCell]) -> dict[str, Any]:
    """Returns the `gaps` and `transfers` of a grid as JSON values."""
    return {
        "gaps": [
            {
                "model": gap.model.label,
                "seen": gap.seen,
                "unseen": gap.unseen,
                "paired": gap.paired,
                "trained": is_trained(gap.model),
                **interval_fields(gap.interval),
                "adjusted": interval_fields(gap.adjusted) if gap.adjusted else None,
            }
            for gap in gaps(cells)
        ],
        "transfers": [
            {
                "model": transfer.model.label,
                "minus": transfer.reference.label,
                "kind": transfer.kind,
                "at": dict(transfer.at),
                **interval_fields(transfer.interval),
            }
            for transfer in transfers(cells)
        ],
    }
