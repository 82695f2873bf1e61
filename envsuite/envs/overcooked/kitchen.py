"""Static description of a kitchen: walls, boards, deliveries, storage cells, and shortest paths.

A cell is an index, `row * columns + column`, with row 0 at the top.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

from envsuite.errors import DataError, UsageError

FLOOR, COUNTER, BOARD, DELIVERY = range(4)
RIGHT, DOWN, LEFT, UP, STAY = range(5)
PREFERRED = (UP, DOWN, LEFT, RIGHT)
KINDS = {".": FLOOR, "k": BOARD, "d": DELIVERY}
DIRECTION_NAMES = ("right", "down", "left", "up", "stay")
UNREACHABLE = 255  # longer than any path in a kitchen of MOST_FLOOR cells, and fits in a byte
MOST_FLOOR = 225
MAPS = ("a", "b", "c")
VARIANTS = ("v1", "v3", "v4")
SIZES = (7, 9)


class Way:
    """Shortest paths from every cell to one target."""

    __slots__ = ("_delta", "_gates", "steps")

    def __init__(self, steps: bytes, delta: Sequence[int]) -> None:
        self.steps = steps
        """per cell, moves until the target is entered or bumped into (1: next to it), or UNREACHABLE"""
        self._delta = delta
        self._gates: dict[int, int] = {}

    def direction(self, cell: int) -> int:
        """Returns the first move of a shortest path from a floor cell; STAY if there is none."""
        steps, delta = self.steps, self._delta
        closer = steps[cell] - 1
        for move in PREFERRED:
            if steps[cell + delta[move]] == closer:
                return move
        return STAY

    @property
    def farthest(self) -> int:
        """Returns the largest number of steps from any cell with a path."""
        return max(self.steps.replace(bytes([UNREACHABLE]), b""))

    def gate(self, cell: int) -> int:
        """Returns the cell on the path two moves before the target; `cell` itself if it is closer than that."""
        gate = self._gates.get(cell)
        if gate is None:
            gate = cell
            while 2 < self.steps[gate] < UNREACHABLE:
                gate += self._delta[self.direction(gate)]
            self._gates[cell] = gate
        return gate


class Kitchen:
    """Static part of a kitchen, shared by all episodes played in it."""

    def __init__(self, name: str, rows: Sequence[str], starts: Sequence[tuple[int, int]]) -> None:
        """`rows` uses the symbols of kitchens.toml; `starts` holds one (row, column) per cook. Raises DataError."""
        self.name = name
        self.n_rows, self.n_columns = len(rows), len(rows[0]) if rows else 0
        if any(len(row) != self.n_columns for row in rows):
            raise DataError(f"Kitchen {name!r} has rows of different lengths: draw a rectangle.")
        self.delta = (1, self.n_columns, -1, -self.n_columns, 0)
        symbols, glyphs = "".join(rows), _glyphs()
        self.kind = [KINDS.get(glyph, COUNTER) for glyph in symbols]
        self.boards: list[int] = []
        self.deliveries: list[int] = []
        self.bowl_homes: list[int] = []
        homes: dict[str, int] = {}
        stations = {"k": self.boards, "d": self.deliveries, "b": self.bowl_homes}
        for cell, glyph in enumerate(symbols):
            if glyph in "#.":
                continue
            if glyph in glyphs:
                homes[glyphs[glyph]] = cell
            elif glyph in stations:
                stations[glyph].append(cell)
            else:
                raise DataError(
                    f"Kitchen {name!r} has the unknown symbol {glyph!r}: see kitchens.toml for the symbols."
                )
        self.foods = tuple(food for food in glyphs.values() if food in homes)
        self.homes = [homes[food] for food in self.foods] + self.bowl_homes  # home cell per item: foods, then bowls
        self.starts = tuple(row * self.n_columns + column for row, column in starts)
        self.floor = [cell for cell, kind in enumerate(self.kind) if kind == FLOOR]
        if FLOOR in self._rim():
            raise DataError(f"Kitchen {name!r} has floor on its border: enclose it with counters.")
        if len(self.floor) > MOST_FLOOR:
            raise DataError(f"Kitchen {name!r} has {len(self.floor)} floor cells: the maximum is {MOST_FLOOR}.")
        if any(self.kind[cell] != FLOOR for cell in self.starts) or len(set(self.starts)) < len(self.starts):
            raise DataError(f"Kitchen {name!r} starts a cook outside the floor, or two cooks in one cell.")
        self.beside: list[tuple[tuple[int, int], ...]] = [()] * len(self.kind)
        """per cell, the (number, cell) of each orthogonally adjacent board, sorted by number"""
        for number, board in enumerate(self.boards):
            for cell in self.around(board):
                self.beside[cell] += ((number, board),)
        self._all = int.from_bytes(b"\1" * len(self.kind), "little")
        self._open = int.from_bytes(bytes([kind == FLOOR for kind in self.kind]), "little")
        self._ways: list[Way | None] = [None] * len(self.kind)
        self._near: dict[tuple[int, int], bytes] = {}

    def around(self, cell: int) -> list[int]:
        """Returns the floor cells adjacent to a cell."""
        kind = self.kind
        return [cell + step for step in self.delta[:4] if 0 <= cell + step < len(kind) and kind[cell + step] == FLOOR]

    @cached_property
    def sides(self) -> list[list[int]]:
        """Returns the adjacent floor cells of each cell."""
        return [self.around(cell) for cell in range(len(self.kind))]

    def _rim(self) -> list[int]:
        wide = self.n_columns
        return self.kind[:wide] + self.kind[-wide:] + self.kind[::wide] + self.kind[wide - 1 :: wide]

    def position(self, cell: int) -> tuple[int, int]:
        """Returns (row, column) of a cell."""
        return divmod(cell, self.n_columns)

    def way(self, target: int) -> Way:
        """Returns the shortest paths to `target`."""
        way = self._ways[target]
        if way is None:
            way = self._ways[target] = self.find_way(target)
        return way

    def find_way(self, target: int, blocked: Sequence[int] = ()) -> Way:
        """Returns the shortest paths to `target` that avoid the `blocked` floor cells.

        A breadth-first search over sets of cells. A set is one integer with one byte per cell, so that a whole ring of
        cells expands in a few integer operations; every cell that a ring does not reach is one step farther away.
        """
        wide, ring = 8 * self.n_columns, 1 << 8 * target
        unseen = self._open & ~ring
        for cell in blocked:
            unseen &= ~(1 << 8 * cell)
        never = (self._all ^ unseen) & ~ring
        steps = unseen
        while ring := (ring << 8 | ring >> 8 | ring << wide | ring >> wide) & unseen:
            unseen ^= ring
            steps += unseen
        return Way((steps | (unseen | never) * UNREACHABLE).to_bytes(len(self.kind), "little"), self.delta)

    def find_ways(self, targets: Sequence[int]) -> list[Way]:
        """Returns the shortest paths to each target: `find_way` on one copy of the kitchen per target, side by side.

        The border of a kitchen has no floor, so no path leads from one copy into the next.
        """
        size, wide = len(self.kind), 8 * self.n_columns
        copies = int.from_bytes((b"\1" + bytes(size - 1)) * len(targets), "little")
        ring = sum(1 << 8 * (target + size * i) for i, target in enumerate(targets))
        unseen = steps = self._open * copies & ~ring
        never = (self._all * copies ^ unseen) & ~ring
        while ring := (ring << 8 | ring >> 8 | ring << wide | ring >> wide) & unseen:
            unseen ^= ring
            steps += unseen
        rows = (steps | (unseen | never) * UNREACHABLE).to_bytes(size * len(targets), "little")
        return [Way(rows[start : start + size], self.delta) for start in range(0, len(rows), size)]

    def counters_from(self, cell: int) -> Iterator[int]:
        """Yields the counters reachable from a floor cell, nearest first and then by cell index."""
        ring, walked = [cell], {cell}
        yielded: set[int] = set()
        while ring:
            beside = {here + step for here in ring for step in self.delta[:4]}
            counters = sorted(cell for cell in beside - yielded if self.kind[cell] == COUNTER)
            yield from counters
            yielded.update(counters)
            ring = [cell for cell in beside - walked if self.kind[cell] == FLOOR]
            walked.update(ring)

    def near(self, cell: int, radius: int) -> bytes:
        """Returns one byte per cell: 1 inside the square window of `radius` around `cell`, 0 outside."""
        visible = self._near.get((cell, radius))
        if visible is None:
            visible = self._near[cell, radius] = window(self.n_rows, self.n_columns, cell, radius)
        return visible

    def drawing(self) -> list[str]:
        """Returns the rows in the symbols of kitchens.toml."""
        glyphs = [{FLOOR: ".", COUNTER: "#", BOARD: "k", DELIVERY: "d"}[kind] for kind in self.kind]
        for food, home in zip(self.foods, self.homes, strict=False):
            glyphs[home] = _data()["foods"][food]
        for home in self.bowl_homes:
            glyphs[home] = "b"
        wide = self.n_columns
        return ["".join(glyphs[start : start + wide]) for start in range(0, len(glyphs), wide)]


@lru_cache(maxsize=4096)
def window(n_rows: int, n_columns: int, cell: int, radius: int) -> bytes:
    """Returns `Kitchen.near` for all kitchens of one size."""
    row, column = divmod(cell, n_columns)
    first, last = max(0, column - radius), min(n_columns, column + radius + 1)
    seen = bytearray(n_rows * n_columns)
    for start in range(max(0, row - radius) * n_columns, min(n_rows, row + radius + 1) * n_columns, n_columns):
        seen[start + first : start + last] = b"\1" * (last - first)
    return bytes(seen)


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("kitchens.toml").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def _glyphs() -> dict[str, str]:
    """Returns the food of each symbol, in the order of kitchens.toml."""
    return {glyph: food for food, glyph in _data()["foods"].items()}


def all_foods() -> dict[str, str]:
    """Returns every food with its symbol in a map."""
    return dict(_data()["foods"])


def recipe_names() -> tuple[str, ...]:
    """Returns the names of the recipes, in the order of the published task numbers."""
    return tuple(_data()["recipes"])


def recipe_foods(recipe: str) -> tuple[str, ...]:
    """Returns the foods of a named recipe. Raises UsageError if it is unknown."""
    try:
        return tuple(_data()["recipes"][recipe])
    except KeyError:
        raise UsageError(f"Unknown recipe {recipe!r}: choose from {', '.join(_data()['recipes'])}.") from None


@lru_cache(maxsize=64)
def published_kitchen(variant: str, layout: str, size: int, cooks: int) -> Kitchen:
    """Returns a published kitchen: variant v1 (two bowls), v3 or v4 (tomato only); map a, b or c; size 7 or 9.

    Raises UsageError if the combination was not published.
    """
    data = _data()
    base = f"v3-{layout}-{size}"
    if base not in data["kitchens"] or variant not in VARIANTS:
        raise UsageError(
            f"There is no published kitchen {variant}-{layout} of size {size}: variants are {', '.join(VARIANTS)}, "
            f"maps {', '.join(MAPS)}, sizes {SIZES[0]} and {SIZES[1]} (layout=random accepts 5 to 15)."
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
