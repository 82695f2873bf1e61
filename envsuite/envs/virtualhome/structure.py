"""Splits of version 1: which homes, goals and structures of games are for training, validation and testing.

Three things decide, and all three must be of a game's split: the home (its rooms and furniture), each part of the
goal (its sentence), and the structure of the game. The structure is what the goal is about, up to the names of all
things: conditions and choices, which of the mentioned things are in the same room or place, what these can do, and
where the player starts. Each belongs to one split by its hash, whatever the settings are.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from envsuite.envs.virtualhome.household.goals import Choice, OrderedGoal, Part
from envsuite.envs.virtualhome.rules.goals import Condition
from envsuite.envs.virtualhome.rules.home import Thing

SEEDS = {"train": range(0, 1_000_000), "valid": range(2_000_000, 2_001_000), "test": range(1_000_000, 1_001_000)}
"""Seeds of each split; the seeds between 1,000,000 and 2,000,000 are for testing, later ones for validation."""
SHARES = (("test", 2), ("valid", 1), ("train", 7))
"""Tenths of all homes, sentences and structures in each split."""


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
    """Returns the split of a seed."""
    if seed < SEEDS["test"].start:
        return "train"
    return "test" if seed < SEEDS["valid"].start else "valid"


def structure(goal: OrderedGoal, start: str, things: dict[str, Thing]) -> str:
    """Returns the structure of a game: its goal with every name replaced by what it stands for.

    `things` are at least the things that the goal mentions and all that they stand or lie on; `start` is the
    player's first room.
    """
    return "; ".join(_Structure(start, things).part(part) for part in goal.parts)


class _Structure:
    """Numbers rooms and things in the order in which a goal mentions them."""

    def __init__(self, start: str, things: dict[str, Thing]) -> None:
        self.things = things
        self.labels = {start: "room0"}

    def part(self, part: Part) -> str:
        words = []
        for requirement in part:
            if isinstance(requirement, Choice):
                options = [" and ".join(map(self.condition, option)) for option in requirement.options]
                better = "better first" if requirement.ranked else "alike"
                words.append(f"{requirement.count} of {better} ({' or '.join(options)})")
            else:
                words.append(self.condition(requirement))
        return ", ".join(words)

    def condition(self, condition: Condition) -> str:
        kind, x, y = condition
        if kind == "mark":  # the appliance stands for its process
            device = next(key for key, thing in self.things.items() if thing.process == y)
            return f"treated {self.label(x)} {self.label(device)}"
        return f"{kind} {self.label(x)} {self.label(y) if y else ''}".rstrip()

    def label(self, key: str) -> str:
        if key not in self.labels:
            thing = self.things.get(key)
            kind = "room" if thing is None else "thing"
            self.labels[key] = label = f"{kind}{len(self.labels)}"
            return label if thing is None else f"{label}[{self._features(thing)}]"
        return self.labels[key]

    def _features(self, thing: Thing) -> str:
        flags = ("movable", "surface", "container", "door", "switch", "seat", "always_on", "opened", "powered")
        words = [flag for flag in flags if getattr(thing, flag)]
        place = thing.inside or (thing.on[0] if thing.on else "")
        words.append(f"at {self.label(place)}" if place else f"in {self.label(thing.room)}")
        return " ".join(words)
