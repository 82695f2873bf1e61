"""Reads and checks everything that a report shows: runs, leaderboards, learning curves and grids.

`gather` is the entry point. The folders may come from anybody: what is damaged raises DataError with one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envsuite.errors import DataError
from envsuite.types import knobs_json
from harness import records
from harness.generalization import grids
from harness.stats.compare import Run, read_run, unlike
from harness.suites import leaderboards

NUMBER = (int, float)
LINES: dict[str, dict[str, Any]] = {
    "update": {"update": int},
    "eval": {**dict.fromkeys(("success", "low", "high"), NUMBER), "update": int, "n": int},
    "sft": {},
}
"""fields of a line of metrics.jsonl that are shown, by its kind"""


@dataclass(frozen=True)
class Curve:
    """The learning curve of a training run, from its metrics.jsonl."""

    name: str
    updates: list[dict[str, Any]]
    """lines of kind 'update': the episodes of training"""
    evals: list[dict[str, Any]]
    """lines of kind 'eval': held-out seeds, unless a line says otherwise"""

    @property
    def points(self) -> list[dict[str, Any]]:
        """The evaluations; without any, the updates in which an episode ended."""
        return self.evals or [line for line in self.updates if line.get("success") is not None]


@dataclass(frozen=True)
class MeasuredGrid:
    """A grid of envsuite generalize: value, interval and n of each cell."""

    name: str
    metric: str
    models: list[str]
    row_axis: str
    column_axis: str
    rows: list[str]
    columns: list[str]
    cells: dict[tuple[str, str], dict[str, Any]]
    """value, low, high, n, seen (in training: True, False, or None if unknown); cells that were not run are missing"""
    gaps: list[dict[str, Any]]
    """seen minus unseen, per model"""


@dataclass
class ReportData:
    """Everything that one report shows."""

    runs: list[Run] = field(default_factory=list)
    """all runs; broken episodes are counted and shown, but never scored"""
    curves: list[Curve] = field(default_factory=list)
    grids: list[MeasuredGrid] = field(default_factory=list)
    allow: tuple[str, ...] = ()
    """settings that may differ between the runs of one table"""

    def groups(self) -> list[list[Run]]:
        """Returns the runs of each table: one task, one setting, one protocol."""
        by_task: dict[tuple[str, str], list[Run]] = {}
        for run in self.runs:
            by_task.setdefault((run.config["task"], knobs_json(run.config["knobs"])), []).append(run)
        return [group for _, runs in sorted(by_task.items()) for group in _by_protocol(runs, self.allow)]


def _by_protocol(runs: Sequence[Run], allow: Sequence[str]) -> list[list[Run]]:
    """Splits runs of one task into groups of equal protocol. Players without a model join every group that they match.

    Runs that start at the same seed may differ in their number of games, because each row shows its n.
    """
    groups: list[list[Run]] = []
    for run in sorted(runs, key=lambda run: not run.config.get("prompting")):
        matching = [group for group in groups if all(_alike(run, member, allow) for member in group)]
        if run.config.get("prompting"):
            matching = matching[:1]
        for group in matching:
            group.append(run)
        if not matching:
            groups.append([run])
    order = {id(run): number for number, run in enumerate(runs)}
    return [sorted(group, key=lambda run: order[id(run)]) for group in groups]


def _alike(first: Run, second: Run, allow: Sequence[str]) -> bool:
    same_start = first.config["seeds"][0] == second.config["seeds"][0]
    return not unlike(first, second, [*allow, "seeds"] if same_start else allow)


def gather(paths: Sequence[Path], allow: Sequence[str] = ()) -> ReportData:
    """Reads run folders, results files, boards, training folders and grids, and whatever of these is below a folder.

    Raises DataError if a path holds none of them, or a file is damaged.
    """
    data = ReportData(allow=tuple(allow))
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise DataError(f"There is no {path}: name a run folder, a results.jsonl, or a training folder.")
        folders = _folders(path)
        if not folders:
            raise DataError(
                f"{path} holds no finished run, board, metrics.jsonl or grid.json: name a folder that does, or finish "
                "its runs with --resume."
            )
        for folder in folders:
            if folder.resolve() not in seen:
                seen.add(folder.resolve())
                _read_folder(folder, data)
    return data


def _read_folder(folder: Path, data: ReportData) -> None:
    if (folder / "metrics.jsonl").exists():
        data.curves.append(read_curve(folder / "metrics.jsonl"))
    elif (folder / "grid.json").exists():
        data.grids.append(read_grid(folder / "grid.json"))
    elif (folder / "metadata.json").exists():
        data.runs += read_board(folder)
    else:
        data.runs.append(read_run(folder, keep_broken=True))


def _folders(path: Path) -> list[Path]:
    """Returns the folders at or below `path` that hold something to show."""
    if path.is_file():
        return [path.parent]
    if (path / "config.json").exists() or (path / "metrics.jsonl").exists():
        return [path]
    runs = [folder for folder in records.iterate_runs(path) if records.results_file(folder).exists()]
    names = ("metrics.jsonl", "grid.json", "metadata.json")
    folders = {file.parent for name in names for file in path.glob(f"**/{name}")}
    return runs + sorted(folders)


def read_board(folder: Path) -> list[Run]:
    """Reads a leaderboard's folder as one run per entry. Raises DataError with the file's name."""
    board = leaderboards.read(folder)
    runs = []
    for key, entry in board.entries.items():
        config = {**entry["identity"], "run_id": entry["run_id"]}
        runs.append(Run(key[2], folder, config, board.of(key)))
    return runs


def read_curve(path: Path) -> Curve:
    """Reads a learning curve, without a last line that is still being written. Raises DataError with file and line."""
    lines = records.read_lines(path, _line, "line of a training run's metrics", "remove it")
    kinds = {kind: [line for line in lines if line["kind"] == kind] for kind in LINES}
    return Curve(path.parent.name, kinds["update"], kinds["eval"])


def _line(line: dict[str, Any]) -> dict[str, Any]:
    records.check_types(line, LINES[line["kind"]])
    if line.get("success") is not None:
        records.check_types(line, {"success": NUMBER})
    return line


def read_grid(path: Path) -> MeasuredGrid:
    """Reads a generalisation grid. Raises DataError."""
    grid = grids.read(path)
    rows, columns, cells = grids.layout(grid)
    down, across = grids.axis_names(grid)
    return MeasuredGrid(
        name=path.parent.name,
        metric=grid["metric"],
        models=grid["models"],
        row_axis=down,
        column_axis=across,
        rows=rows,
        columns=columns,
        cells={position: {**cell, "value": cell["mean"]} for position, cell in cells.items()},
        gaps=grid["gaps"],
    )
