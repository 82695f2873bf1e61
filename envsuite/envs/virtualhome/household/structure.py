"""Splits of version 1: which homes, goals and structures of games are for training, validation and testing.

Three things decide, and all three must be of a game's split: the home (its rooms and furniture), each part of the
goal (its sentence), and the structure of the game. The structure is what the goal is about, up to the names of all
things: conditions and choices, which of the mentioned things are in the same room or place, what these can do, and
where the player starts. Each belongs to one split by its hash, whatever the settings are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any

from envsuite.envs.virtualhome.household.goals import Alternatives, OrderedGoal
from envsuite.envs.virtualhome.menu import HOUSEHOLD_SPLITS
from envsuite.envs.virtualhome.rules.goals import Condition
from envsuite.envs.virtualhome.rules.home import Thing

SHARES = (("test", 2), ("valid", 1), ("train", 7))
"""Tenths of all homes, sentences and structures in each split."""
_FLAGS = ("movable", "surface", "container", "door", "switch", "seat", "always_on", "opened", "powered")
_ROUNDS = 3  # of refinement; games that still look alike share a split, which does no harm


@lru_cache(maxsize=65536)
def split_of(text: str) -> str:
    """Returns the split of a home, sentence or structure, which its text identifies."""
    tenth = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % 10
    for split, share in SHARES:
        if tenth < share:
            return split
        tenth -= share
    raise AssertionError("the shares add up to ten tenths")


def split_of_seed(seed: int) -> str:
    """Returns the split whose homes a seed draws: seeds outside the ranges of all splits draw homes of training."""
    return next((split for split in ("valid", "test") if seed in HOUSEHOLD_SPLITS[split]), "train")


def structure(goal: OrderedGoal, start: str, things: Mapping[str, Thing]) -> str:
    """Returns a text that is the same for all games that differ only in the names of rooms and things.

    `things` has all furniture and the objects that the goal mentions; `start` is the player's first room. The text is
    made by colour refinement: things begin with what they can do, and are told apart by their relations.
    """
    facts = _Facts(things)
    facts.add("start", start)
    for number, part in enumerate(goal.parts):
        for which, requirement in enumerate(part):
            if not isinstance(requirement, Alternatives):
                facts.add_condition(f"part {number}", requirement)
                continue
            for rank, option in enumerate(requirement.options):
                better = f" option {rank}" if requirement.ranked else ""
                name = f"part {number} choice {which} of {requirement.count}{better}"
                for condition in option:
                    facts.add_condition(name, condition)
    return _refined(tuple(facts.kinds), tuple(facts.relations))


Relation = tuple[str, tuple[int, ...]]
_flags_of = attrgetter(*_FLAGS)


class _Facts:
    """Relations between the rooms and things that matter to a goal, which are numbered as they are mentioned."""

    def __init__(self, things: Mapping[str, Thing]) -> None:
        self.things = things
        self.kinds: list[str] = []
        self.relations: list[Relation] = []
        self._numbers: dict[str, int] = {}

    def add(self, relation: str, *keys: str) -> None:
        self.relations.append((relation, tuple([self._number(key) for key in keys])))

    def add_condition(self, name: str, condition: Condition) -> None:
        kind, x, y = condition
        if kind == "mark":  # the appliance stands for its process
            y = next(key for key, thing in self.things.items() if thing.process == y)
        self.add(f"{name}: {kind}", *([x, y] if y else [x]))

    def _number(self, key: str) -> int:
        number = self._numbers.get(key)
        if number is not None:
            return number
        number = self._numbers[key] = len(self.kinds)
        thing = self.things.get(key)
        if thing is None:
            self.kinds.append("room")
        else:
            self.kinds.append(_kind(_flags_of(thing)))
            self.add("at", key, thing.inside or (thing.on[0] if thing.on else thing.room))
        return number


@cache
def _kind(flags: tuple[bool, ...]) -> str:
    """Returns the names of the `_FLAGS` that are set."""
    return " ".join(flag for flag, holds in zip(_FLAGS, flags, strict=True) if holds)


@lru_cache(maxsize=65536)
def _refined(kinds: tuple[str, ...], relations: tuple[Relation, ...]) -> str:
    """Returns the relations with colours in place of numbers, in a canonical order."""
    colours = _ranks(kinds)
    for _ in range(_ROUNDS):
        seen: list[list[Any]] = [[] for _ in kinds]
        for relation, nodes in relations:
            around = [colours[node] for node in nodes]
            for position, node in enumerate(nodes):
                seen[node].append((relation, position, around))
        before = colours
        colours = _ranks([(colour, sorted(facts)) for colour, facts in zip(colours, seen, strict=True)])
        if colours == before:  # further rounds change nothing
            break
    named = sorted(zip(colours, kinds, strict=True))
    return repr((named, sorted((relation, [colours[node] for node in nodes]) for relation, nodes in relations)))


def _ranks(signatures: Sequence[Any]) -> list[int]:
    """Returns the rank of every signature among the different ones."""
    ranks = [0] * len(signatures)
    rank, last = -1, None
    for signature, node in sorted((signature, node) for node, signature in enumerate(signatures)):
        if signature != last:
            rank, last = rank + 1, signature
        ranks[node] = rank
    return ranks
