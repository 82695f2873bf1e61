"""Writes a furnished room as the text of a `game.tw-pddl` file in the official layout."""

from __future__ import annotations

import json
from functools import cache
from typing import NamedTuple

from envsuite.envs.alfworld.games import logic
from envsuite.envs.alfworld.games.floorplans import container_kinds, holders, with_property

LAMP = "DeskLamp"
"""The lamp that tasks ask for."""


class Room(NamedTuple):
    """Contents of a room by id; kinds are spelled as in the floor plans ('CounterTop')."""

    start: str
    """location of the player"""
    receptacles: dict[str, tuple[str, bool]]
    """id -> kind, openable"""
    location: dict[str, str]
    """of each receptacle"""
    objects: dict[str, str]
    """id -> kind"""
    inside: list[tuple[str, str]]
    """(object, receptacle)"""
    cold: frozenset[str]
    """objects that are cool at the start"""
    portable: frozenset[str]
    """kinds of objects that can be taken"""
    target: str
    """kind of object the task asks for"""


def game_text(room: Room, name: str, goal: str, task: str, dialect: str) -> str:
    """Returns the text of the game file.

    `goal` is PDDL and closes the problem `name`; `task` is a sentence without a full stop.
    """
    head, tail = _logic(dialect)
    escaped = _problem(name, room, goal).replace(
        "\n", "\\n"
    )  # the only escape that ASCII text without quotes needs in JSON
    return f'{head}{task}.{tail}, "pddl_problem": "{escaped}", "solvable": true}}'


def _problem(name: str, room: Room, goal: str) -> str:
    may = holders()
    clean, heat, cool, slice_, toggle = map(
        with_property, ("Cleanable", "Heatable", "Coolable", "Sliceable", "Toggleable")
    )
    vessel = container_kinds()
    locations = sorted({*room.location.values(), room.start})
    object_kinds = sorted({*room.objects.values()})
    receptacle_kinds = sorted({kind for kind, _ in room.receptacles.values()})
    # As in official games, a sink is also an object; the domain names its type in every room.
    otypes = sorted({*object_kinds, "Sink", "Knife", "ButterKnife", room.target, LAMP})
    rtypes = sorted({*receptacle_kinds, "SinkBasin", "Microwave", "Fridge"})
    lines = [f"(define (problem {name})", "(:domain alfred)", "(:objects", "agent1 - agent"]
    lines += [f"{kind}Type - otype" for kind in otypes]
    lines += [f"{kind}Type - rtype" for kind in rtypes]
    lines += [f"{id} - object" for id in room.objects]
    lines += [f"{id} - receptacle" for id in room.receptacles]
    lines += [f"{id} - location" for id in locations]
    lines += [")", "(:init"]
    for id, (kind, openable) in room.receptacles.items():
        lines.append(f"(receptacleType {id} {kind}Type)\n(receptacleAtLocation {id} {room.location[id]})")
        if openable:
            lines.append(f"(openable {id})")
    for id, kind in room.objects.items():
        lines.append(f"(objectType {id} {kind}Type)")
        if kind in room.portable:
            lines.append(f"(pickupable {id})")
        if kind in vessel:
            lines.append(f"(isReceptacleObject {id})")
        for kinds, predicate in (
            (clean, "cleanable"),
            (heat, "heatable"),
            (cool, "coolable"),
            (slice_, "sliceable"),
            (toggle, "toggleable"),
        ):
            if kind in kinds:
                lines.append(f"({predicate} {id})")
    for kind in receptacle_kinds:
        lines += [f"(canContain {kind}Type {thing}Type)" for thing in object_kinds if thing in may[kind]]
    for id, receptacle in room.inside:
        lines.append(f"(inReceptacle {id} {receptacle})\n(objectAtLocation {id} {room.location[receptacle]})")
        if id in room.cold:
            lines.append(f"(isCool {id})")
    lines += [f"(atLocation agent1 {room.start})", ")"]
    return "\n".join(lines) + "\n" + goal


@cache
def _logic(dialect: str) -> tuple[str, str]:
    """Returns the parts of the JSON text before and after the task sentence, equal for all games."""
    domain, grammar = logic.package_logic(dialect)
    head, _, tail = logic.split_task(grammar)
    before = '{"pddl_domain": ' + json.dumps(domain) + ', "grammar": ' + json.dumps(head).removesuffix('"')
    return before, json.dumps(tail).removeprefix('"')
