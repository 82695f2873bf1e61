"""Households drawn from a seed: a home, goods in it, and a goal that can be reached in it.

The words are in catalog.toml. A home is a number: rooms and furniture follow from it, goods and goal from the seed.
Each split holds one thing out of training: objects, appliances, goal classes, or homes (rooms that no training home
has).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from envsuite.envs.virtualhome.goals import Condition, Goal, Stage, test
from envsuite.envs.virtualhome.home import Home, Thing
from envsuite.envs.virtualhome.mended import Mended
from envsuite.errors import UsageError

SPLITS = ("train", "unseen_object", "unseen_appliance", "unseen_goal", "unseen_home")
HOMES = 1000  # homes of each size, seen and unseen
TRIES = 400


class Wishes(NamedTuple):
    """What a household should be like."""

    rooms: int = 4
    objects: int = 12
    distractors: int = 3
    hidden: float = 0.3
    goal_length: int = 1
    goals: tuple[str, ...] = ()
    split: str = "train"


@dataclass(frozen=True)
class Household:
    """A drawn episode. `plan` is the home's number."""

    home: Home
    goal: Goal
    plan: int


@cache
def catalog() -> dict[str, Any]:
    """catalog.toml."""
    return tomllib.loads(resources.files(__package__).joinpath("catalog.toml").read_text())


def goal_classes(unseen: bool | None = None) -> tuple[str, ...]:
    """The names of all goal classes; `unseen` keeps those held out of training, or the others."""
    listed = catalog()["goals"].items()
    return tuple(name for name, spec in listed if unseen is None or spec.get("unseen", False) == unseen)


def pick(rng: np.random.Generator, options: Any) -> Any:
    """One of a sequence."""
    return options[int(rng.integers(len(options)))]


# ---- homes ----------------------------------------------------------------------------------------------------------


class Furnished(NamedTuple):
    """A home without goods, and what a slot of a goal may be filled with, by kind."""

    rooms: tuple[str, ...]
    things: tuple[Thing, ...]
    kinds: dict[str, tuple[str, ...]]


@lru_cache(maxsize=4096)
def furnished(plan: int, rooms: int, split: str) -> Furnished:
    """The home of that number, with `rooms` rooms. Splits that hold no home or appliance out share theirs."""
    rng = np.random.default_rng([plan, rooms, split == "unseen_home"])
    listed = catalog()
    first, *others = listed["rooms"]["seen"]
    chosen = [first, *(others[i] for i in rng.permutation(len(others))[: rooms - 1])]
    if split == "unseen_home":
        foreign = listed["rooms"]["unseen"]
        swapped = min(rooms - 1, 1 + int(rng.integers(2)))
        chosen[1 : 1 + swapped] = [foreign[i] for i in rng.permutation(len(foreign))[:swapped]]
    names: dict[str, str] = {}
    if split == "unseen_appliance":
        names = {spec["for"]: key for key, spec in listed["things"].items() if "for" in spec}
    new = lambda key: str(names.get(key, key))
    things: dict[str, Thing] = {}
    kinds: dict[str, list[str]] = {"room": list(chosen)}
    for key, spec in listed["things"].items():
        if "for" in spec or rng.random() >= spec.get("chance", 1.0):
            continue
        room = next((room for room in spec["in"] if room in chosen), None)
        if room is None or ("on" in spec and spec["on"] not in things):
            continue
        kept = {name: spec[name] for name in PROPERTIES if name in spec}
        on = (new(spec["on"]),) if "on" in spec else ()
        things[key] = Thing(new(key), room, on=on, faces=new(spec.get("faces", "")), **kept)
        for kind in _kinds_of(things[key], spec):
            kinds.setdefault(kind, []).append(new(key))
    return Furnished(tuple(chosen), tuple(things.values()), {kind: tuple(keys) for kind, keys in kinds.items()})


PROPERTIES = ("surface", "container", "door", "switch", "seat", "always_on", "process")


def _kinds_of(thing: Thing, spec: dict[str, Any]) -> list[str]:
    kinds = list(spec.get("tags", ()))
    if thing.process:
        kinds.append(thing.process)
    elif thing.container:
        kinds.append("storage" if thing.door else "bin")
    elif thing.surface:
        kinds.append("surface")
    if thing.seat:
        kinds += ["seat", f"seat at {thing.faces}"]
    return kinds


# ---- goals ----------------------------------------------------------------------------------------------------------


