"""Tables of published results: columns, rows and cells, with a verdict on each cell."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from envsuite import registry
from envsuite.types import knobs_json
from harness.stats.estimates import Estimate, pooled
from harness.suites.published_numbers import PublishedNumber
from harness.suites.verdicts import MARGIN, NOT_COMPARABLE, NOT_RUN, CellVerdict, Pair, judge


@dataclass(frozen=True)
class TableCell:
    """A number, its likelihood, and its interval and number of games as far as they are known."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    estimate: Estimate | None = None
    over_splits: float | None = None
    """standard deviation over splits of the data"""
    seeds: int = 1
    """training seeds that are pooled"""
    printed: PublishedNumber | None = None
    """the source of a published cell"""
    published_prompt: bool = False
    """the model read the published words of the suite's protocol"""


@dataclass(frozen=True)
class Column:
    """A printed column and the task that is played for it. `task` is '' if no task here corresponds to it."""

    name: str
    task: str = ""
    knobs: Mapping[str, Any] = field(default_factory=dict)
    task_type: str = ""
    """if set, only games of this type count"""

    @property
    def key(self) -> tuple[str, str]:
        """(task, canonical knobs)"""
        return self.task, knobs_json(registry.overrides(registry.TASKS[self.task], dict(self.knobs)))


@dataclass(frozen=True)
class Row:
    """A row of a table. `models` of a published row are our models for it, one per training seed."""

    label: str
    ours: bool
    cells: dict[str, TableCell]
    models: tuple[str, ...] = ()
    command: str = ""
    cost: str = ""
    trained: bool = False
    """the method of a published row trains"""


@dataclass(frozen=True)
class PaperTable:
    """A published table and our rows."""

    name: str
    title: str
    metric: str
    suite: str
    columns: list[Column]
    rows: list[Row]
    notes: list[str]
    footnotes: dict[tuple[str, str], str]
    """(row, column) -> evidence that contradicts the printed number"""
    left_out: list[str]
    """runs of the columns' tasks under another protocol, with the difference"""
    small: list[str] = field(default_factory=list)
    """small training studies that compare the same methods with other models and budgets"""
    scale: float = 1.0
    """factor from printed numbers to scores in [0, 1]"""
    margin: float = MARGIN
    obstacles: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(row, column) -> why the published cell cannot be compared with ours"""
    unlike: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(our model, column) -> in which setting its only run departs from the suite"""

    def measured(self, row: Row) -> Row | None:
        """Returns our row for a published row. Several training seeds are pooled, each seed being a cluster."""
        ours = [candidate for candidate in self.rows if candidate.ours and candidate.label in row.models]
        if len(ours) < 2:
            return ours[0] if ours else None
        cells = {}
        for column in self.columns:
            members = [candidate.cells[column.name] for candidate in ours if column.name in candidate.cells]
            if members:
                cells[column.name] = _pool(members)
        return Row(", ".join(candidate.label for candidate in ours), True, cells)

    @functools.cached_property
    def verdicts(self) -> dict[tuple[str, str], CellVerdict]:
        """The verdict on each published cell, by (row, column)."""
        pairs: dict[tuple[str, str], Pair] = {}
        verdicts: dict[tuple[str, str], CellVerdict] = {}
        for row in self.rows:
            if row.ours:
                continue
            ours = self.measured(row)
            for name, cell in row.cells.items():
                place = row.label, name
                mine = ours.cells.get(name) if ours else None
                if mine is not None:
                    obstacle = self.obstacles.get(place, "")
                    pairs[place] = Pair(
                        mine.estimate, cell.estimate, cell.value, obstacle, mine.seeds, mine.published_prompt
                    )
                    continue
                departures = [self.unlike[model, name] for model in row.models if (model, name) in self.unlike]
                verdicts[place] = (
                    CellVerdict(NOT_COMPARABLE, f"protocol: {departures[0]}") if departures else CellVerdict(NOT_RUN)
                )
        return {**verdicts, **judge(pairs, self.margin)}

    def status(self, row: Row, column: str) -> str:
        """Returns the word on a published cell; '' if nothing was published there."""
        return self.verdicts[row.label, column].word if column in row.cells else ""


def _pool(members: list[TableCell]) -> TableCell:
    """Returns the mean over training seeds."""
    if len(members) == 1:
        return members[0]
    estimates = [member.estimate for member in members if member.estimate]
    games = sum(member.n or 0 for member in members)
    value = sum(member.value for member in members) / len(members)
    prompt = all(member.published_prompt for member in members)
    if len(estimates) < len(members):
        return TableCell(value, n=games, seeds=len(members), published_prompt=prompt)
    estimate = pooled(estimates)
    low, high = estimate.interval()
    return TableCell(value, low, high, games, estimate, seeds=len(members), published_prompt=prompt)
