"""Comparison of a stored grid with the records of its runs, which are kept beside `grid.json`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envsuite import registry
from envsuite.errors import EnvsuiteError
from harness import records
from harness.generalization import cells, grids
from harness.generalization.cells import EvaluatedModel, GridCell, GridSetting
from harness.generalization.generalize import conclusions
from harness.stats.intervals import interval_fields


def faults(folder: Path) -> Iterator[str]:
    """Yields where `grid.json` contradicts the records of its runs. Raises DataError if a file is damaged.

    Every cell must have its run folder, whose records are of the cell's task, knobs and model and give its numbers. The
    differences of the grid must follow from its cells. Whether the records are true is checked by replaying them.
    """
    grid = grids.read(folder / "grid.json")
    rebuilt: list[GridCell] = []
    for stored in grid["cells"]:
        name = ", ".join(stored["at"].values())
        try:
            cell = _cell(folder, grid, stored)
        except (EnvsuiteError, LookupError, TypeError, ValueError) as error:
            yield f"cell {name}: {error}"
            continue
        if difference := _difference(stored, interval_fields(cell.interval)):
            yield f"cell {name}: {difference}"
        if stored["seen"] != cell.model.was_trained_at(cell.setting):
            yield f"cell {name}: seen is {stored['seen']}, and the model's label says otherwise"
        rebuilt.append(cell)
    if len(rebuilt) < len(grid["cells"]):
        return
    for kind, expected in conclusions(rebuilt).items():
        if difference := _difference({kind: grid.get(kind, [])}, {kind: expected}):
            yield difference


def _cell(folder: Path, grid: dict[str, Any], stored: dict[str, Any]) -> GridCell:
    """Computes a cell again from the records of its run. Raises ValueError if these are of something else."""
    label = stored["at"].get("model", grid["models"][0])
    model = dataclasses.replace(cells.model(label), base=label in grid.get("base", []))
    task = registry.TASKS[stored["task"]]
    at = {axis: value for axis, value in stored["at"].items() if axis != "model"}
    seen = None if model.trained else stored["seen"]
    setting = GridSetting(at, task, at.get("split", ""), stored["knobs"], at.get("prompt-wording", ""), seen)
    run = _inside(folder, stored["run"])
    rows = records.read_results(records.results_file(run))
    for record in rows:
        _check(record, model, stored)
    return cells.cell(model, setting, rows, grid["metric"], run)


def _inside(folder: Path, relative: str) -> Path:
    """Returns the run folder of a cell. Raises ValueError if it is outside the grid's folder or has no records."""
    run = folder / relative
    if not run.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"the run folder {relative} is outside the grid's folder")
    if not records.results_file(run).exists():
        raise ValueError(f"{run} holds no records of episodes")
    return run


def _check(record: records.Record, model: EvaluatedModel, stored: dict[str, Any]) -> None:
    if record["task"] != stored["task"]:
        raise ValueError(f"its records are of {record['task']}, not of {stored['task']}")
    if record["model"] != model.name:
        raise ValueError(f"its records are of {record['model']}, not of {model.name}")
    for name, value in stored["knobs"].items():
        if str(record["knobs"].get(name, value)) != str(value):
            raise ValueError(f"its records have {name}={record['knobs'][name]}, not {value}")


def _difference(stored: Any, expected: Any, path: str = "") -> str:
    """Describes the first difference between stored values and those computed again; '' if there is none."""
    if isinstance(expected, dict) and isinstance(stored, dict):
        for name, value in expected.items():
            if text := _difference(stored.get(name), value, f"{path}.{name}" if path else name):
                return text
        return ""
    if isinstance(expected, list) and isinstance(stored, list):
        if len(stored) != len(expected):
            return f"{path} has {len(stored)} entries, and its records give {len(expected)}"
        for index, (first, second) in enumerate(zip(stored, expected, strict=True)):
            if text := _difference(first, second, f"{path}[{index}]"):
                return text
        return ""
    numbers = isinstance(stored, (int, float)) and isinstance(expected, (int, float))
    same = math.isclose(stored, expected, abs_tol=1e-9) if numbers else stored == expected
    return "" if same else f"{path} is {stored!r}, and its records give {expected!r}"