class _Draft:
    """An attempt at an episode in one home."""

    def __init__(self, rng: np.random.Generator, wishes: Wishes, plan: int) -> None:
        self.rng, self.wishes, self.plan = rng, wishes, plan
        self.rooms, self.things, self.kinds = furnished(plan, wishes.rooms, wishes.split)
        self.goods: dict[str, str] = {}  # loose object -> sort
        self.named: set[str] = set()  # furniture, appliances and rooms that the goal speaks of
        self.stages: list[Stage] = []
        self.texts: list[str] = []

    def add(self, name: str) -> bool:
        """Appends a stage of that goal class; False where this home has no place for it."""
        spec = catalog()["goals"][name]
        slots: dict[str, str] = {}
        for slot, kind in spec.get("slots", {}).items():
            kind, at, other = kind.partition(" at ")
            free = [key for key in self.kinds.get(kind + at + slots.get(other, ""), ()) if key not in slots.values()]
            if not free:
                return False
            slots[slot] = pick(self.rng, free)
        self.named.update(slots.values())
        for letter, sorts in zip("abc", spec.get("objects", ())):
            pool = "unseen" if self.wishes.split == "unseen_object" else "seen"
            same = self.goods.get(slots.get("a", ""), "")
            good = self._good([same] if sorts == "=" else sorts.split(), pool)
            if good is None:
                return False
            slots[letter] = good
        stage = []
        for words in spec["holds"]:
            kind, x, *y = words.split()
            stage.append(Condition(kind, slots[x], slots.get(y[0], y[0]) if y else ""))
        self.stages.append(tuple(stage))
        self.texts.append(spec["text"].format(**slots))
        return True

    def _good(self, sorts: list[str], pool: str) -> str | None:
        """An object of one of these sorts ('*': any) that is not in the home yet."""
        goods = catalog()["goods"]
        sort = pick(self.rng, list(goods) if sorts == ["*"] else sorts)
        free = [good for good in goods[sort][pool] if good not in self.goods]
        if not free:
            return None
        good: str = pick(self.rng, free)
        self.goods[good] = sort
        return good

    def household(self, names: list[str]) -> Household | None:
        """The finished episode, or None where it is not what the split asks for, or part of it holds from the start."""
        split = self.wishes.split
        if split == "unseen_appliance" and not self.named & _stand_ins():
            return None
        if split == "unseen_object" and not self.goods:
            return None
        goal = Goal(_sentence(self.texts), tuple(self.stages), "+".join(names))
        asked = set(self.goods)
        self._add_others()
        things = self._furniture()
        things += [self._place(good, good in asked) for good in sorted(self.goods)]
        home = Home({room: room for room in self.rooms}, things, pick(self.rng, self.rooms))
        engine = Mended(home)
        if any(all(test(engine, c)(engine.start) for c in stage) for stage in goal.stages):
            return None
        return Household(home, goal, self.plan)

    def _add_others(self) -> None:
        """Goods that the goal does not need: distractors of the same sorts first, then any."""
        wishes = self.wishes
        sorts = sorted(set(self.goods.values()))
        total = max(wishes.objects, len(self.goods))
        for i in range(total - len(self.goods)):
            if not (i < wishes.distractors and sorts and self._good(sorts, "seen")):
                for _ in range(20):
                    if self._good(["*"], "seen"):
                        break

    def _furniture(self) -> list[Thing]:
        """The furniture as it is at the start: on where it is to be switched off, open where to be closed."""
        alone = {stage[0] for stage in self.stages if len(stage) == 1}
        powered = {c.x for stage in self.stages for c in stage if c.kind == "off"}
        opened = {c.x for c in alone if c.kind == "closed"}
        changed = powered | opened
        return [
            replace(thing, powered=thing.key in powered, opened=thing.key in opened) if thing.key in changed else thing
            for thing in self.things
        ]

    def _place(self, good: str, asked: bool) -> Thing:
        """Where an object lies at the start; what the goal is about lies nowhere that the goal speaks of."""
        kinds = self.kinds
        shut = [key for key in kinds.get("storage", ()) if not (asked and key in self.named)]
        plain = [key for kind in ("surface", "bin") for key in kinds.get(kind, ()) if not (asked and key in self.named)]
        hide = self.rng.random() < self.wishes.hidden
        place = pick(self.rng, shut if (hide and shut) or not plain else plain)
        there = next(thing for thing in self.things if thing.key == place)
        spot = {"inside": place} if there.container else {"on": (place,)}
        return Thing(good, there.room, movable=True, sort=self.goods[good], **spot)


@cache
def _stand_ins() -> frozenset[str]:
    return frozenset(key for key, spec in catalog()["things"].items() if "for" in spec)


def _sentence(texts: list[str]) -> str:
    if len(texts) == 1:
        return texts[0][0].upper() + texts[0][1:] + "."
    return f"First {texts[0]}. " + " ".join(f"Then {text}." for text in texts[1:])


def draw(seed: int, wishes: Wishes) -> Household:
    """The household of a seed. Raises UsageError where no home of that size has room for such goals."""
    rng = np.random.default_rng(seed)
    seen, unseen = goal_classes(unseen=False), goal_classes(unseen=True)
    for attempt in range(TRIES):
        if attempt % 20 == 0:  # a class is given up only after twenty homes, so that rare ones keep their share
            names = [pick(rng, wishes.goals or seen) for _ in range(wishes.goal_length)]
            if wishes.split == "unseen_goal" and not wishes.goals:
                names[0] = pick(rng, unseen)
        draft = _Draft(rng, wishes, int(rng.integers(HOMES)))
        if all(draft.add(name) for name in names) and (found := draft.household(names)):
            return found
    raise UsageError(
        f"No home of {wishes.rooms} rooms was found for goals {', '.join(wishes.goals) or 'of any class'} "
        f"in split {wishes.split!r}: allow more rooms, or other goals."
    )
