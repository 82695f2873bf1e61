"""Script of the blind player: it knows the goal and what homes are like, and never looks around."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from envsuite.envs.virtualhome.homes.conditions import Condition
from envsuite.envs.virtualhome.homes.goals import Alternatives, OrderedGoal, Part
from envsuite.envs.virtualhome.homes.vocabulary import (
    catalog,
    category,
    furniture_spec,
    noun_of,
    nouns,
    rooms_for,
    usual_places,
    vocabulary,
)

_GUESSES = (1, 2, 3, 5, 8)  # names tried for an object
_PROBES = (1, 2, 3, 4, 6, 10)  # places where it is sought
_OBJECT_CONDITIONS = ("mark", "in", "on", "held")


def blind_commands(goal: OrderedGoal, max_steps: int) -> list[str]:
    """Returns commands that work through the goal's parts in order.

    The goal states neither the full names of objects nor their places. The script tries some names at some places
    where people keep such things. Among the scripts that fit into `max_steps`, the function returns the script with
    the highest chance to find all objects.
    """
    scripts = [_Script(goal, guesses, probes) for guesses, probes in product(_GUESSES, _PROBES)]
    fitting = [script for script in scripts if len(script.commands) <= max_steps]
    return max(fitting or scripts[:1], key=lambda script: script.chance).commands


class _Script:
    """Script with a number of names tried for each object and of places where it is sought."""

    def __init__(self, goal: OrderedGoal, guesses: int, probes: int) -> None:
        self.guesses, self.probes, self.text = guesses, probes, goal.text
        self.chance = 1.0
        self.commands: list[str] = []
        for part in goal.parts:
            self._add_part(part)

    def _add_part(self, part: Part) -> None:
        plain = [requirement for requirement in part if isinstance(requirement, Condition)]
        if any(c.kind == "seated" for c in plain):
            self.commands.append("stand up")
        closed = [c for c in plain if c.kind == "closed"]
        for requirement in part:
            if isinstance(requirement, Alternatives):
                self._add_choice(requirement, closed)
        for item in dict.fromkeys(c.x for c in plain if c.kind in _OBJECT_CONDITIONS):
            self._add_object(_names([noun_of(item)]), 1, [*(c for c in plain if c.x == item), *closed])
        for kind, key, _ in plain:
            if kind == "bare":
                self.commands += _clear(key)
            elif kind in ("running", "off"):
                self.commands += [*_visit(key), f"switch {'on' if kind == 'running' else 'off'} {key}"]
            elif kind == "room":
                self.commands.append(f"go to {key}")
        for kind, key, _ in plain:
            if kind == "seated":
                self.commands += [*_visit(key), f"sit on {key}"]

    def _add_choice(self, choice: Alternatives, closed: list[Condition]) -> None:
        first = choice.options[0]
        noun = noun_of(first[0].x)
        if not choice.ranked and any(noun_of(option[0].x) != noun for option in choice.options):
            noun_list = _members(noun)
        else:
            noun_list = [noun]
        self._add_object(_names(noun_list), choice.count, [*first, *closed])

    def _add_object(self, names: list[str], count: int, conditions: list[Condition]) -> None:
        """Adds the search for `count` objects of some names, and the commands that use them."""
        tried = names[: self.guesses * count]
        places = _places(noun_of(names[0]))
        best = sorted(places, key=lambda pair: -places[pair])[: self.probes]
        self.chance *= (len(tried) / len(names) * sum(places[pair] for pair in best)) ** count
        for room in dict.fromkeys(room for room, _ in best):
            self.commands.append(f"go to {room}")
            for key in (key for where, key in best if where == room):
                opening = [f"open {key}"] if furniture_spec(key).get("door") else []
                self.commands += [f"go to {key}", *opening, *(f"take {name}" for name in tried)]
        self.commands += self._use(tried, conditions)

    def _use(self, names: list[str], conditions: Iterable[Condition]) -> list[str]:
        """Returns commands that treat the objects in hand as the conditions say and put them in place."""
        conditions = list(conditions)
        places = [c for c in conditions if c.kind in ("in", "on")]
        marks = [c for c in conditions if c.kind == "mark"]
        commands = []
        for number, mark in enumerate(marks):
            devices = [key for key in catalog()["things"] if furniture_spec(key).get("process") == mark.y]
            device = next((key for key in devices if f"the {key}" in self.text), devices[0])
            use = [f"open {device}", *_put(names, device), f"close {device}", f"switch on {device}"]
            if places or number + 1 < len(marks):
                use += [f"switch off {device}", f"open {device}", *(f"take {name}" for name in names)]
            commands += _wherever(device, use)
        closed = [f"close {c.x}" for c in conditions if c.kind == "closed"]
        for place in places:
            commands += _wherever(place.y, [f"open {place.y}", *_put(names, place.y), *closed])
        return [command for command in commands if not _pointless(command)]


def _pointless(command: str) -> bool:
    """Returns True for opening, closing and switching what has no door or switch."""
    for verb, flag in (("open", "door"), ("close", "door"), ("switch on", "switch"), ("switch off", "switch")):
        if command.startswith(f"{verb} "):
            return not furniture_spec(command.removeprefix(f"{verb} ")).get(flag)
    return False


def _names(noun_list: list[str]) -> list[str]:
    """Returns everything that an object with one of some nouns can be called."""
    modifiers = vocabulary()["modifiers"]
    return [f"{modifier} {noun}" for noun in noun_list for modifier in modifiers[category(noun)]]


def _members(noun: str) -> list[str]:
    """Returns the nouns of training that an object's kind has."""
    seen = set(nouns("*", unseen=False))
    kind = next(kind for kind in vocabulary()["kinds"].values() if noun in kind["members"])
    return [member for member in kind["members"] if member in seen] or [noun]


def _places(noun: str) -> dict[tuple[str, str], float]:
    """Returns (room, furniture) -> weight for the objects of a noun; all weights add up to at most 1."""
    places = usual_places(category(noun))
    rooms = catalog()["rooms"]["seen"]
    shares = {
        (room, key): weight / len(rooms_for(key)) * furniture_spec(key).get("chance", 1.0)
        for key, weight in places.items()
        for room in rooms_for(key)
        if room in rooms
    }
    return {pair: share / sum(places.values()) for pair, share in shares.items()}


def _clear(place: str) -> list[str]:
    """Returns commands that try to take from a place what people often keep there."""
    sorts = [sort for sort in catalog()["goods"] if place in usual_places(sort)]
    items = _names([noun for sort in sorts for noun in nouns(sort, unseen=False)])
    return [*_visit(place), *(f"take {item}" for item in items[:20])]


def _visit(thing: str) -> list[str]:
    """Returns walks to a piece of furniture: through its possible rooms, the most likely last, then to it."""
    return [*(f"go to {room}" for room in reversed(rooms_for(thing))), f"go to {thing}"]


def _wherever(thing: str, use: list[str]) -> list[str]:
    """Returns commands that try to use a piece of furniture in every room where it can stand."""
    return [command for room in rooms_for(thing) for command in (f"go to {room}", f"go to {thing}", *use)]


def _put(names: list[str], thing: str) -> list[str]:
    where = "in" if furniture_spec(thing).get("container") else "on"
    return [f"put {name} {where} {thing}" for name in names]
