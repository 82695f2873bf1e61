"""Static description of a home: rooms, furniture and objects, with the properties of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

FLAGS = ("surface", "container", "door", "switch", "seat", "target", "always_on")
"""properties of things that a home stores as bit masks"""
_flags_of = attrgetter(*FLAGS)


class Thing(NamedTuple):
    """Piece of furniture, appliance or loose object, with its initial place."""

    key: str
    """unique within the home"""
    room: str
    noun: str = ""
    """name in texts; empty: the key"""
    on: tuple[str, ...] = ()
    """keys of the things that support it, in order"""
    inside: str = ""
    """key of its container"""
    movable: bool = False
    surface: bool = False
    container: bool = False
    door: bool = False
    """container that opens and closes; a container without a door is always open"""
    switch: bool = False
    seat: bool = False
    faces: str = ""
    """key of the thing that a seated agent faces"""
    process: str = ""
    """process that this appliance applies to its contents, e.g. 'heat'"""
    always_on: bool = False
    """works whenever its door is closed, like a fridge"""
    sort: str = ""
    """category of a loose object: food, drink, dish, ..."""
    target: bool = True
    """commands can refer to it; otherwise it is scenery"""
    opened: bool = False
    powered: bool = False

    @property
    def words(self) -> str:
        return self.noun or self.key


class Home:
    """Rooms and things as bits of an integer: rooms first, then what stays where it is, then what can be carried.

    `bit[key]` is the bit of a room or thing, `names[i]` the key of bit i, `nouns[bit]` how it is called.
    """

    def __init__(self, rooms: Mapping[str, str], things: Iterable[Thing], start: str) -> None:
        """`rooms` maps keys to nouns; `start` is the key of the agent's first room."""
        ordered = sorted(
            things, key=lambda thing: thing.movable
        )  # a stable sort: the given order is preserved otherwise
        by_key = {thing.key: thing for thing in ordered}
        self._layers: tuple[Mapping[str, Thing], ...] = (by_key,)
        self.rooms = dict(rooms)
        self.start = start
        self.names = (*rooms, *by_key)
        self.bit = {name: 1 << i for i, name in enumerate(self.names)}
        self.nouns = {self.bit[key]: noun for key, noun in rooms.items()}
        self.nouns |= {self.bit[key]: thing.words for key, thing in by_key.items()}
        self.room_mask = (1 << len(rooms)) - 1
        self.room_bits = tuple(self.bit[room] for room in rooms)
        fixed = [thing for thing in ordered if not thing.movable]
        self.movables = tuple(thing for thing in ordered if thing.movable)
        self.movable_keys = tuple(thing.key for thing in self.movables)
        self.first_movable = len(rooms) + len(fixed)
        self.movable_bits = tuple(self.bit[key] for key in self.movable_keys)
        self.movable = sum(self.movable_bits)
        flags = dict.fromkeys(FLAGS, 0)
        for thing in ordered:
            bit = self.bit[thing.key]
            for flag, holds in zip(FLAGS, _flags_of(thing), strict=True):
                if holds:
                    flags[flag] |= bit
        self.surface, self.container, self.door, self.switch, self.seat, self.target, self.always_on = flags.values()
        self.faces = {self.bit[t.key]: self.bit[t.faces] for t in ordered if t.faces in self.bit}
        self.opened = sum(self.bit[t.key] for t in ordered if t.opened)
        self.powered = sum(self.bit[t.key] for t in ordered if t.powered)
        self.process = {self.bit[t.key]: t.process for t in ordered if t.process}
        self.devices = {t.process: t.key for t in reversed(ordered) if t.process}
        """process -> key of the first appliance that applies it"""
        self.processes = tuple(sorted({t.process for t in ordered if t.process}))
        self.fixed_in = dict.fromkeys(self.room_bits, 0)
        for thing in fixed:
            self.fixed_in[self.bit[thing.room]] |= self.bit[thing.key]
        self.room_of = {self.bit[thing.key]: self.bit[thing.room] for thing in fixed}
        self.supports = {self.bit[thing.key]: self.support(thing) for thing in fixed}
        self.root = {self.bit[thing.key]: self._root(thing, by_key) for thing in fixed}
        self.at_root: dict[int, int] = {}
        for bit, root in self.root.items():
            self.at_root[root] = self.at_root.get(root, 0) | bit

    @cached_property
    def things(self) -> dict[str, Thing]:
        """Returns all furniture and objects by key, collected on first use: to play, most games need the bits only."""
        return {key: thing for layer in self._layers for key, thing in layer.items()}

    def furnished(self, objects: Mapping[str, Thing], start: str, changed: Mapping[str, Thing] | None = None) -> Home:
        """Returns a home with the rooms and furniture of this one, which has no loose objects, and with objects.

        The objects have no other use than to be carried. `changed` is furniture that is open or on at the start.
        """
        home = Home.__new__(Home)
        home.__dict__.update(self.__dict__)
        home.__dict__.pop("things", None)
        home.start = start
        home._layers = (*self._layers, changed or {}, objects)
        for key, thing in (changed or {}).items():
            home.opened |= self.bit[key] * thing.opened
            home.powered |= self.bit[key] * thing.powered
        first, number = self.first_movable, len(objects)
        bits = tuple(1 << i for i in range(first, first + number))
        home.movables, home.movable_keys, home.movable_bits = tuple(objects.values()), tuple(objects), bits
        home.names = (*self.names, *objects)
        home.bit = {**self.bit, **dict(zip(objects, bits, strict=True))}
        home.nouns = {**self.nouns, **{bit: thing.words for bit, thing in zip(bits, home.movables, strict=True)}}
        home.movable = (1 << first + number) - (1 << first)
        home.target = self.target | home.movable
        return home

    def support(self, thing: Thing) -> int:
        """Returns the things that support a thing at the start."""
        return sum([self.bit[key] for key in thing.on])

    def _root(self, thing: Thing, things: Mapping[str, Thing]) -> int:
        """Returns the furniture that supports a fixed thing at floor level, or the thing itself."""
        while thing.on:
            thing = things[thing.on[0]]
        return self.bit[thing.key]

    def bits(self, mask: int) -> list[int]:
        """Returns the single bits of a mask, lowest first."""
        bits = []
        while mask:
            bit = mask & -mask
            bits.append(bit)
            mask ^= bit
        return bits

    def keys(self, mask: int) -> list[str]:
        """Returns the keys of the rooms and things in a mask."""
        return [self.names[bit.bit_length() - 1] for bit in self.bits(mask)]

    def rename(self, nouns: Mapping[str, str]) -> Home:
        """Returns a copy of the home with some keys and nouns replaced."""

        def new(key: str) -> str:
            return nouns.get(key, key)

        things = [
            t._replace(key=new(t.key), noun=nouns.get(t.key, t.noun), on=tuple(map(new, t.on)), inside=new(t.inside))
            for t in self.things.values()
        ]
        return Home(self.rooms, things, self.start)
