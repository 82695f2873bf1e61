"""Homes without loose objects: rooms and furniture of version 1, by number."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar

from envsuite.envs.virtualhome.generator import PROPERTIES, catalog
from envsuite.envs.virtualhome.household.structure import split_of
from envsuite.envs.virtualhome.household.vocabulary import rooms_for, sorts_of_nouns, unseen_furniture, usual_places
from envsuite.envs.virtualhome.rules.home import Home, Thing

HOMES = 1000  # number of homes per size, for seen and unseen rooms each
_T = TypeVar("_T")


class Dice:
    """Random choices of one seed; the same on every machine and version of Python."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def below(self, limit: int) -> int:
        """Draws an integer from 0 to `limit` - 1."""
        return int(self._random() * limit)

    def chance(self, probability: float) -> bool:
        """Draws True with a probability."""
        return self._random() < probability

    def pick(self, options: Sequence[_T]) -> _T:
        """Draws one of the options."""
        return options[int(self._random() * len(options))]

    def weighted(self, weights: dict[str, float]) -> str:
        """Draws a key by its weight."""
        left = self._random() * sum(weights.values())
        for key, weight in weights.items():
            left -= weight
            if left < 0:
                return key
        return key

    def shuffled(self, options: Sequence[_T]) -> list[_T]:
        """Returns the options in a random order."""
        random = self._random
        keys = [random() for _ in options]
        return [options[i] for i in sorted(range(len(keys)), key=keys.__getitem__)]


class FurnishedPlan(NamedTuple):
    """Home without loose objects; `kinds` lists the furniture that can fill a goal's slot of each kind."""

    rooms: tuple[str, ...]
    things: dict[str, Thing]
    kinds: dict[str, tuple[str, ...]]
    split: str


@cache
def _furniture() -> tuple[tuple[str, dict[str, Any], tuple[str, ...] | None, dict[str, Any]], ...]:
    """Returns key, catalog entry, possible rooms (None: for held-out homes only) and properties of all furniture.

    Seats come last, because a seat is in the room of the thing that it faces.
    """
    specs = catalog()["things"]
    return tuple(
        (
            key,
            specs[key],
            None if "for" in specs[key] else rooms_for(key),
            {flag: specs[key][flag] for flag in PROPERTIES if flag in specs[key]},
        )
        for key in sorted(specs, key=lambda key: "faces" in specs[key])
    )


@lru_cache(maxsize=4096)
def layout(plan: int, rooms: int, split: str) -> FurnishedPlan:
    """Returns home number `plan` with `rooms` rooms. Only unseen_home and unseen_appliance alter homes."""
    dice = Dice(plan * 100 + rooms * 2 + (split == "unseen_home"))
    first, *optional = catalog()["rooms"]["seen"]
    room_names = [first, *dice.shuffled(optional)[: rooms - 1]]
    if split == "unseen_home":
        foreign = dice.shuffled(catalog()["rooms"]["unseen"])
        number = min(rooms - 1, 1 + dice.below(2))
        room_names[1 : 1 + number] = foreign[:number]
    names = unseen_furniture() if split == "unseen_appliance" else {}
    things: dict[str, Thing] = {}
    kinds: dict[str, list[str]] = {"room": list(room_names)}
    for key, spec, possible, properties in _furniture():
        present = dice.chance(spec.get("chance", 1.0))
        if not present or possible is None:
            continue
        rooms_here = [room for room in possible if room in room_names]
        if not rooms_here:
            continue
        room = dice.pick(rooms_here)
        on: tuple[str, ...] = ()
        if "on" in spec:
            support = names.get(spec["on"], spec["on"])
            if support not in things:
                continue
            room, on = things[support].room, (support,)
        faces = names.get(spec.get("faces", ""), spec.get("faces", ""))
        if faces in things:
            room = things[faces].room
        name = names.get(key, key)
        things[name] = thing = Thing(name, room, on=on, faces=faces, **properties)
        for kind in _kinds_of(thing, spec):
            kinds.setdefault(kind, []).append(name)
    identity = repr((room_names[0], sorted(room_names), sorted((thing.key, thing.room) for thing in things.values())))
    return FurnishedPlan(
        tuple(room_names), things, {kind: tuple(keys) for kind, keys in kinds.items()}, split_of(identity)
    )


@lru_cache(maxsize=4096)
def places_in(plan: int, rooms: int, split: str) -> dict[str, dict[str, float]]:
    """Returns category -> the furniture of home number `plan` where people keep such objects, with weights."""
    things = layout(plan, rooms, split).things
    new = unseen_furniture() if split == "unseen_appliance" else {}
    places = {}
    for sort in catalog()["goods"]:
        weights = {new.get(key, key): weight for key, weight in usual_places(sort).items()}
        places[sort] = {key: weight for key, weight in weights.items() if key in things}
    return places


@lru_cache(maxsize=4096)
def places_by_door(plan: int, rooms: int, split: str) -> dict[tuple[str, bool], dict[str, float]]:
    """Returns (category, behind a door) -> the part of `places_in` with or without a door."""
    things = layout(plan, rooms, split).things
    return {
        (sort, door): {key: weight for key, weight in places.items() if things[key].door == door}
        for sort, places in places_in(plan, rooms, split).items()
        for door in (False, True)
    }


@lru_cache(maxsize=4096)
def usable_nouns(plan: int, rooms: int, split: str) -> frozenset[str]:
    """Returns the nouns of the objects that people keep somewhere in home number `plan`."""
    places = places_in(plan, rooms, split)
    return frozenset(noun for noun, sort in sorts_of_nouns().items() if places[sort])


@lru_cache(maxsize=4096)
def empty_home(plan: int, rooms: int, split: str) -> Home:
    """Returns home number `plan` without loose objects, on which the homes of all its games are built."""
    furnished = layout(plan, rooms, split)
    return Home({room: room for room in furnished.rooms}, furnished.things.values(), furnished.rooms[0])


def _kinds_of(thing: Thing, spec: dict[str, Any]) -> list[str]:
    kinds = list(spec.get("tags", ()))
    if thing.process:
        kinds.append(thing.process)
    elif thing.container:
        kinds.append("store" if thing.door else "put")
    elif thing.surface:
        kinds += ["put", "clear"]
    if thing.seat:
        kinds += ["seat", f"seat at {thing.faces}"]
    return kinds
