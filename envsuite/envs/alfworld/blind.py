"""Script of the blind player: it reads the task's sentence and visits the receptacles that most rooms have."""

from __future__ import annotations

import re

OPEN_PLACES = (
    "countertop 1", "sidetable 1", "desk 1", "diningtable 1", "coffeetable 1", "dresser 1", "bed 1", "sofa 1",
    "shelf 1", "armchair 1", "cabinet 1", "drawer 1", "toilet 1", "bathtubbasin 1", "countertop 2", "shelf 2",
)  # fmt: skip
CLOSED_PLACES = (
    "fridge 1", "cabinet 1", "drawer 1", "cabinet 2", "drawer 2", "cabinet 3", "drawer 3", "microwave 1", "safe 1",
    "cabinet 4", "drawer 4", "cabinet 5",
)  # fmt: skip
ALL_PLACES = (
    "countertop 1", "fridge 1", "cabinet 1", "drawer 1", "sidetable 1", "desk 1", "cabinet 2", "drawer 2", "dresser 1",
    "diningtable 1", "cabinet 3", "drawer 3", "countertop 2", "shelf 1", "cabinet 4",
)  # fmt: skip
"""Receptacles that the script visits: where nothing is hidden, where most targets are, and otherwise."""
_CLOSED = ("fridge", "cabinet", "drawer", "microwave", "safe")
MOSTLY_HIDDEN = 0.6
"""share of hidden targets from which the script visits closed receptacles only"""
TOOLS = {"clean": "sinkbasin 1", "heat": "microwave 1", "cool": "fridge 1"}


def blind_commands(objective: str, put: str, hidden: float) -> list[str]:
    """Returns commands for a sentence such as "put a clean apple in fridge."; `put` is the form of the put command.

    `hidden` is the task's share of hidden targets; -1: as in the official games.
    """
    words = re.findall(r"[a-z]+", objective.lower())
    verb = next((word for word in words if word in TOOLS or word in ("hot", "cool")), "")
    verb = {"hot": "heat"}.get(verb, verb)
    names = [word for word in words if word not in _FILLERS]
    if not names:
        return ["look"]
    item = f"{names[0]} 1"
    commands = []
    sweep = OPEN_PLACES if hidden == 0 else CLOSED_PLACES if hidden > MOSTLY_HIDDEN else ALL_PLACES
    for place in sweep:
        opening = [f"open {place}"] if sweep is not OPEN_PLACES and place.startswith(_CLOSED) else []
        commands += [f"go to {place}", *opening, f"take {item} from {place}"]
    if "desklamp" in words:
        return [*commands, "go to sidetable 1", "use desklamp 1", "go to desk 1", "use desklamp 1"]
    if verb:
        commands += [f"go to {TOOLS[verb]}", f"{verb} {item} with {TOOLS[verb]}"]
    if len(names) > 1:
        target = f"{names[-1]} 1"
        move = put.replace("(object)", item).replace("(receptacle)", target)
        commands += [f"go to {target}", f"open {target}", move]
    return commands


_FILLERS = frozenset(
    [
        "put",
        "a",
        "an",
        "the",
        "some",
        "two",
        "in",
        "on",
        "it",
        "and",
        "them",
        "with",
        "at",
        "under",
        "look",
        "examine",
        "find",
        "clean",
        "hot",
        "heat",
        "cool",
        "heated",
        "cooled",
        "cleaned",
        "desklamp",
        "to",
        "of",
        "then",
    ]
)
