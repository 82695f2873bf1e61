"""What a report is made of, read from disk and checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envsuite import registry
from envsuite.errors import DataError, UsageError
from envsuite.types import knobs_json
from harness import records
from harness.compare import Run, read_run, refuse_unlike


@dataclass(frozen=True)
class Curve:
    """A training run's metrics.jsonl: what it measured, update by update."""

    name: str
    updates: list[dict[str, Any]]
    """lines of kind 'update': the episodes it trained on"""
    evals: list[dict[str, Any]]
    """lines of kind 'eval': held-out seeds"""


@dataclass
class Material:
    """Everything one report shows."""

    runs: list[Run] = field(default_factory=list)
    """broken episodes included: they are counted and shown, never scored"""
    curves: list[Curve] = field(default_factory=list)

    def groups(self) -> dict[tuple[str, str], list[Run]]:
        """Runs by (task, knobs): what may stand in one table."""
        found: dict[tuple[str, str], list[Run]] = {}
        for run in self.runs:
            found.setdefault((run.config["task"], knobs_json(run.config["knobs"])), []).append(run)
        return dict(sorted(found.items()))


def gather(paths: Sequence[Path], allow: Iterable[str] = ()) -> Material:
    """Reads run folders, results files, training folders, and whatever of these lies below a folder.

    Raises DataError where nothing is found or a file is damaged, UsageError where runs of one task differ in protocol.
    """
    found = Material()
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise DataError(f"There is no {path}: name a run folder, a results.jsonl, or a training folder.")
        before = len(seen)
        for folder in _folders(path):
            if folder.resolve() in seen:
                continue
            seen.add(folder.resolve())
            if (folder / "metrics.jsonl").exists():
                found.curves.append(read_curve(folder / "metrics.jsonl"))
            else:
                found.runs.append(read_run(folder, keep_broken=True))
        if len(seen) == before and path.resolve() not in seen and not _folders(path):
            raise DataError(f"{path} holds no finished run and no metrics.jsonl: finish a run with --resume.")
    allowed = list(allow)
    for runs in found.groups().values():
        refuse_unlike(runs, allowed)
    return found


def _folders(path: Path) -> list[Path]:
    if path.is_file():
        return [path.parent]
    if (path / "config.json").exists() or (path / "metrics.jsonl").exists():
        return [path]
    runs = [one for one in records.iterate_runs(path) if (one / "results.jsonl").exists()]
    return runs + sorted(one.parent for one in path.glob("**/metrics.jsonl"))


def read_curve(path: Path) -> Curve:
    """A learning curve. Raises DataError naming file and line."""
    lines: dict[str, list[dict[str, Any]]] = {"update": [], "eval": [], "sft": []}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            found = json.loads(line)
            lines[found["kind"]].append(found)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}:{number} is no line of a training run's metrics ({type(error).__name__}): remove it."
            ) from error
    return Curve(path.parent.name, lines["update"], lines["eval"])


@dataclass(frozen=True)
class Grid:
    """Success over two knobs for one model; a missing cell was not run."""

    model: str
    family: str
    row_knob: str
    column_knob: str
    rows: list[Any]
    columns: list[Any]
    cells: dict[tuple[Any, Any], Run]


def grids(runs: Sequence[Run]) -> list[Grid]:
    """Heat maps: for every model and family, the pairs of knobs that vary while all others stay as they are."""
    by_model: dict[tuple[str, str], list[tuple[dict[str, Any], Run]]] = {}
    for run in runs:
        task = registry.TASKS.get(run.config["task"])
        if task is not None:
            settings = {**registry.knob_names(task), **run.config["knobs"]}
            by_model.setdefault((run.name, task.family), []).append((settings, run))
    found = []
    for (model, family), members in sorted(by_model.items()):
        names = sorted(set.intersection(*(set(settings) for settings, _ in members)))
        varied = [name for name in names if len({str(settings[name]) for settings, _ in members}) > 1]
        if len(varied) != 2:  # one varied knob is a table already, and three are no plane
            continue
        row, column = varied
        cells = {(settings[row], settings[column]): run for settings, run in members}
        if len(cells) == len(members):
            rows, columns = (sorted({settings[name] for settings, _ in members}) for name in varied)
            found.append(Grid(model, family, row, column, rows, columns, cells))
    return found

