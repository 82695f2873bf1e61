"""Homes without loose objects: rooms and furniture, by number."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple, TypeVar

from envsuite.envs.virtualhome.home import Home, Thing
from envsuite.envs.virtualhome.homes.structure import split_of
from envsuite.envs.virtualhome.homes.vocabulary import (
    catalog,
    rooms_for,
    sorts_of_nouns,
    unseen_furniture,
    usual_places,
)

PROPERTIES = ("surface", "container", "door", "switch", "seat", "always_on", "process")
"""Entries of catalog.toml that become properties of a thing."""
HOMES = 1000  # number of homes per size, for seen and unseen rooms each
_T = TypeVar("_T")


class Dice:
    """Random choices of one seed; the same on every machine and version of Python."""

    def __init__(self, seed: int) -> None:
        self.random: Callable[[], float] = random.Random(seed).random
        """draws a number from 0.0 to 1.0, without 1.0"""

    def below(self, limit: int) -> int:
        """Draws an integer from 0 to `limit` - 1."""
        return int(self.random() * limit)

    def chance(self, probability: float) -> bool:
        """Draws True with a probability."""
        return self.random() < probability

    def pick(self, options: Sequence[_T]) -> _T:
        """Draws one of the options."""
        return options[int(self.random() * len(options))]

    def weighted(self, places: Places) -> str:
        """Draws a key by its weight."""
        left = self.random() * places.total
        for key, weight in places.weights:
            left -= weight
            if left < 0:
                return key
        return key

    def shuffled(self, options: Sequence[_T]) -> list[_T]:
        """Returns the options in a random order."""
        random = self.random
        keys = [random() for _ in options]
        return [options[i] for i in sorted(range(len(keys)), key=keys.__getitem__)]


class Places(NamedTuple):
    """Furniture where an object can start, with weights."""

    weights: tuple[tuple[str, float], ...]
    total: float

    @staticmethod
    def of(weights: dict[str, float]) -> Places:
        """Returns the places of a dictionary."""
        return Places(tuple(weights.items()), sum(weights.values()))


class FurnishedPlan:
    """Home without loose objects, and what depends on it alone.

    `kinds` lists the furniture that can fill a goal's slot of each kind.
    """

    def __init__(
        self,
        rooms: tuple[str, ...],
        things: dict[str, Thing],
        kinds: dict[str, tuple[str, ...]],
        split: str,
        replaced: dict[str, str],
    ) -> None:
        """`replaced` maps appliances of training to their replacements in this home."""
        self.rooms, self.things, self.kinds, self.split = rooms, things, kinds, split
        self._replaced = replaced
        self._candidates: dict[str, tuple[str, ...]] = {}
        self._usable: dict[Hashable, tuple[str, ...]] = {}

    @cached_property
    def usual(self) -> dict[str, dict[str, float]]:
        """Returns category -> the furniture where people keep such objects, with weights; "*": where any can be put."""
        anywhere = [*self.kinds.get("put", ()), *self.kinds.get("store", ())]
        usual = {"*": dict.fromkeys(anywhere, 1.0)}
        for sort in catalog()["goods"]:
            weights = {self._replaced.get(key, key): weight for key, weight in usual_places(sort).items()}
            usual[sort] = {key: weight for key, weight in weights.items() if key in self.things}
        return usual

    @cached_property
    def usual_by_door(self) -> dict[tuple[str, bool], Places]:
        """Returns (category, behind a door) -> the part of `usual` with or without a door, or all if there is none."""
        usual = self.usual
        return {(sort, door): self.by_door(usual[sort], door) for sort in usual for door in (False, True)}

    def by_door(self, places: dict[str, float], door: bool) -> Places:
        """Returns the places with or without a door, or all if there is none."""
        things = self.things
        return Places.of({key: weight for key, weight in places.items() if things[key].door == door} or places)

    def usable(self, source: Callable[[str, bool], tuple[str, ...]], name: str, unseen: bool) -> tuple[str, ...]:
        """Returns the nouns of `source(name, unseen)` whose objects people keep somewhere in this home."""
        usable = self._usable.get((source, name, unseen))
        if usable is None:
            sorts, usual = sorts_of_nouns(), self.usual
            usable = tuple([noun for noun in source(name, unseen) if usual[sorts[noun]]])
            self._usable[source, name, unseen] = usable
        return usable

    def candidates(self, kind: str) -> tuple[str, ...]:
        """Returns the furniture or rooms for a slot: "x|y" (x or y), or a kind and further kinds that it must have."""
        candidates = self._candidates.get(kind)
        if candidates is None:
            if "|" in kind:
                candidates = tuple([key for key in kind.split("|") if key in self.things])
            else:
                first, *more = [self.kinds.get(tag, ()) for tag in kind.split()]
                candidates = tuple([key for key in first if all(key in keys for keys in more)])
            self._candidates[kind] = candidates
        return candidates

    @cached_property
    def home(self) -> Home:
        """Returns the home without loose objects, on which the homes of all its games are built."""
        return Home({room: room for room in self.rooms}, self.things.values(), self.rooms[0])


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
        tuple(room_names), things, {kind: tuple(keys) for kind, keys in kinds.items()}, split_of(identity), names
    )


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
