"""What rooms hold: the floor plans and object tables of the alfworld package, and the statistics of the official games.

The package's data files are read where they lie; the package itself is never imported (that would set ALFWORLD_DATA).
"""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.errors import DataError

HELD_OUT_PLANS = frozenset({10, 219, 308, 424})
"""the floor plans of valid_unseen: never used outside test splits"""
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
SEVERAL = {"StoveBurner": (4,), "HandTowelHolder": (1, 1, 2), "TowelHolder": (1, 1, 2)}
"""receptacles no floor plan places, and how many there are where a plan mentions them; of others there is one"""
ON_THE_FLOOR = frozenset({"BaseballBat", "BasketBall", "TennisRacket"})
"""portable things that in official rooms lie on the floor, out of every command's reach"""


class Spot(NamedTuple):
    """A receptacle of a floor plan."""

    kind: str
    id: str
    place: str
    """where one stands before it: 'loc_bar_X_bar_Z_bar_R', to which a horizon is added"""
    openable: bool


class FloorPlan(NamedTuple):
    """One of the 120 rooms."""

    number: int
    room: str
    spots: tuple[Spot, ...]
    unplaced: tuple[str, ...]
    """kinds of receptacle the room has, at no known place"""
    things: tuple[str, ...]
    """kinds of portable objects that some kind of receptacle may hold, sorted"""
    fixtures: tuple[str, ...]
    """kinds of things that stand about and are never put down again, or never taken at all"""


@cache
def statistics() -> dict[str, Any]:
    """`rooms.json`: frequencies in official games, the generator's weights."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / "rooms.json").read_text())
    return found


@cache
def package_folder() -> Path:
    """Where the alfworld package lies. Raises ModuleNotFoundError where it is not installed."""
    spec = importlib.util.find_spec("alfworld")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'alfworld'", name="alfworld")
    return Path(spec.submodule_search_locations[0])


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
    """Kind of receptacle -> kinds of objects it may hold; vessels (bowl, pot, ...), which hold nothing here, left out."""
    tables = _tables()
    return {
        kind: frozenset(thing for thing in things if not thing.endswith("Sliced"))
        for kind, things in sorted(tables["VAL_RECEPTACLE_OBJECTS"].items())
        if kind not in tables["MOVABLE_RECEPTACLES_SET"]
    }


@cache
def having(property: str) -> frozenset[str]:
    """Kinds of objects that are Heatable, Coolable, Cleanable, Toggleable or Sliceable."""
    return frozenset(_tables()["VAL_ACTION_OBJECTS"][property])


@cache
def vessels() -> frozenset[str]:
    """Kinds of objects that count as receptacles themselves: bowl, box, cup, mug, pan, plate, pot."""
    return frozenset(_tables()["MOVABLE_RECEPTACLES_SET"])


@cache
def goal_texts(task_type: str) -> tuple[str, tuple[str, ...]]:
    """A task type's PDDL goal with {obj}, {recep}, {toggle}, closing the problem, and its sentences, from the package."""
    goal = _run("goal_library.py")["gdict"][task_type]
    return re.sub(r" #(?= )", " -", goal["pddl"]), tuple(goal["templates"])


@cache
def floor_plan(number: int) -> FloorPlan:
    """Floor plan 1-30 (kitchens), 201-230 (living rooms), 301-330 (bedrooms) or 401-430 (bathrooms)."""
    room = next(room for room, plans in ROOMS.items() if number in plans)
    layouts = package_folder() / "gen" / "layouts"
    try:
        kinds = set(json.loads((layouts / f"FloorPlan{number}-objects.json").read_text()))
        placed = json.loads((layouts / f"FloorPlan{number}-openable.json").read_text())
    except (OSError, ValueError) as error:
        raise DataError(
            f"The alfworld package's floor plan {number} cannot be read ({error}): reinstall alfworld."
        ) from error
    spots = []
    for name, (x, z, rotation, _) in sorted(placed.items()):
        kind = name.split("|")[0]
        basin = BASINS.get(kind)
        if basin and not name.endswith(basin):
            name += "|" + basin
        place = f"loc_bar_{whole(4 * x)}_bar_{whole(4 * z)}_bar_{whole(rotation / 90)}"
        spots.append(Spot(basin or kind, mangled(name), place, kind in OPENABLE))
    known = holders()
    spots = [spot for spot in spots if spot.kind in known]
    missing = (kinds & set(known)) - {spot.kind for spot in spots} - OPENABLE
    portable = frozenset().union(*known.values()) - ON_THE_FLOOR
    return FloorPlan(
        number,
        room,
        tuple(spots),
        tuple(sorted(missing)),
        tuple(sorted(kinds & portable)),
        tuple(sorted(kinds & set(statistics()["fixtures"]))),
    )


def mangled(name: str) -> str:
    """'Mug|+01.20|...' as PDDL spells it: 'Mug_bar__plus_01_dot_20...'."""
    return name.replace("|", "_bar_").replace("+", "_plus_").replace("-", "_minus_").replace(".", "_dot_")


def whole(number: float) -> str:
    """A coordinate of a location: '5' or '_minus_5'."""
    return str(round(number)).replace("-", "_minus_")
