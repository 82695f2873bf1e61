"""Script of the blind player: it reads the task's sentence and visits the receptacles that most rooms have."""

from __future__ import annotations

import re

PLACES = (
    "countertop 1", "sidetable 1", "desk 1", "diningtable 1", "coffeetable 1", "dresser 1", "bed 1", "sofa 1",
    "shelf 1", "armchair 1", "cabinet 1", "drawer 1", "toilet 1", "bathtubbasin 1", "countertop 2", "shelf 2",
)  # fmt: skip
TOOLS = {"clean": "sinkbasin 1", "heat": "microwave 1", "cool": "fridge 1"}


def blind_commands(objective: str, put: str) -> list[str]:
    """Returns commands for a sentence such as "put a clean apple in fridge."; `put` is the form of the put command."""
    words = re.findall(r"[a-z]+", objective.lower())
    verb = next((word for word in words if word in TOOLS or word in ("hot", "cool")), "")
    verb = {"hot": "heat"}.get(verb, verb)
    names = [word for word in words if word not in _FILLERS]
    if not names:
        return ["look"]
    item = f"{names[0]} 1"
    commands = []
    for place in PLACES:
        commands += [f"go to {place}", f"take {item} from {place}"]
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
