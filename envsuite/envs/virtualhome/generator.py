"""Households drawn from a seed: a home, loose objects in it, and a goal that is reachable there.

catalog.toml holds the vocabulary. A home is identified by a number that determines rooms and furniture; the seed
determines objects and goal. Each split holds out one kind of content from training: objects, appliances, goal classes,
or homes (rooms that no training home has).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from envsuite.envs.virtualhome.rules.fixed_engine import FixedEngine
from envsuite.envs.virtualhome.rules.goals import Condition, HouseholdGoal, Stage, predicate
from envsuite.envs.virtualhome.rules.home import Home, Thing, interned
from envsuite.errors import UsageError

SPLITS = ("train", "unseen_object", "unseen_appliance", "unseen_goal", "unseen_home")
HOMES = 1000  # number of homes per size, for seen and unseen rooms each
MAX_DRAWS = 400


class HouseholdSettings(NamedTuple):
    """Settings of the generator."""

    rooms: int = 4
    objects: int = 12
    distractors: int = 3
    hidden: float = 0.3
    goal_length: int = 1
    goals: tuple[str, ...] = ()
    split: str = "train"
    surprise: float = 1.0


@dataclass(frozen=True)
class Household:
    """Home and goal of one episode; `plan` is the number of the home."""

    home: Home
    goal: HouseholdGoal
    plan: int


@cache
def catalog() -> dict[str, Any]:
    """Returns the parsed catalog.toml."""
    return tomllib.loads(resources.files(__package__).joinpath("catalog.toml").read_text())


@cache
def goal_classes(unseen: bool | None = None) -> tuple[str, ...]:
    """Returns all goal classes, or only those that are (`unseen=True`) or are not held out of training."""
    catalogue = catalog()["goals"].items()
    return tuple(name for name, spec in catalogue if unseen is None or spec.get("unseen", False) == unseen)


def pick(rng: np.random.Generator, options: Any) -> Any:
    """Draws an element of a sequence uniformly."""
    return options[int(rng.integers(len(options)))]


# ---- homes ----------------------------------------------------------------------------------------------------------


class FurnishedHome(NamedTuple):
    """Home without loose objects; `kinds` lists the things that can fill a goal's slot of each kind."""

    rooms: tuple[str, ...]
    things: tuple[Thing, ...]
    kinds: dict[str, tuple[str, ...]]
    by_key: dict[str, Thing]


@lru_cache(maxsize=4096)
def furnished_home(plan: int, rooms: int, split: str) -> FurnishedHome:
    """Returns home number `plan` with `rooms` rooms. Only the unseen_home and unseen_appliance splits alter homes."""
    rng = np.random.default_rng([plan, rooms, split == "unseen_home"])
    catalogue = catalog()
    first, *optional = catalogue["rooms"]["seen"]
    room_names = [first, *(optional[i] for i in rng.permutation(len(optional))[: rooms - 1])]
    if split == "unseen_home":
        foreign = catalogue["rooms"]["unseen"]
        replaced = min(rooms - 1, 1 + int(rng.integers(2)))
        room_names[1 : 1 + replaced] = [foreign[i] for i in rng.permutation(len(foreign))[:replaced]]
    names: dict[str, str] = {}
    if split == "unseen_appliance":
        names = {spec["for"]: key for key, spec in catalogue["things"].items() if "for" in spec}

    def new(key: str) -> str:
        return str(names.get(key, key))

    things: dict[str, Thing] = {}  # by the key in training
    kinds: dict[str, list[str]] = {"room": list(room_names)}
    for key, spec in catalogue["things"].items():
        if "for" in spec or rng.random() >= spec.get("chance", 1.0):
            continue
        room = next((room for room in spec["in"] if room in room_names), None)
        if room is None or ("on" in spec and spec["on"] not in things):
            continue
        properties = {name: spec[name] for name in PROPERTIES if name in spec}
        on = (new(spec["on"]),) if "on" in spec else ()
        things[key] = interned(Thing(new(key), room, on=on, faces=new(spec.get("faces", "")), **properties))
        for kind in _kinds_of(things[key], spec):
            kinds.setdefault(kind, []).append(new(key))
    names_of_kinds = {kind: tuple(keys) for kind, keys in kinds.items()}
    by_key = {thing.key: thing for thing in things.values()}
    return FurnishedHome(tuple(room_names), tuple(things.values()), names_of_kinds, by_key)


