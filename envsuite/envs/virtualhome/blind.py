"""Script of the blind player in a generated household: it knows the goal and common homes, and never looks around."""

from __future__ import annotations

from typing import Any

from envsuite.envs.virtualhome.generator import catalog
from envsuite.envs.virtualhome.rules.goals import HouseholdGoal, Stage

OBJECT_CONDITIONS = ("mark", "in", "on", "served", "held")


def blind_commands(goal: HouseholdGoal, open_storage: bool) -> list[str]:
    """Returns commands that work through the goal's parts in order.

    An object is sought in every room of training homes, behind doors too with `open_storage`. Furniture is visited in
    the rooms where the catalog has it.
    """
    commands: list[str] = []
    for stage in goal.stages:
        commands += _stage(stage, goal.text, open_storage)
    return commands


def _stage(stage: Stage, text: str, open_storage: bool) -> list[str]:
    items = list(dict.fromkeys(c.x for c in stage if c.kind in OBJECT_CONDITIONS))
    commands = ["stand up"] if any(c.kind == "seated" for c in stage) else []
    for item in items:
        commands += _fetch(item, open_storage)
        marks = [c for c in stage if c.kind == "mark" and c.x == item]
        places = [c for c in stage if c.kind in ("in", "on") and c.x == item]
        for number, condition in enumerate(marks):
            commands += _process(item, condition.y, text, take_out=bool(places) or number + 1 < len(marks))
        for condition in places:
            commands += [*_visit(condition.y), f"open the {condition.y}", _put(item, condition.y)]
    for condition in stage:
        if condition.kind in ("running", "off"):
            switch = "on" if condition.kind == "running" else "off"
            commands += [*_visit(condition.x), f"switch {switch} the {condition.x}"]
        elif condition.kind in ("open", "closed"):
            commands += [*_visit(condition.x), f"{'open' if condition.kind == 'open' else 'close'} the {condition.x}"]
        elif condition.kind == "room":
            commands.append(f"go to the {condition.x}")
    seats = [c.x for c in stage if c.kind == "seated"]
    return commands + [command for seat in seats for command in (*_visit(seat), f"sit on the {seat}")]


def _fetch(item: str, open_storage: bool) -> list[str]:
    commands = []
    for room in catalog()["rooms"]["seen"]:
        commands.append(f"go to the {room}")
        if open_storage:
            for key, spec in catalog()["things"].items():
                if spec.get("storage") and spec["in"][0] == room:
                    commands += [f"go to the {key}", f"open the {key}"]
        commands += [f"go to the {item}", f"take the {item}"]
    return commands


def _process(item: str, process: str, text: str, take_out: bool) -> list[str]:
    """Returns the commands that use the appliance of the goal's text on an item."""
    devices = [key for key in catalog()["things"] if _spec(key).get("process") == process]
    device = next((key for key in devices if f"the {key}" in text), devices[0])
    commands = [*_visit(device), f"open the {device}", _put(item, device), f"close the {device}"]
    commands.append(f"switch on the {device}")
    if take_out:
        commands += [f"switch off the {device}", f"open the {device}", f"take the {item}"]
    return commands


def _visit(thing: str) -> list[str]:
    """Returns walks to a piece of furniture: through its possible rooms, the most likely last, then to it."""
    return [*(f"go to the {room}" for room in reversed(_spec(thing)["in"])), f"go to the {thing}"]


def _put(item: str, thing: str) -> str:
    return f"put the {item} {'in' if _spec(thing).get('container') else 'on'} the {thing}"


def _spec(thing: str) -> dict[str, Any]:
    """Returns the catalog's entry; an unseen appliance has its room and uses from the one that it replaces."""
    things: dict[str, Any] = catalog()["things"]
    spec: dict[str, Any] = things[thing]
    return {**things[spec["for"]], **spec} if "for" in spec else spec
