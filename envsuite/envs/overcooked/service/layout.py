"""Static part of a kitchen: floor, walls, stations, and the walks between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from envsuite.envs.overcooked.kitchen import Kitchen, Way, all_foods

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


Equipment = tuple[tuple[int, ...], tuple[int, ...]]
"""Kind and food of each station."""
ON_THE_WAY = -1
"""Rank of the station on the shortest way to the next one."""


class ChosenStation(NamedTuple):
    """A station of a trip that depends on where the cook is: the nearest of some stations, or one by another rank."""

    stations: tuple[int, ...]
    rank: int = 0  # 0 for the nearest, 1 for the second nearest, or ON_THE_WAY
    from_start: bool = False  # measures distances from the beginning of the trip, not from the station before


@lru_cache(maxsize=1024)
def chosen_station(stations: tuple[int, ...], rank: int = 0, from_start: bool = False) -> ChosenStation:
    """Returns one object per choice, which saves memory."""
    return ChosenStation(stations, rank, from_start)


Part = int | ChosenStation
"""A station of a trip: its number, or a choice."""


class Walks(dict[int, tuple[int, int]]):
    """Walks to a station, by the floor cell where they begin: the steps until its use, and the cell where they end."""

    __slots__ = ("_delta", "_way")

    def __init__(self, way: Way, delta: Sequence[int]) -> None:
        super().__init__()
        self._way, self._delta = way, delta

    def __missing__(self, cell: int) -> tuple[int, int]:
        steps = self._way.steps[cell]
        end = cell if steps == 1 else self[cell + self._delta[self._way.direction(cell)]][1]
        walk = self[cell] = steps, end
        return walk


class Trips(dict[int, tuple[tuple[int, ...], int, int]]):
    """Trips over several stations: the stations, the steps and the cell where a trip ends, by the cell it begins at."""

    __slots__ = ("_parts", "_stations", "_walks")

    def __init__(self, parts: tuple[Part, ...], walks: list[Walks]) -> None:
        super().__init__()
        self._parts, self._walks = parts, walks
        self._stations = tuple([part for part in parts if isinstance(part, int)])

    def __missing__(self, cell: int) -> tuple[tuple[int, ...], int, int]:
        stations = self._stations
        if len(stations) < len(self._parts):
            stations = self._chosen(cell)
        total, end = 0, cell
        for number in stations:
            steps, end = self._walks[number][end]
            total += steps
        trip = self[cell] = stations, total, end
        return trip

    def _chosen(self, cell: int) -> tuple[int, ...]:
        """Returns the stations of the trip from a cell."""
        numbers: list[int] = []
        here = cell
        for i, part in enumerate(self._parts):
            number = part if isinstance(part, int) else self._choose(part, cell if part.from_start else here, i)
            here = self._walks[number][here][1]
            numbers.append(number)
        return tuple(numbers)

    def _choose(self, part: ChosenStation, cell: int, index: int) -> int:
        """Returns the station that part number `index` stands for, with distances from a cell."""
        stations, rank, _ = part
        walks = [self._walks[number][cell] for number in stations]
        if rank == ON_THE_WAY:
            onward = self._walks[self._stations[index]]  # the choice is the only one, and is not the last part
            lengths = [steps + onward[end][0] for steps, end in walks]
        else:
            lengths = [steps for steps, _ in walks]
        if rank <= 0:
            return stations[lengths.index(min(lengths))]
        return stations[sorted(range(len(lengths)), key=lengths.__getitem__)[rank]]


class AllTrips(dict[tuple[Part, ...], Trips]):
    """Trips over all sequences of stations, made when needed."""

    def __init__(self, walks: list[Walks]) -> None:
        super().__init__()
        self._walks = walks

    def __missing__(self, parts: tuple[Part, ...]) -> Trips:
        trips = self[parts] = Trips(parts, self._walks)
        return trips


class Layout:
    """A kitchen without its orders. Stations have a fixed order; boards, stoves and counters have slots 0, 1, ..."""

    def __init__(self, rows: Sequence[str], start: tuple[int, int]) -> None:
        """`rows` uses `#`, `.`, the symbols of GLYPHS and the letters of foods; `start` is (row, column)."""
        self.rows = tuple(rows)
        plain = ["".join("." if glyph == "." else "#" for glyph in row) for row in rows]
        self.kitchen = Kitchen("service", plain, [start])
        self.start = self.kitchen.starts[0]
        cells: dict[str, list[int]] = {}
        for cell, glyph in enumerate("".join(rows)):
            if glyph not in "#.":
                cells.setdefault(glyph, []).append(cell)
        letters = {letter: food for food, letter in all_foods().items() if letter in cells}
        self.foods = tuple(letters.values())
        self.stations: list[Station] = []
        for food, (letter, name) in enumerate(letters.items()):
            for number, cell in enumerate(cells[letter], 1):
                called = f"the {name} crate" if len(cells[letter]) == 1 else f"{name} crate {number}"
                self.stations.append(Station(CRATE, cell, called, food))
        slots = 0
        for glyph, kind in GLYPHS.items():
            alike = cells.get(glyph, ())
            for number, cell in enumerate(alike, 1):
                holds = kind in HOLDERS
                called = f"the {NAMES[kind]}" if len(alike) == 1 else f"{NAMES[kind]} {number}"
                self.stations.append(Station(kind, cell, called, slot=slots if holds else -1))
                slots += holds
        self.slots = slots
        self.station_at = {station.cell: number for number, station in enumerate(self.stations)}
        self.of_kind = [[i for i, station in enumerate(self.stations) if station.kind == kind] for kind in range(7)]
        self.boards, self.stoves, self.counters = (len(self.of_kind[kind]) for kind in HOLDERS)
        self.holders = [i for i, station in enumerate(self.stations) if station.slot >= 0]
        """station of each slot: boards, then stoves, then counters"""
        self.sides = [self.kitchen.around(station.cell) for station in self.stations]
        """floor cells beside each station"""
        self.ways = self.kitchen.find_ways([station.cell for station in self.stations])
        self.walks = [Walks(way, self.kitchen.delta) for way in self.ways]
        self.trips = AllTrips(self.walks)
        self.kinds = tuple(station.kind for station in self.stations)
        self.equipment: Equipment = self.kinds, tuple(station.food for station in self.stations)
        """the same in kitchens that differ in their maps and in the names of their foods alone"""

    def steps(self, number: int, cell: int) -> int:
        """Returns the steps from a floor cell until station `number` is used: 1 next to it."""
        return self.ways[number].steps[cell]

    def options(self, kind: int, which: int) -> list[int]:
        """Returns the stations among which a script chooses: crates of a food, racks, hatches, or one other station."""
        options = self.of_kind[kind]
        if kind == CRATE:
            return [i for i in options if self.stations[i].food == which]
        return options if kind in (RACK, HATCH) else [options[which]]

    def between(self, first: int, second: int) -> int:
        """Returns the moves from a cell beside station `first` to a cell beside station `second`."""
        steps = self.ways[second].steps
        return min(steps[cell] for cell in self.sides[first]) - 1


@lru_cache(maxsize=16)
def _symmetries(size: int) -> list[Callable[[str], tuple[str, ...]]]:
    """Returns getters of the cells of a square map, row by row, after each turning and mirroring."""
    grid = [list(range(row * size, (row + 1) * size)) for row in range(size)]
    orders: list[list[int]] = []
    for _ in range(4):
        grid = [list(column) for column in zip(*grid[::-1], strict=True)]
        orders.append([cell for row in grid for cell in row])
        orders.append([cell for row in grid for cell in row[::-1]])
    return [itemgetter(*order) for order in orders]


def structure(rows: Sequence[str]) -> str:
    """Returns the canonical form of a square map up to the names of foods and the eight symmetries of the square."""
    size = len(rows)
    cells = "".join(["f" if glyph.islower() else glyph for glyph in "".join(rows)])
    least = "".join(min([order(cells) for order in _symmetries(size)]))
    return "/".join([least[start : start + size] for start in range(0, size * size, size)])
