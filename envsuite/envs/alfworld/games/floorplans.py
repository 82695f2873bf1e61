"""Floor plans and object tables of the alfworld package, and statistics of the official games."""

from __future__ import annotations

import json
import re
import runpy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.envs.alfworld.games.package import package_folder
from envsuite.errors import DataError

HELD_OUT_PLANS = frozenset({10, 219, 308, 424})
"""Floor plans of valid_unseen; only test splits use them."""
ROOMS = {"kitchen": range(1, 31), "living": range(201, 231), "bedroom": range(301, 331), "bath": range(401, 431)}
TASK_TYPES = (
    "look_at_obj_in_light",
    "pick_and_place_simple",
    "pick_clean_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_two_obj_and_place",
)
OPENABLE = frozenset({"Cabinet", "Drawer", "Safe", "Fridge", "Microwave"})
BASINS = {"Sink": "SinkBasin", "Bathtub": "BathtubBasin"}
FLOOR_OBJECTS = frozenset({"BaseballBat", "BasketBall", "TennisRacket"})
"""Portable objects that lie on the floor in official rooms, where no command reaches them."""


class FixedReceptacle(NamedTuple):
    """A receptacle whose position the floor plan knows."""

    kind: str
    id: str
    location: str
    """position of the player in front of it, 'loc_bar_X_bar_Z_bar_R'; a horizon is appended"""
    openable: bool


class FloorPlan(NamedTuple):
    """One of the 120 rooms."""

    number: int
    room: str
    fixed_receptacles: tuple[FixedReceptacle, ...]
    unplaced: tuple[str, ...]
    """kinds of receptacles in the room whose position is unknown"""
    things: tuple[str, ...]
    """kinds of portable objects that some receptacle can hold, sorted"""
    fixtures: tuple[str, ...]
    """kinds of objects that are part of the furniture: never put down again, or never taken"""


@cache
def statistics() -> dict[str, Any]:
    """Returns `rooms.json`: frequencies counted in the official games, used as weights."""
    counts: dict[str, Any] = json.loads((Path(__file__).parent / "rooms.json").read_text())
    return counts


@cache
def _tables() -> dict[str, Any]:
    return _run("constants.py")


def _run(name: str) -> dict[str, Any]:
    path = package_folder() / "gen" / name
    try:
        return runpy.run_path(str(path))
    except (OSError, SyntaxError) as error:
        raise DataError(f"The alfworld package's {path} cannot be read ({error}): reinstall alfworld.") from error


@cache
def holders() -> dict[str, frozenset[str]]:
    """Maps each kind of receptacle to the kinds of objects it can hold, without movable containers."""
    tables = _tables()
    return {
        kind: frozenset(thing for thing in things if not thing.endswith("Sliced"))
        for kind, things in sorted(tables["VAL_RECEPTACLE_OBJECTS"].items())
        if kind not in tables["MOVABLE_RECEPTACLES_SET"]
    }


@cache
def with_property(property: str) -> frozenset[str]:
    """Returns the kinds of objects that are Heatable, Coolable, Cleanable, Toggleable or Sliceable."""
    return frozenset(_tables()["VAL_ACTION_OBJECTS"][property])


@cache
def container_kinds() -> frozenset[str]:
    """Returns the kinds of objects that are containers: bowl, box, cup, mug, pan, plate, pot."""
    return frozenset(_tables()["MOVABLE_RECEPTACLES_SET"])


@cache
def goal_texts(task_type: str) -> tuple[str, tuple[str, ...]]:
    """Returns the PDDL goal of a task type and its sentences, from the alfworld package.

    The goal closes the problem; its placeholders are {obj}, {recep} and {toggle}.
    """
    goal = _run("goal_library.py")["gdict"][task_type]
    return re.sub(r" #(?= )", " -", goal["pddl"]), tuple(goal["templates"])


@cache
def floor_plan(number: int) -> FloorPlan:
    """Returns a floor plan by number.

    Kitchens are 1 to 30, living rooms 201 to 230, bedrooms 301 to 330 and bathrooms 401 to 430.
    """
    room = next(room for room, plans in ROOMS.items() if number in plans)
    layouts = package_folder() / "gen" / "layouts"
    try:
        kinds = set(json.loads((layouts / f"FloorPlan{number}-objects.json").read_text()))
        placed = json.loads((layouts / f"FloorPlan{number}-openable.json").read_text())
    except (OSError, ValueError) as error:
        raise DataError(
            f"The alfworld package's floor plan {number} cannot be read ({error}): reinstall alfworld."
        ) from error
    fixed = []
    for name, (x, z, rotation, _) in sorted(placed.items()):
        kind = name.split("|")[0]
        basin = BASINS.get(kind)
        if basin and not name.endswith(basin):
            name += "|" + basin
        location = f"loc_bar_{coordinate(4 * x)}_bar_{coordinate(4 * z)}_bar_{coordinate(rotation / 90)}"
        fixed.append(FixedReceptacle(basin or kind, pddl_name(name), location, kind in OPENABLE))
    known = holders()
    fixed = [receptacle for receptacle in fixed if receptacle.kind in known]
    missing = (kinds & set(known)) - {receptacle.kind for receptacle in fixed} - OPENABLE
    portable = frozenset().union(*known.values()) - FLOOR_OBJECTS
    return FloorPlan(
        number,
        room,
        tuple(fixed),
        tuple(sorted(missing)),
        tuple(sorted(kinds & portable)),
        tuple(sorted(kinds & set(statistics()["fixtures"]))),
    )


def pddl_name(name: str) -> str:
    """Spells a name as PDDL does: 'Mug|+01.20|...' becomes 'Mug_bar__plus_01_dot_20...'."""
    return name.replace("|", "_bar_").replace("+", "_plus_").replace("-", "_minus_").replace(".", "_dot_")


def coordinate(number: float) -> str:
    """Spells a coordinate of a location: '5' or '_minus_5'."""
    return str(round(number)).replace("-", "_minus_")
