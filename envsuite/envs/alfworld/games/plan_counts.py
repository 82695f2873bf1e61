"""Counts of receptacles and objects in each floor plan of the official games.

`plans.json` has a row per floor plan: how many receptacles of each kind the room has, how many
objects they hold on average, and the weights that reproduce these means. `python -m
benchmarks.alfworld_plans` writes it from the official games; docs/envs/alfworld.md says which split
each number comes from.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

Group = tuple[str, bool]
"""Receptacles of one kind that are all openable, or all not."""

SINGLE = frozenset({"CoffeeMachine", "HandTowelHolder", "StoveBurner", "Toaster", "ToiletPaperHanger", "TowelHolder"})
"""Kinds of receptacles that hold one object at most."""
RARE = 0.0005
"""Objects per game of a class in a kind of receptacle that may hold it, but was never found to."""
UNKNOWN_COPIES = (0, 1, 1, 1, 0)
"""Games with 0 to 4 objects of a class, for a class that was never counted."""


class PlanCounts:
    """Counts and weights of every floor plan, by its number."""

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


@cache
def plan_counts() -> PlanCounts:
    """Returns the counts of `plans.json`."""
    return PlanCounts(json.loads((Path(__file__).parent / "plans.json").read_text()))


def groups(row: dict[str, Sequence[Any]]) -> dict[Group, Any]:
    """Returns a row of the table by group; its values are [of openable receptacles, of the others]."""
    return {(kind, openable): pair[not openable] for kind, pair in row.items() for openable in (True, False)}
