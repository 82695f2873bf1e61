"""Tables of published results: columns, rows, cells, and the verdict on each cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from envsuite import registry
from envsuite.types import knobs_json

REPRODUCED, WITHIN, DEVIATES, NOT_RUN = "reproduced", "within interval", "deviates", "not run"


class TableCell(NamedTuple):
    """A number with its interval and number of episodes, as far as they are known."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None


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
    """A row of a table. `model` of a published row names the model of ours that it is compared with ('' for none)."""

    label: str
    ours: bool
    cells: dict[str, TableCell]
    model: str = ""
    command: str = ""
    cost: str = ""


@dataclass(frozen=True)
class PaperTable:
    """A published table with our rows beside it."""

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

    def measured(self, row: Row) -> Row | None:
        """Returns our row for a published row."""
        if not row.model:
            return None
        return next((ours for ours in self.rows if ours.ours and ours.label == row.model), None)

    def status(self, row: Row, column: str) -> str:
        """Returns the verdict on a cell; '' if nothing was published there."""
        if column not in row.cells:
            return ""
        ours = self.measured(row)
        return verdict(row.cells[column], ours.cells[column]) if ours and column in ours.cells else NOT_RUN


def verdict(published: TableCell, measured: TableCell) -> str:
    """Compares two cells.

    'reproduced': each number is in the other's interval. 'within interval': only one of them is, or the printed
    number has no interval and is in ours. 'deviates': neither is. 'no interval': our cell has none.
    """
    if measured.low is None or measured.high is None:
        return "no interval"
    inside = measured.low <= published.value <= measured.high
    if published.low is not None and published.high is not None:
        overlap = published.low <= measured.value <= published.high
        return REPRODUCED if inside and overlap else WITHIN if inside or overlap else DEVIATES
    return WITHIN if inside else DEVIATES