@lru_cache(maxsize=4096)
def empty_home(plan: int, rooms: int, split: str) -> Home:
    """Returns home number `plan` without loose objects, on which the homes of all its games are built."""
    furnished = furnished_home(plan, rooms, split)
    return Home({room: room for room in furnished.rooms}, furnished.things, furnished.rooms[0])


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
    """Draft of an episode in one home."""

    def __init__(self, rng: np.random.Generator, settings: HouseholdSettings, plan: int) -> None:
        self.rng, self.settings, self.plan = rng, settings, plan
        self.furnished = furnished_home(plan, settings.rooms, settings.split)
        self.rooms, self.kinds = self.furnished.rooms, self.furnished.kinds
        self.items: dict[str, str] = {}  # loose object -> category
        self.mentioned: set[str] = set()  # furniture, appliances and rooms that the goal mentions
        self.stages: list[Stage] = []
        self.texts: list[str] = []

    def add(self, name: str) -> bool:
        """Appends a stage of a goal class. Returns False if the home lacks what the class needs."""
        spec = catalog()["goals"][name]
        slots: dict[str, str] = {}
        for slot, kind in spec.get("slots", {}).items():
            kind, at, target = kind.partition(" at ")
            free = [key for key in self.kinds.get(kind + at + slots.get(target, ""), ()) if key not in slots.values()]
            if not free:
                return False
            slots[slot] = pick(self.rng, free)
        self.mentioned.update(slots.values())
        for letter, sorts in zip("abc", spec.get("objects", ()), strict=False):
            pool = "unseen" if self.settings.split == "unseen_object" else "seen"
            category = self.items.get(slots.get("a", ""), "")
            item = self._new_item([category] if sorts == "=" else sorts.split(), pool)
            if item is None:
                return False
            slots[letter] = item
        stage = []
        for words in spec["holds"]:
            kind, x, *y = words.split()
            stage.append(Condition(kind, slots[x], slots.get(y[0], y[0]) if y else ""))
        self.stages.append(tuple(stage))
        self.texts.append(spec["text"].format(**slots))
        return True

    def _new_item(self, sorts: list[str], pool: str) -> str | None:
        """Draws a new object of one of the categories ('*': any). Returns None if none is left."""
        items = catalog()["goods"]
        sort = pick(self.rng, list(items) if sorts == ["*"] else sorts)
        free = [item for item in items[sort][pool] if item not in self.items]
        if not free:
            return None
        item: str = pick(self.rng, free)
        self.items[item] = sort
        return item

    def household(self, names: list[str]) -> Household | None:
        """Returns the episode, or None if it does not fit the split or a part already holds at the start."""
        split = self.settings.split
        if split == "unseen_appliance" and not self.mentioned & _unseen_appliances():
            return None
        if split == "unseen_object" and not self.items:
            return None
        goal = HouseholdGoal(_sentence(self.texts), tuple(self.stages), "+".join(names))
        goal_items = set(self.items)
        self._add_other_items()
        objects = {item: self._place(item, item in goal_items) for item in sorted(self.items)}
        empty = empty_home(self.plan, self.settings.rooms, split)
        home = empty.furnished(objects, pick(self.rng, self.rooms), self._changed_furniture())
        engine = FixedEngine(home)
        if any(all(predicate(engine, c)(engine.start) for c in stage) for stage in goal.stages):
            return None
        return Household(home, goal, self.plan)

    def _add_other_items(self) -> None:
        """Adds objects that the goal does not need: distractors of the same categories first, then any."""
        settings = self.settings
        sorts = sorted(set(self.items.values()))
        total = max(settings.objects, len(self.items))
        for i in range(total - len(self.items)):
            if not (i < settings.distractors and sorts and self._new_item(sorts, "seen")):
                for _ in range(20):
                    if self._new_item(["*"], "seen"):
                        break

    def _changed_furniture(self) -> dict[str, Thing]:
        """Returns the furniture that is on at the start (the goal switches it off) or open (the goal closes it)."""
        single = {stage[0] for stage in self.stages if len(stage) == 1}
        powered = {c.x for stage in self.stages for c in stage if c.kind == "off"}
        opened = {c.x for c in single if c.kind == "closed"}
        return {
            key: self.furnished.by_key[key]._replace(powered=key in powered, opened=key in opened)
            for key in powered | opened
        }

    def _place(self, item: str, goal_items: bool) -> Thing:
        """Places an object at the start; objects of the goal never start in a place that the goal mentions."""
        kinds = self.kinds
        closed = [key for key in kinds.get("storage", ()) if not (goal_items and key in self.mentioned)]
        open_places = [
            key
            for kind in ("surface", "bin")
            for key in kinds.get(kind, ())
            if not (goal_items and key in self.mentioned)
        ]
        surprise = self.settings.surprise
        if surprise < 1 and self.rng.random() >= surprise:  # no draw at 1, so that version 0 keeps its households
            kept = catalog()["kept"][self.items[item]]
            usual_closed, usual_open = ([key for key in keys if key in kept] for keys in (closed, open_places))
            if usual_closed or usual_open:
                closed, open_places = usual_closed, usual_open
        hidden = self.rng.random() < self.settings.hidden
        place = pick(self.rng, closed if (hidden and closed) or not open_places else open_places)
        furniture = self.furnished.by_key[place]
        location = {"inside": place} if furniture.container else {"on": (place,)}
        return Thing(item, furniture.room, movable=True, sort=self.items[item], **location)


@cache
def _unseen_appliances() -> frozenset[str]:
    return frozenset(key for key, spec in catalog()["things"].items() if "for" in spec)


def _sentence(texts: list[str]) -> str:
    if len(texts) == 1:
        return texts[0][0].upper() + texts[0][1:] + "."
    return f"First {texts[0]}. " + " ".join(f"Then {text}." for text in texts[1:])


def draw(seed: int, settings: HouseholdSettings) -> Household:
    """Draws the household of a seed. Raises UsageError if no home of that size can hold such goals."""
    rng = np.random.default_rng(seed)
    seen, unseen = goal_classes(unseen=False), goal_classes(unseen=True)
    for attempt in range(MAX_DRAWS):
        if attempt % 20 == 0:  # redraw the classes only after twenty homes, so that rare classes keep their share
            names = [pick(rng, settings.goals or seen) for _ in range(settings.goal_length)]
            if settings.split == "unseen_goal" and not settings.goals:
                names[0] = pick(rng, unseen)
        draft = _Draft(rng, settings, int(rng.integers(HOMES)))
        if all(draft.add(name) for name in names) and (household := draft.household(names)):
            return household
    raise UsageError(
        f"No home of {settings.rooms} rooms fits goals {', '.join(settings.goals) or 'of any class'} "
        f"in split {settings.split!r}: use more rooms or other goals."
    )
