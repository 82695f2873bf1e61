"""Splits: which homes, goals and structures of games are for training, validation and testing.

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

from envsuite.envs.virtualhome.home import Thing
from envsuite.envs.virtualhome.homes.conditions import Condition
from envsuite.envs.virtualhome.homes.goals import Alternatives, OrderedGoal
from envsuite.envs.virtualhome.menu import SPLITS

SHARES = (("test", 2), ("valid", 1), ("train", 7))
"""Tenths of all homes, sentences and structures in each split."""
_FLAGS = ("movable", "surface", "container", "door", "switch", "seat", "always_on", "opened", "powered")
_ROUNDS = 3  # of refinement; games that still look alike share a split, which does no harm


@lru_cache(maxsize=65536)
def split_of(text: str) -> str:
    """Returns the split of a home or sentence, which its text identifies."""
    return _split_of(text)


def _split_of(text: str) -> str:
    tenth = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % 10
    for split, share in SHARES:
        if tenth < share:
            return split
        tenth -= share
    raise AssertionError("the shares add up to ten tenths")


def split_of_seed(seed: int) -> str:
    """Returns the split whose homes a seed draws: seeds outside the ranges of all splits draw homes of training."""
    return next((split for split in ("valid", "test") if seed in SPLITS[split]), "train")


def structure(goal: OrderedGoal, start: str, things: Mapping[str, Thing]) -> str:
    """Returns a text that is the same for all games that differ only in the names of rooms and things.

    `things` has all furniture and the objects that the goal mentions; `start` is the player's first room. The text is
    made by colour refinement: things begin with what they can do, and are told apart by their relations.
    """
    devices = {thing.process: key for key, thing in reversed(list(things.items())) if thing.process}
    return _refined(*facts_of(mentions(goal, devices), start, things))


Mention = tuple[str, tuple[str, ...]]
Relation = tuple[str, tuple[int, ...]]
Facts = tuple[tuple[str, ...], tuple[Relation, ...]]
"""Kinds of rooms and things, and the relations between them: a game without names."""


@lru_cache(maxsize=8192)
def split_of_facts(facts: Facts) -> str:
    """Returns the split of the games with these facts."""
    return _split_of(_refined(*facts))


def mentions(goal: OrderedGoal, devices: Mapping[str, str]) -> list[Mention]:
    """Returns the goal's conditions as relations between the keys of things.

    An appliance stands for its process; `devices` maps processes to appliances.
    """
    relations = []
    for number, part in enumerate(goal.parts):
        for which, requirement in enumerate(part):
            if not isinstance(requirement, Alternatives):
                relations.append(_mention(f"part {number}", requirement, devices))
                continue
            for rank, option in enumerate(requirement.options):
                better = f" option {rank}" if requirement.ranked else ""
                name = f"part {number} choice {which} of {requirement.count}{better}"
                relations += [_mention(name, condition, devices) for condition in option]
    return relations


def _mention(name: str, condition: Condition, devices: Mapping[str, str]) -> Mention:
    kind, x, y = condition
    if kind == "mark":
        y = devices[y]
    return f"{name}: {kind}", (x, y) if y else (x,)


def facts_of(mentioned: Sequence[Mention], start: str, things: Mapping[str, Thing]) -> Facts:
    """Returns the facts about what a goal mentions; rooms and things are numbered in the order of their mention."""
    numbering = _Numbering(things)
    numbering.relate("start", (start,))
    for relation, keys in mentioned:
        numbering.relate(relation, keys)
    return tuple(numbering.kinds), tuple(numbering.relations)


class _Numbering:
    """Numbers rooms and things as they are mentioned, and adds where each of them is."""

    def __init__(self, things: Mapping[str, Thing]) -> None:
        self.things = things
        self.kinds: list[str] = []
        self.relations: list[Relation] = []
        self._numbers: dict[str, int] = {}

    def relate(self, relation: str, keys: tuple[str, ...]) -> None:
        numbers = self._numbers
        nodes = tuple([numbers[key] if key in numbers else self._add(key) for key in keys])
        self.relations.append((relation, nodes))

    def _add(self, key: str) -> int:
        number = self._numbers[key] = len(self.kinds)
        thing = self.things.get(key)
        if thing is None:
            self.kinds.append("room")
        else:
            self.kinds.append("movable" if thing.movable else _kind(_flags_of(thing)))
            place = thing.inside or (thing.on[0] if thing.on else thing.room)
            where = self._numbers[place] if place in self._numbers else self._add(place)
            self.relations.append(("at", (number, where)))
        return number


_flags_of = attrgetter(*_FLAGS)


@cache
def _kind(flags: tuple[bool, ...]) -> str:
    """Returns the names of the `_FLAGS` that are set."""
    return " ".join(flag for flag, holds in zip(_FLAGS, flags, strict=True) if holds)


def _refined(kinds: tuple[str, ...], relations: tuple[Relation, ...]) -> str:
    """Returns the relations with colours in place of numbers, in a canonical order."""
    colours = _ranks(kinds)
    order = {name: rank for rank, name in enumerate(sorted({name for name, _ in relations}))}
    size = len(kinds) + 1
    edges = [(2 * order[name] * size, nodes[0], nodes[1] if len(nodes) > 1 else -1) for name, nodes in relations]
    for _ in range(_ROUNDS):
        if max(colours) + 1 == len(colours):  # all are told apart
            break
        # A fact about a node is one number that sorts like (relation, position, colours of the relation's nodes).
        facts: list[list[int]] = [[] for _ in kinds]
        for base, first, second in edges:
            fact = (base + colours[first]) * size
            if second >= 0:
                fact += colours[second] + 1
                facts[second].append(fact + size * size)
            facts[first].append(fact)
        before = colours
        colours = _ranks([(colour, sorted(own)) for colour, own in zip(colours, facts, strict=True)])
        if colours == before:  # further rounds change nothing
            break
    named = sorted(zip(colours, kinds, strict=True))
    return repr((named, sorted((relation, [colours[node] for node in nodes]) for relation, nodes in relations)))


def _ranks(signatures: Sequence[Any]) -> list[int]:
    """Returns the rank of every signature among the different ones."""
    ranks = [0] * len(signatures)
    rank, last = -1, None
    for node in sorted(range(len(signatures)), key=signatures.__getitem__):
        if signatures[node] != last:
            rank, last = rank + 1, signatures[node]
        ranks[node] = rank
    return ranks
