"""A kitchen as it stands before anyone moves: walls, boards, deliveries, where things are kept, and the ways between.

Cells are numbers, `row * columns + column`, row 0 at the top.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from envsuite.errors import DataError, UsageError

FLOOR, COUNTER, BOARD, DELIVERY = range(4)
RIGHT, DOWN, LEFT, UP, STAY = range(5)
DIRECTION_NAMES = ("right", "down", "left", "up", "stay")
UNREACHABLE = 1 << 20
MAPS = ("a", "b", "c")
VARIANTS = ("v1", "v3", "v4")
SIZES = (7, 9)


class Way(NamedTuple):
    """How to get to one target from every cell: all lists are indexed by cell."""

    steps: list[int]
    """moves until the target is entered or bumped into (1: next to it); UNREACHABLE where there is no way"""
    direction: list[int]
    """the first move; STAY where there is none"""
    gate: list[int]
    """the cell on the way that is two moves from the target; only where `steps` is two or more"""


class Kitchen:
    """The unchanging part of a kitchen."""

    def __init__(self, name: str, rows: Sequence[str], starts: Sequence[tuple[int, int]]) -> None:
        """`rows` is drawn as in kitchens.toml; `starts` has a (row, column) for each cook. Raises DataError."""
        self.name = name
        self.n_rows, self.n_columns = len(rows), len(rows[0]) if rows else 0
        if any(len(row) != self.n_columns for row in rows):
            raise DataError(f"Kitchen {name!r} has rows of different lengths: draw a rectangle.")
        self.delta = (1, self.n_columns, -1, -self.n_columns, 0)
        glyphs = {glyph: food for food, glyph in _data()["foods"].items()}
        self.kind: list[int] = []
        self.boards: list[int] = []
        self.deliveries: list[int] = []
        self.bowl_homes: list[int] = []
        homes: dict[str, int] = {}
        for cell, glyph in enumerate("".join(rows)):
            if glyph == "b":
                self.bowl_homes.append(cell)
            elif glyph in glyphs:
                homes[glyphs[glyph]] = cell
            elif glyph not in "#.kd":
                raise DataError(f"Kitchen {name!r} has a cell {glyph!r}, which stands for nothing: see kitchens.toml.")
            self.kind.append({".": FLOOR, "k": BOARD, "d": DELIVERY}.get(glyph, COUNTER))
            if glyph in "kd":
                (self.boards if glyph == "k" else self.deliveries).append(cell)
        self.foods = tuple(food for food in _data()["foods"] if food in homes)
        self.homes = [homes[food] for food in self.foods] + self.bowl_homes  # of every thing: foods, then bowls
        self.starts = tuple(row * self.n_columns + column for row, column in starts)
        self.floor = [cell for cell, kind in enumerate(self.kind) if kind == FLOOR]
        if any(kind == FLOOR for kind in self._rim()):
            raise DataError(f"Kitchen {name!r} has floor at its rim: enclose it with counters.")
        if any(self.kind[cell] != FLOOR for cell in self.starts) or len(set(self.starts)) < len(self.starts):
            raise DataError(f"Kitchen {name!r} starts a cook off the floor, or two in one cell.")
        self.beside: dict[int, list[tuple[int, int]]] = {cell: [] for cell in self.floor}
        """(number, cell) of the boards orthogonally next to each floor cell, by number"""
        for number, board in enumerate(self.boards):
            for step in self.delta[:4]:
                self.beside.get(board + step, []).append((number, board))
        self.sides: dict[int, list[int]] = {}
        """the floor cells next to each counter that has any"""
        for cell in self.floor:
            for step in self.delta[:4]:
                if self.kind[cell + step] == COUNTER:
                    self.sides.setdefault(cell + step, []).append(cell)
        # a row of nothing at the end, for what looks over the edge: the rim is solid, so elsewhere it finds counters
        self._floor_mask = bytes(kind == FLOOR for kind in self.kind) + bytes(self.n_columns)
        self._ways: list[Way | None] = [None] * len(self.kind)
        self._near: dict[tuple[int, int], bytearray] = {}

    def _rim(self) -> list[int]:
        wide = self.n_columns
        return self.kind[:wide] + self.kind[-wide:] + self.kind[::wide] + self.kind[wide - 1 :: wide]

    def position(self, cell: int) -> tuple[int, int]:
        """(row, column)."""
        return divmod(cell, self.n_columns)

    def way(self, target: int) -> Way:
        """The ways to `target`, which are shortest; among the shortest, up and down come before left and right."""
        found = self._ways[target]
        if found is None:
            found = self._ways[target] = self.find_way(target)
        return found

    def find_way(self, target: int, blocked: Sequence[int] = ()) -> Way:
        """As `way`, with some floor cells taken."""
        steps = [UNREACHABLE] * len(self.kind)
        direction = [STAY] * len(self.kind)
        gate = list(range(len(self.kind)))
        steps[target] = far = 0
        free = bytearray(self._floor_mask)
        free[target] = 0
        for cell in blocked:
            free[cell] = 0
        ring = [target]
        moves = [(move, self.delta[move]) for move in (UP, DOWN, LEFT, RIGHT)]  # the first to reach a cell is kept
        while ring:
            far += 1
            next_ring = []
            for move, step in moves:
                for before in [cell - step for cell in ring if free[cell - step]]:
                    free[before] = 0
                    steps[before], direction[before] = far, move
                    if far > 2:
                        gate[before] = gate[before + step]
                    next_ring.append(before)
            ring = next_ring
        return Way(steps, direction, gate)

    def near(self, cell: int, radius: int) -> bytearray:
        """For every cell, whether it lies in the square window of `radius` round `cell`."""
        found = self._near.get((cell, radius))
        if found is None:
            found = self._near[cell, radius] = bytearray(len(self.kind))
            row, column = self.position(cell)
            first, last = max(0, column - radius), min(self.n_columns, column + radius + 1)
            for start in range(max(0, row - radius), min(self.n_rows, row + radius + 1)):
                found[start * self.n_columns + first : start * self.n_columns + last] = b"\1" * (last - first)
        return found

    def drawing(self) -> list[str]:
        """The rows as kitchens.toml draws them."""
        glyphs = [{FLOOR: ".", COUNTER: "#", BOARD: "k", DELIVERY: "d"}[kind] for kind in self.kind]
        for food, home in zip(self.foods, self.homes):
            glyphs[home] = _data()["foods"][food]
        for home in self.bowl_homes:
            glyphs[home] = "b"
        wide = self.n_columns
        return ["".join(glyphs[start : start + wide]) for start in range(0, len(glyphs), wide)]


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("kitchens.toml").read_text(encoding="utf-8"))


def all_foods() -> dict[str, str]:
    """Every food the kitchens can hold, with its letter in a drawing."""
    return dict(_data()["foods"])


def recipe_names() -> tuple[str, ...]:
    """The named recipes, in the order of the published task numbers."""
    return tuple(_data()["recipes"])


def recipe_foods(recipe: str) -> tuple[str, ...]:
    """The foods of a named recipe. Raises UsageError."""
    try:
        return tuple(_data()["recipes"][recipe])
    except KeyError:
        raise UsageError(f"No recipe {recipe!r}: there are {', '.join(_data()['recipes'])}.") from None


@lru_cache(maxsize=64)
def published_kitchen(variant: str, layout: str, size: int, cooks: int) -> Kitchen:
    """A kitchen of the papers: variant v1 (two bowls), v3 or v4 (tomato only); map a, b or c; 7 or 9 cells wide."""
    data = _data()
    base = f"v3-{layout}-{size}"
    if base not in data["kitchens"] or variant not in VARIANTS:
        raise UsageError(
            f"No published kitchen {variant}-{layout} of size {size}: variants are {', '.join(VARIANTS)}, "
            f"maps {', '.join(MAPS)}, sizes {SIZES[0]} and {SIZES[1]} (kitchen=random takes any size)."
        )
    rows = [list(row) for row in data["kitchens"][base]["rows"].split()]
    for where, glyph in data["variants"].get(variant, {}).get(str(size), {}).items():
        row, column = map(int, where.split(","))
        rows[row][column] = glyph
    name = f"{variant}-{layout}-{size}"
    starts = data["starts"][str(size)][str(cooks)]
    if cooks == 1 and name in data["lone_start"]["kitchens"]:
        starts = [data["lone_start"]["cell"]]
    return Kitchen(name, ["".join(row) for row in rows], [(row, column) for row, column in starts])
