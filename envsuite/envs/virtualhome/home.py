"""What a home is: rooms, furniture and goods, and what can be done to each. Nothing here changes in an episode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

FLAGS = ("surface", "container", "door", "switch", "seat", "target", "always_on")
"""the properties of things that a home keeps as masks"""


@dataclass(frozen=True)
class Thing:
    """A piece of furniture, an appliance, or a loose object, and where it is at the start."""

    key: str
    """unique in its home"""
    room: str
    noun: str = ""
    """as it is called in text; the key unless told"""
    on: tuple[str, ...] = ()
    """keys of what it stands on, the first one first"""
    inside: str = ""
    """key of the container it lies in"""
    movable: bool = False
    surface: bool = False
    container: bool = False
    door: bool = False
    """a container that opens and closes; one without is always open"""
    switch: bool = False
    seat: bool = False
    faces: str = ""
    """key of what one faces when seated here"""
    process: str = ""
    """what this appliance does to what is put in it or on it, e.g. 'heat'"""
    always_on: bool = False
    """works whenever its door is shut, as a fridge does"""
    sort: str = ""
    """of a loose object: food, drink, dish, ..."""
    target: bool = True
    """commands may name it; else it is scenery"""
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
        """`rooms` maps keys to nouns; `start` is the room the agent begins in."""
        listed = sorted(things, key=lambda thing: thing.movable)  # stable: the order given is kept otherwise
        self.things = {thing.key: thing for thing in listed}
        self.rooms = dict(rooms)
        self.start = start
        self.names = (*rooms, *self.things)
        self.bit = {name: 1 << i for i, name in enumerate(self.names)}
        self.nouns = {self.bit[key]: noun for key, noun in rooms.items()}
        self.nouns |= {self.bit[key]: thing.words for key, thing in self.things.items()}
        self.room_mask = (1 << len(rooms)) - 1
        self.room_bits = tuple(self.bit[room] for room in rooms)
        fixed = [thing for thing in listed if not thing.movable]
        self.movable_keys = tuple(thing.key for thing in listed if thing.movable)
        self.first_movable = len(rooms) + len(fixed)
        self.movable_bits = tuple(self.bit[key] for key in self.movable_keys)
        self.movable = sum(self.movable_bits)
        flags = dict.fromkeys(FLAGS, 0)
        for thing in listed:
            for flag in FLAGS:
                if getattr(thing, flag):
                    flags[flag] |= self.bit[thing.key]
        self.surface, self.container, self.door, self.switch, self.seat, self.target, self.always_on = flags.values()
        self.faces = {self.bit[t.key]: self.bit[t.faces] for t in listed if t.faces in self.bit}
        self.process = {self.bit[t.key]: t.process for t in listed if t.process}
        self.processes = tuple(sorted({t.process for t in listed if t.process}))
        self.fixed_in = dict.fromkeys(self.room_bits, 0)
        for thing in fixed:
            self.fixed_in[self.bit[thing.room]] |= self.bit[thing.key]
        self.room_of = {self.bit[thing.key]: self.bit[thing.room] for thing in listed}
        self.supports = {self.bit[thing.key]: sum(self.bit[key] for key in thing.on) for thing in listed}
        self.root = {self.bit[thing.key]: self._root(thing) for thing in fixed}
        self.at_root: dict[int, int] = {}
        for bit, root in self.root.items():
            self.at_root[root] = self.at_root.get(root, 0) | bit

    def _root(self, thing: Thing) -> int:
        """What one stands at when beside a fixed thing: the furniture it stands on, or itself."""
        while thing.on:
            thing = self.things[thing.on[0]]
        return self.bit[thing.key]

    def bits(self, mask: int) -> list[int]:
        """The single bits of a mask, lowest first."""
        found = []
        while mask:
            low = mask & -mask
            found.append(low)
            mask ^= low
        return found

    def keys(self, mask: int) -> list[str]:
        """The keys of a mask's rooms and things."""
        return [self.names[bit.bit_length() - 1] for bit in self.bits(mask)]

    def rename(self, nouns: Mapping[str, str]) -> Home:
        """The same home with some keys and nouns replaced."""
        new = lambda key: nouns.get(key, key)
        things = [
            replace(t, key=new(t.key), noun=nouns.get(t.key, t.noun), on=tuple(map(new, t.on)), inside=new(t.inside))
            for t in self.things.values()
        ]
        return Home(self.rooms, things, self.start)
