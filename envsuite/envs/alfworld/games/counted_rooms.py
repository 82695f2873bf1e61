"""Rooms whose receptacles are present and filled as counted in each floor plan.

`plans.json` has a row per floor plan: how many receptacles of each kind the room has, how many
objects they hold on average, and the weights that reproduce these means. `python -m
benchmarks.alfworld_plans` writes it from the official games; docs/envs/alfworld.md says which split
each number comes from.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from envsuite.envs.alfworld.games.draw import Draw, GeneratorSettings

Group = tuple[str, bool]
"""Receptacles of one kind that are all openable, or all not."""

SINGLE = frozenset({"CoffeeMachine", "HandTowelHolder", "StoveBurner", "Toaster", "ToiletPaperHanger", "TowelHolder"})
"""Kinds of receptacles that hold one object at most."""
RARE = 0.0005
"""Objects per game of a class in a kind of receptacle that may hold it, but was never found to."""
UNCERTAIN = (0.5, 0.7, 1.0, 1.0, 1.4, 2.0)
"""Factors on the weights of a floor plan without counted games, whose contents are modelled."""
UNKNOWN_COPIES = (0, 1, 1, 1, 0)
"""Games with 0 to 4 objects of a class, for a class that was never counted."""


class PlanTable:
    """Counts and weights of every floor plan."""

    def __init__(self, table: dict[str, Any]) -> None:
        self._plans, self._rooms = table["plans"], table["rooms"]

    def games(self, plan: int) -> int:
        """Returns the number of official games counted in the floor plan."""
        return int(self._plans[str(plan)]["games"])

    def receptacles(self, plan: int) -> dict[Group, int]:
        """Returns the number of receptacles of each group."""
        return groups(self._plans[str(plan)]["receptacles"])

    def contents(self, plan: int) -> dict[Group, float]:
        """Returns the mean number of objects in each group, without fixtures such as lamps."""
        return groups(self._plans[str(plan)]["contents"])

    def weights(self, plan: int) -> dict[Group, float]:
        """Returns the weight of each group, on top of the preferences of the classes."""
        return groups(self._plans[str(plan)]["weights"])

    def capacities(self, plan: int) -> dict[Group, float]:
        """Returns the number of objects at which each group that can be full is full."""
        return {group: capacity for group, capacity in groups(self._plans[str(plan)]["capacity"]).items() if capacity}

    def fixtures(self, plan: int) -> dict[str, dict[str, float]] | None:
        """Maps each fixture to the kinds of receptacles it is on, with their shares; None if unknown."""
        fixtures: dict[str, dict[str, float]] | None = self._plans[str(plan)].get("fixtures")
        return fixtures

    def preference(self, room: str, thing: str, kind: str) -> float:
        """Returns the mean number of objects of a class in all receptacles of a kind."""
        return float(self._rooms[room]["holds"].get(thing, {}).get(kind, 0.0)) or RARE

    def copies(self, plan: int, room: str, thing: str) -> list[float]:
        """Returns how likely a class has 0, 1, 2, 3 and 4 objects."""
        factor, power, weights = self._plans[str(plan)]["more"], 1.0, []
        for games in self._rooms[room]["copies"].get(thing, UNKNOWN_COPIES):
            weights.append(games * power)
            power *= factor
        return weights


class CountedDraw(Draw):
    """One attempt to draw a game whose room follows the counts of its floor plan."""

    def __init__(
        self,
        rng: Random,
        settings: GeneratorSettings,
        seed: int,
        chances: Sequence[float],
        plan: int = 0,
        table: PlanTable | None = None,
    ) -> None:
        self.table = table or plan_table()
        self.occupied: set[str] = set()
        self.filled: Counter[Group] = Counter()
        super().__init__(rng, settings, seed, chances, plan)

    def _choose_plan(self, numbers: list[int]) -> int:
        """Draws a floor plan as often as official games use it."""
        return self.rng.choices(numbers, [1 + self.table.games(number) for number in numbers])[0]

    def _furnish(self) -> None:
        number = self.plan.number
        self.groups = self.table.weights(number)
        if not self.table.games(number):
            self.groups = {group: weight * self.rng.choice(UNCERTAIN) for group, weight in self.groups.items()}
        self.capacity = self.table.capacities(number)
        remaining = Counter(self.table.receptacles(number))
        self.receptacles = {}
        for kind, id, place, openable in self.plan.spots:
            if remaining[kind, openable]:
                remaining[kind, openable] -= 1
                self.receptacles[id] = (kind, place, openable)
        for (kind, openable), count in sorted(remaining.items()):
            for _ in range(count):
                self.receptacles[self._new_id(kind)] = (kind, "", openable)

    def _weights(self, thing: str, ids: list[str]) -> list[float]:
        candidates = [(kind, openable) for kind, _, openable in (self.receptacles[id] for id in ids)]
        shares = {
            group: self.groups[group] * self.table.preference(self.plan.room, thing, group[0]) / members
            for group, members in Counter(candidates).items()
        }
        return [shares[group] for group in candidates]

    def _choose_place(self, ids: list[str], cumulative: list[float]) -> str:
        """Draws a receptacle; the fuller a group is, the less it attracts objects."""
        room = {group: max(0.0, 1 - self.filled[group] / capacity) for group, capacity in self.capacity.items()}
        weights, before = [], 0.0
        for id, total in zip(ids, cumulative, strict=True):
            kind, _, openable = self.receptacles[id]
            weights.append(0.0 if id in self.occupied else (total - before) * room.get((kind, openable), 1.0))
            before = total
        return super()._choose_place(ids, list(accumulate(weights)) if any(weights) else cumulative)

    def _add_object(self, kind: str, receptacle: str) -> None:
        if receptacle in self.occupied and kind != self.target and not self._is_counted_by_settings():
            return  # a towel for which no holder is free
        super()._add_object(kind, receptacle)
        holder, _, openable = self.receptacles[receptacle]
        self.filled[holder, openable] += 1
        if holder in SINGLE:
            self.occupied.add(receptacle)

    def _is_counted_by_settings(self) -> bool:
        return bool(self.settings.objects) or self.settings.distractors >= 0

    def _copies(self, classes: list[str], total: int) -> list[str]:
        if total >= 0:
            return super()._copies(classes, total)
        number, room = self.plan.number, self.plan.room
        copies = {thing: self.table.copies(number, room, thing) for thing in classes}
        return [thing for thing in classes for _ in range(self.rng.choices(range(5), copies[thing])[0])]

    def _place_fixture(self, thing: str) -> None:
        counted = self.table.fixtures(self.plan.number)
        if counted is None or self._lamp_needed(thing):
            super()._place_fixture(thing)
            return
        for kind, share in counted.get(thing, {}).items():
            if kind in self.kinds and self.rng.random() < share:
                self._add_object(thing, self.rng.choice(self.kinds[kind]))


@cache
def plan_table() -> PlanTable:
    """Returns the counts of `plans.json`."""
    return PlanTable(json.loads((Path(__file__).parent / "plans.json").read_text()))


def groups(row: dict[str, Sequence[Any]]) -> dict[Group, Any]:
    """Returns a row of the table by group; its values are [of openable receptacles, of the others]."""
    return {(kind, openable): pair[not openable] for kind, pair in row.items() for openable in (True, False)}
