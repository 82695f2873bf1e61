"""Splits of version 1: which homes, goals and structures of games are for training, validation and testing.

Three things decide, and all three must be of a game's split: the home (its rooms and furniture), each part of the
goal (its sentence), and the structure of the game. The structure is what the goal is about, up to the names of all
things: conditions and choices, which of the mentioned things are in the same room or place, what these can do, and
where the player starts. Each belongs to one split by its hash, whatever the settings are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
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
    return facts.refined()


class _Facts:
    """Relations between the rooms and things that matter to a goal."""

    def __init__(self, things: Mapping[str, Thing]) -> None:
        self.things = things
        self.kinds: dict[str, str] = {}
        self.relations: list[tuple[str, tuple[str, ...]]] = []

    def add(self, relation: str, *keys: str) -> None:
        for key in keys:
            self._add_node(key)
        self.relations.append((relation, keys))

    def add_condition(self, name: str, condition: Condition) -> None:
        kind, x, y = condition
        if kind == "mark":  # the appliance stands for its process
            y = next(key for key, thing in self.things.items() if thing.process == y)
        self.add(f"{name}: {kind}", *([x, y] if y else [x]))

    def _add_node(self, key: str) -> None:
        if key in self.kinds:
            return
        thing = self.things.get(key)
        if thing is None:
            self.kinds[key] = "room"
            return
        self.kinds[key] = " ".join(flag for flag in _FLAGS if getattr(thing, flag))
        place = thing.inside or (thing.on[0] if thing.on else thing.room)
        self.add("at", key, place)

    def refined(self) -> str:
        """Returns the relations with colours in place of keys, in a canonical order."""
        colours = _ranks(self.kinds)
        for _ in range(_ROUNDS):
            seen: dict[str, list[Any]] = {key: [] for key in self.kinds}
            for relation, keys in self.relations:
                around = [colours[key] for key in keys]
                for position, key in enumerate(keys):
                    seen[key].append((relation, position, around))
            before, colours = colours, _ranks({key: (colours[key], sorted(facts)) for key, facts in seen.items()})
            if colours == before:  # further rounds change nothing
                break
        nodes = sorted((colours[key], kind) for key, kind in self.kinds.items())
        relations = sorted((relation, [colours[key] for key in keys]) for relation, keys in self.relations)
        return repr((nodes, relations))


def _ranks(signatures: Mapping[str, Any]) -> dict[str, int]:
    """Returns the rank of every key's signature among the different signatures."""
    ranks: dict[str, int] = {}
    rank, last = -1, None
    for signature, key in sorted((signature, key) for key, signature in signatures.items()):
        if signature != last:
            rank, last = rank + 1, signature
        ranks[key] = rank
    return ranks
