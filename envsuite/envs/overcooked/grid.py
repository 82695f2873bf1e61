"""Grids of floor and obstacles, with the shortest paths to each cell.

A cell is an index, `row * columns + column`, with row 0 at the top.
"""

from __future__ import annotations

from collections.abc import Sequence

RIGHT, DOWN, LEFT, UP, STAY = range(5)
DIRECTION_NAMES = ("right", "down", "left", "up", "stay")
PREFERRED = (UP, DOWN, LEFT, RIGHT)
"""sequence in which a walk tries the directions that lead closer"""
UNREACHABLE = 1 << 16


class Paths:
    """Shortest paths from every floor cell to one target."""

    __slots__ = ("_delta", "steps")

    def __init__(self, steps: Sequence[int], delta: Sequence[int]) -> None:
        self.steps = steps
        """per cell, moves until the target is entered or bumped into (1: next to it), or UNREACHABLE"""
        self._delta = delta

    def direction(self, cell: int) -> int:
        """Returns the first move of a shortest path from a floor cell; STAY if there is none."""
        closer = self.steps[cell] - 1
        for direction in PREFERRED:
            if self.steps[cell + self._delta[direction]] == closer:
                return direction
        return STAY


class Grid:
    """A rectangle of cells whose border has no floor."""

    def __init__(self, rows: Sequence[str]) -> None:
        """`rows` has a dot for each floor cell."""
        self.n_rows, self.n_columns = len(rows), len(rows[0])
        self.delta = (1, self.n_columns, -1, -self.n_columns, 0)
        """difference of the cell number, by direction"""
        self.is_floor = [glyph == "." for glyph in "".join(rows)]
        self.floor = [cell for cell, is_floor in enumerate(self.is_floor) if is_floor]
        self._paths: dict[int, Paths] = {}
        self._windows: dict[tuple[int, int], frozenset[int]] = {}

    def position(self, cell: int) -> tuple[int, int]:
        """Returns (row, column) of a cell."""
        return divmod(cell, self.n_columns)

    def around(self, cell: int) -> list[int]:
        """Returns the floor cells next to a cell: right, below, left, above."""
        neighbours = [cell + step for step in self.delta[:STAY]]
        return [cell for cell in neighbours if 0 <= cell < len(self.is_floor) and self.is_floor[cell]]

    def paths_to(self, target: int) -> Paths:
        """Returns the shortest paths to a cell."""
        paths = self._paths.get(target)
        if paths is None:
            paths = self._paths[target] = Paths(self._search(target), self.delta)
        return paths

    def _search(self, target: int) -> list[int]:
        """Returns the moves from each cell to a target, found breadth first."""
        steps = [UNREACHABLE] * len(self.is_floor)
        steps[target] = 0
        border = [target]
        for distance in range(1, len(steps)):
            border = [cell for here in border for cell in self.around(here) if steps[cell] > distance]
            for cell in border:
                steps[cell] = distance
            if not border:
                break
        return steps

    def window(self, cell: int, radius: int) -> frozenset[int]:
        """Returns the cells of the square window around a cell."""
        if (cell, radius) not in self._windows:
            row, column = self.position(cell)
            rows = range(max(0, row - radius), min(self.n_rows, row + radius + 1))
            columns = range(max(0, column - radius), min(self.n_columns, column + radius + 1))
            cells = frozenset(row * self.n_columns + column for row in rows for column in columns)
            self._windows[cell, radius] = cells
        return self._windows[cell, radius]
