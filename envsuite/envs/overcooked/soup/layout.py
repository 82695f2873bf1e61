"""Layouts of Overcooked-AI: the five published grids, and the geometry that follows from a grid."""

from __future__ import annotations

from functools import cached_property, lru_cache

FLOOR, COUNTER, ONIONS, DISHES, POT, WINDOW = " ", "X", "O", "D", "P", "S"
"""Kinds of cells; a window is a place where soups are served."""

GRIDS: dict[str, tuple[str, ...]] = {
    "cramped_room": (
        "XXPXX",
        "O  2O",
        "X1  X",
        "XDXSX",
    ),
    "asymmetric_advantages": (
        "XXXXXXXXX",
        "O XSXOX S",
        "X   P 1 X",
        "X2  P   X",
        "XXXDXDXXX",
    ),
    "coordination_ring": (
        "XXXPX",
        "X 1 P",
        "D2X X",
        "O   X",
        "XOSXX",
    ),
    "forced_coordination": (
        "XXXPX",
        "O X1P",
        "O2X X",
        "D X X",
        "XXXSX",
    ),
    "counter_circuit": (
        "XXXPPXXX",
        "X  2   X",
        "D XXXX S",
        "X  1   X",
        "XXXOOXXX",
    ),
}
"""Grids by name, as in version 1.1.0 of the package; 1 and 2 are the cooks' first cells.

`counter_circuit` is the layout of the paper, which the package calls `counter_circuit_o_1order`.
"""

COOKS = 2
UP, DOWN, RIGHT, LEFT, STAY, INTERACT = range(6)
"""Actions of a cook. The first four are also directions."""


class SoupLayout:
    """A kitchen; cells are numbered row by row from the top left."""

    def __init__(self, name: str, grid: tuple[str, ...]) -> None:
        self.name = name
        self.rows, self.columns = len(grid), len(grid[0])
        symbols = "".join(grid)
        self.starts = tuple(symbols.index(str(cook + 1)) for cook in range(COOKS))
        self.kind = tuple(FLOOR if symbol.isdigit() else symbol for symbol in symbols)
        self.delta = (-self.columns, self.columns, 1, -1, 0)
        """difference of the cell number for each direction and for STAY"""
        self.floor = tuple(self.cells(FLOOR))
        self.counters = tuple(self.cells(COUNTER))
        self.pots = tuple(self.cells(POT))
        self.slot = {cell: i for cells in (self.counters, self.pots) for i, cell in enumerate(cells)}
        """index of a counter among the counters, or of a pot among the pots"""

    def cells(self, kind: str) -> list[int]:
        """Returns all cells of a kind, row by row."""
        return [cell for cell, each in enumerate(self.kind) if each == kind]

    def position(self, cell: int) -> tuple[int, int]:
        """Returns row and column of a cell, from 0."""
        return divmod(cell, self.columns)

    @cached_property
    def access(self) -> dict[int, tuple[tuple[int, int], ...]]:
        """Returns obstacle -> the adjacent floor cells, each with the direction towards it."""
        sides: dict[int, list[tuple[int, int]]] = {}
        for cell in self.floor:
            for direction in range(STAY):
                target = cell + self.delta[direction]
                if self.kind[target] != FLOOR:
                    sides.setdefault(target, []).append((cell, direction))
        return {target: tuple(pairs) for target, pairs in sides.items()}

    @cached_property
    def distances(self) -> dict[int, dict[int, int]]:
        """Returns the number of moves between floor cells, by start and goal; a cell out of reach is missing."""
        return {start: self._distances_from(start) for start in self.floor}

    def _distances_from(self, start: int) -> dict[int, int]:
        steps, border = {start: 0}, [start]
        while border:
            following = []
            for cell in border:
                for direction in range(STAY):
                    target = cell + self.delta[direction]
                    if self.kind[target] == FLOOR and target not in steps:
                        steps[target] = steps[cell] + 1
                        following.append(target)
            border = following
        return steps


@lru_cache
def published(name: str) -> SoupLayout:
    """Returns a published layout."""
    return SoupLayout(name, GRIDS[name])
