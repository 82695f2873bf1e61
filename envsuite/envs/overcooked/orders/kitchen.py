"""Kitchens with stations: the map, the walks between stations, and the structure that splits compare."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from envsuite.envs.overcooked.foods import FOODS
from envsuite.envs.overcooked.grid import Grid

CRATE, RACK, BOARD, STOVE, COUNTER, HATCH, BIN = range(7)
"""Kinds of station."""
GLYPHS = {"R": RACK, "B": BOARD, "S": STOVE, "C": COUNTER, "H": HATCH, "X": BIN}
"""Symbols of the stations in a map; a crate has the small letter of its food."""
NAMES = {
    RACK: "bowl rack",
    BOARD: "board",
    STOVE: "stove",
    COUNTER: "counter",
    HATCH: "serving hatch",
    BIN: "bin",
}
HOLDERS = (BOARD, STOVE, COUNTER)
"""Stations that hold one thing."""


class Station(NamedTuple):
    """A station: its kind, its cell, its name in texts, the food of a crate, and the slot of a holder."""

    kind: int
    cell: int
    name: str
    food: int = -1
    slot: int = -1


class Equipment:
    """Kinds and foods of a kitchen's stations. Kitchens that differ in their maps alone share one object.

    Slots number the stations that hold a thing: boards, then stoves, then counters.
    """

    def __init__(self, kinds: tuple[int, ...], foods: tuple[int, ...]) -> None:
        self.of_kind = [[number for number, each in enumerate(kinds) if each == kind] for kind in range(7)]
        """numbers of the stations of each kind"""
        crates = self.of_kind[CRATE]
        self.crates = [[number for number in crates if foods[number] == food] for food in range(max(foods) + 1)]
        """numbers of the crates of each food"""
        self.holders = [number for kind in HOLDERS for number in self.of_kind[kind]]
        """station of each slot"""
        self.kind_of_slot = [kinds[number] for number in self.holders]
        self.boards, self.stoves = len(self.of_kind[BOARD]), len(self.of_kind[STOVE])
        self.stove_slots = range(self.boards, self.boards + self.stoves)


@lru_cache(maxsize=64)
def equipment_of(kinds: tuple[int, ...], foods: tuple[int, ...]) -> Equipment:
    """Returns the one object for these kinds and foods."""
    return Equipment(kinds, foods)


class StationChoice(NamedTuple):
    """A stop of a trip at one of several equal stations, which depends on where the cook is."""

    stations: tuple[int, ...]
    rule: str
    """nearest; shortest (with the way to the next stop); first or second (nearest from the start of the trip)"""


Stop = int | StationChoice
"""A stop of a trip: the number of a station, or a choice."""
Stops = tuple[Stop, ...]


class Trip(NamedTuple):
    """Stations of a trip, its steps until the last one is used, and the cell where it ends."""

    stations: tuple[int, ...]
    steps: int
    end: int


class OrderKitchen:
    """A kitchen without its orders. Stations are numbered by kind, and by cell within a kind."""

    def __init__(self, rows: Sequence[str], start: tuple[int, int]) -> None:
        """`rows` uses `#`, `.`, the symbols of GLYPHS and the letters of foods; `start` is (row, column)."""
        self.rows = tuple(rows)
        self.grid = Grid(rows)
        self.start = start[0] * self.grid.n_columns + start[1]
        symbols = "".join(rows)
        self.foods = tuple(food for food, letter in FOODS.items() if letter in symbols)
        self.stations: list[Station] = []
        for food, name in enumerate(self.foods):
            self._add(CRATE, _cells(symbols, FOODS[name]), f"{name} crate", food)
        for glyph, kind in GLYPHS.items():
            self._add(kind, _cells(symbols, glyph), NAMES[kind])
        self.slots = sum(station.slot >= 0 for station in self.stations)
        self.station_at = {station.cell: number for number, station in enumerate(self.stations)}
        kinds, foods = zip(*((station.kind, station.food) for station in self.stations), strict=True)
        self.equipment = equipment_of(kinds, foods)
        self.paths = [self.grid.paths_to(station.cell) for station in self.stations]
        self.sides = [self.grid.around(station.cell) for station in self.stations]
        """floor cells from which a cook uses each station"""
        self._walks: dict[tuple[int, int], tuple[int, int]] = {}
        self._trips: dict[tuple[Stops, int], Trip] = {}

    def _add(self, kind: int, cells: list[int], name: str, food: int = -1) -> None:
        """Adds the stations of a kind, and of a food; equal ones are numbered."""
        for number, cell in enumerate(cells, 1):
            full_name = f"the {name}" if len(cells) == 1 else f"{name} {number}"
            slot = sum(station.slot >= 0 for station in self.stations) if kind in HOLDERS else -1
            self.stations.append(Station(kind, cell, full_name, food, slot))

    def steps(self, number: int, cell: int) -> int:
        """Returns the steps from a floor cell until station `number` is used: 1 next to it."""
        return self.paths[number].steps[cell]

    def between(self, first: int, second: int) -> int:
        """Returns the moves from a cell beside station `first` to a cell beside station `second`."""
        return min(self.steps(second, cell) for cell in self.sides[first]) - 1

    def walk(self, number: int, cell: int) -> tuple[int, int]:
        """Returns the steps of a walk until station `number` is used, and the cell where the walk ends."""
        walk = self._walks.get((number, cell))
        if walk is None:
            paths, end = self.paths[number], cell
            while paths.steps[end] > 1:
                end += self.grid.delta[paths.direction(end)]
            walk = self._walks[number, cell] = paths.steps[cell], end
        return walk

    def trip(self, stops: Stops, cell: int) -> Trip:
        """Returns the trip over some stops that begins at a cell."""
        trip = self._trips.get((stops, cell))
        if trip is None:
            stations: list[int] = []
            total, here = 0, cell
            for i, stop in enumerate(stops):
                number = stop if isinstance(stop, int) else self._choose(stop, cell, here, stops[i + 1 :])
                steps, here = self.walk(number, here)
                stations.append(number)
                total += steps
            trip = self._trips[stops, cell] = Trip(tuple(stations), total, here)
        return trip

    def _choose(self, choice: StationChoice, start: int, here: int, onward: Stops) -> int:
        """Returns the station of a choice for a cook that began the trip at `start` and is at `here`."""
        if choice.rule == "shortest":
            (following, *_) = onward
            assert isinstance(following, int)
            lengths = [
                steps + self.steps(following, end)
                for steps, end in (self.walk(number, here) for number in choice.stations)
            ]
            return choice.stations[lengths.index(min(lengths))]
        cell = here if choice.rule == "nearest" else start
        ranked = sorted(choice.stations, key=lambda number: self.steps(number, cell))
        return ranked[1 if choice.rule == "second" else 0]


def _cells(symbols: str, glyph: str) -> list[int]:
    return [cell for cell, symbol in enumerate(symbols) if symbol == glyph]


def structure(rows: Sequence[str]) -> str:
    """Returns the canonical form of a square map up to the names of foods and the eight symmetries of the square."""
    grid = ["".join("f" if glyph.islower() else glyph for glyph in row) for row in rows]
    forms = []
    for _ in range(4):
        grid = ["".join(column) for column in zip(*grid[::-1], strict=True)]
        forms += ["/".join(grid), "/".join(row[::-1] for row in grid)]
    return min(forms)
