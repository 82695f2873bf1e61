"""What a report is made of, read from disk and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envsuite.errors import DataError
from envsuite.types import knobs_json
from harness import records
from harness.generalization import grids
from harness.generalization.heatmap import layout
from harness.stats.compare import Run, read_run, refuse_unlike
from harness.suites import leaderboards

NEEDED = {"update": ("update",), "eval": ("update", "success", "low", "high", "n"), "sft": ()}
"""what is shown of a line of metrics.jsonl, by its kind"""


@dataclass(frozen=True)
class Curve:
    """A training run's metrics.jsonl: what it measured, update by update."""

    name: str
    updates: list[dict[str, Any]]
    """lines of kind 'update': the episodes it trained on"""
    evals: list[dict[str, Any]]
    """lines of kind 'eval': held-out seeds, unless a line says that there are none"""

    @property
    def points(self) -> list[dict[str, Any]]:
        """What is drawn: what was measured, else the updates in which an episode ended."""
        return self.evals or [line for line in self.updates if "success" in line]


@dataclass(frozen=True)
class Grid:
    """What envsuite-generalize measured: one value, its interval and n per place of the grid."""

    name: str
    metric: str
    models: list[str]
    row_axis: str
    column_axis: str
    rows: list[str]
    columns: list[str]
    cells: dict[tuple[str, str], dict[str, Any]]
    """value, low, high, n, seen (in training: True, False, or None where not said); what is missing was not run"""
    gaps: list[dict[str, Any]]
    """seen less unseen, per model"""


@dataclass
class ReportData:
    """Everything one report shows."""

    runs: list[Run] = field(default_factory=list)
    """broken episodes included: they are counted and shown, never scored"""
    curves: list[Curve] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)

    def groups(self) -> dict[tuple[str, str], list[Run]]:
        """Runs by (task, knobs): what may stand in one table."""
        found: dict[tuple[str, str], list[Run]] = {}
        for run in self.runs:
            found.setdefault((run.config["task"], knobs_json(run.config["knobs"])), []).append(run)
        return dict(sorted(found.items()))


def gather(paths: Sequence[Path], allow: Sequence[str] = ()) -> ReportData:
    """Reads run folders, results files, gzipped or not, boards, training folders, grids of envsuite-generalize, and whatever
    of these lies below a folder.

    Raises DataError where nothing is found or a file is damaged, UsageError where runs of one task differ in protocol.
    """
    found = ReportData()
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise DataError(f"There is no {path}: name a run folder, a results.jsonl, or a training folder.")
        folders = _folders(path)
        if not folders:
            raise DataError(
                f"{path} holds no finished run, board, metrics.jsonl or grid.json: name a folder that does, or finish its "
                "runs with --resume."
            )
        for folder in folders:
            if folder.resolve() in seen:
                continue
            seen.add(folder.resolve())
            if (folder / "metrics.jsonl").exists():
                found.curves.append(read_curve(folder / "metrics.jsonl"))
            elif (folder / "grid.json").exists():
                found.grids.append(read_grid(folder / "grid.json"))
            elif (folder / "metadata.json").exists():
                found.runs += read_board(folder)
            else:
                found.runs.append(read_run(folder, keep_broken=True))
    for runs in found.groups().values():
        # A model that played the first games of the floor's and the ceiling's: the same games, and each row says its n.
        same_start = len({run.config["seeds"][0] for run in runs}) == 1
        refuse_unlike(runs, [*allow, "seeds"] if same_start else allow)
    return found


def _folders(path: Path) -> list[Path]:
    if path.is_file():
        return [path.parent]
    if (path / "config.json").exists() or (path / "metrics.jsonl").exists():
        return [path]
    runs = [one for one in records.iterate_runs(path) if records.results_file(one).exists()]
    others = {one.parent for name in ("metrics.jsonl", "grid.json", "metadata.json") for one in path.glob(f"**/{name}")}
    return runs + sorted(others)


def read_board(folder: Path) -> list[Run]:
    """Reads a leaderboard's folder as runs, one per entry. Raises DataError naming the file."""
    board = leaderboards.read(folder)
    configs = {place: {**entry["identity"], "run_id": entry["run_id"]} for place, entry in board.entries.items()}
    return [Run(place[2], folder, config, board.of(place)) for place, config in configs.items()]


def read_curve(path: Path) -> Curve:
    """A learning curve, so far: the last line of a training that still runs may be half written, and is left out.

    Raises DataError naming file and line.
    """
    lines = records.read_lines(path, _line, "line of a training run's metrics", "remove it")
    kinds = {kind: [line for line in lines if line["kind"] == kind] for kind in NEEDED}
    return Curve(path.parent.name, kinds["update"], kinds["eval"])


def _line(one: dict[str, Any]) -> dict[str, Any]:
    for key in NEEDED[one["kind"]]:
        one[key]
    return one


def read_grid(path: Path) -> Grid:
    """A generalisation grid, laid out as everywhere. Raises DataError."""
    found = grids.read(path)
    rows, columns, cells = layout(found)
    first, *others = (one["name"] for one in found["axes"])
    return Grid(
        path.parent.name, found["metric"], found["models"], first, " × ".join(others), rows, columns,
        {place: {**one, "value": one["mean"]} for place, one in cells.items()}, found["gaps"],
    )  # fmt: skip
