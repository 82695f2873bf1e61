"""Vocabulary of drawn homes: catalog.toml has rooms, furniture and objects; household.toml has their usual places,
kinds and goals.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any


@cache
def catalog() -> dict[str, Any]:
    """Returns the parsed catalog.toml."""
    return tomllib.loads(resources.files(__package__).joinpath("catalog.toml").read_text())


@cache
def vocabulary() -> dict[str, Any]:
    """Returns the parsed household.toml."""
    return tomllib.loads(resources.files(__package__).joinpath("household.toml").read_text())


def goal_classes(unseen: bool | None = None) -> tuple[str, ...]:
    """Returns all goal classes, the held-out ones (`unseen=True`), or the others (`unseen=False`)."""
    classes = vocabulary()["goals"].items()
    return tuple(name for name, spec in classes if unseen is None or spec.get("unseen", False) == unseen)


@dataclass(frozen=True)
class GoalClass:
    """Goal class of household.toml, in the form in which drafts read it."""

    kinds: tuple[str, ...]
    """kinds of objects to draw one of; () if the class names its objects"""
    count: int
    """number of objects of the kind"""
    objects: tuple[tuple[str, tuple[str, ...]], ...]
    """(letter, categories) of each named object; categories ("=",): that of the object before; ("k",): of the kind"""
    slots: tuple[tuple[str, str], ...]
    """(letter, kind) of each piece of furniture or room"""
    start: int
    """number of objects that start at p, besides a"""
    holds: tuple[tuple[bool, str, str, str], ...]
    """(preferred, kind, x, y) of each condition; x and y are letters, y also a process or empty"""
    text: str

    @cached_property
    def excluded(self) -> bool:
        """Returns True if the goal excludes one object of the kind."""
        return any(sorts == ("k",) for _, sorts in self.objects)


@cache
def goal_class(name: str) -> GoalClass:
    """Returns a goal class."""
    spec = vocabulary()["goals"][name]
    holds = []
    for words in spec["holds"]:
        kind, x, *y = words.removeprefix("prefer ").split()
        holds.append((words.startswith("prefer "), kind, x, y[0] if y else ""))
    return GoalClass(
        tuple(spec.get("kind", ())),
        spec.get("count", 1),
        tuple((letter, tuple(sorts.split())) for letter, sorts in zip("abc", spec.get("objects", ()), strict=False)),
        tuple(spec.get("slots", {}).items()),
        spec.get("start", 0),
        tuple(holds),
        spec["text"],
    )


@cache
def categories() -> tuple[str, ...]:
    """Returns the categories of loose objects."""
    return tuple(catalog()["goods"])


@cache
def needs_objects(name: str) -> int:
    """Returns the number of loose objects that a goal of a class needs in the home."""
    spec = vocabulary()["goals"][name]
    number: int = len(spec.get("objects", ())) + spec.get("start", 0)
    return number + (spec.get("count", 1) if "kind" in spec else 0)


@cache
def uses_device(name: str) -> bool:
    """Returns True if a goal class mentions an appliance, a lamp or a screen, which the unseen ones can replace."""
    kinds = {kind for key in unseen_furniture() for kind in _device_kinds(key)}
    return any(kind in kinds for kind in vocabulary()["goals"][name].get("slots", {}).values())


def _device_kinds(furniture: str) -> list[str]:
    spec = furniture_spec(furniture)
    return [*spec.get("tags", ()), *([spec["process"]] if "process" in spec else [])]


@cache
def noun_of(item: str) -> str:
    """Returns the noun of an object, which is called by a modifier and a noun."""
    return item.partition(" ")[2]


@cache
def sort_of(item: str) -> str:
    """Returns the category of a loose object."""
    return sorts_of_nouns()[noun_of(item)]


@cache
def sorts_of_nouns() -> dict[str, str]:
    """Returns noun -> category for all loose objects."""
    return {noun: sort for sort, pools in catalog()["goods"].items() for pool in pools.values() for noun in pool}


def category(noun: str) -> str:
    """Returns the category of the objects with a noun."""
    return sorts_of_nouns()[noun]


@cache
def nouns(sort: str, unseen: bool) -> tuple[str, ...]:
    """Returns the nouns of a category ('*': of all): held-out ones (`unseen`) or nouns of training."""
    goods = catalog()["goods"]
    names = [item for key in (goods if sort == "*" else (sort,)) for item in goods[key]["unseen" if unseen else "seen"]]
    return tuple(names)


@cache
def members(kind: str, unseen: bool) -> tuple[str, ...]:
    """Returns the nouns that a goal can call by a kind ('alike': can count), held-out ones or nouns of training."""
    candidates = vocabulary()["plurals"] if kind == "alike" else vocabulary()["kinds"][kind]["members"]
    known = nouns("*", unseen)
    return tuple(noun for noun in candidates if noun in known)


@cache
def object_names(noun: str) -> tuple[str, ...]:
    """Returns the names of all objects with a noun, one for each of its category's modifiers."""
    return tuple(f"{modifier} {noun}" for modifier in vocabulary()["modifiers"][category(noun)])


@cache
def usual_places(sort: str) -> dict[str, float]:
    """Returns furniture -> weight: where people keep objects of a category, the most usual first."""
    return {key: 1.0 / (rank + 2) for rank, key in enumerate(vocabulary()["kept"][sort])}


@cache
def sensible_places(sort: str) -> frozenset[str]:
    """Returns the furniture where a goal can ask to put objects of a category."""
    return frozenset(vocabulary()["kept"][sort]) | frozenset(vocabulary()["put"][sort])


@cache
def rooms_for(furniture: str) -> tuple[str, ...]:
    """Returns the rooms in which homes can have a piece of furniture."""
    spec = furniture_spec(furniture)
    for support in (spec.get("on"), spec.get("faces")):
        if support:
            return rooms_for(support)
    return tuple(vocabulary()["stands"].get(spec.get("key", furniture), spec["in"]))


@cache
def furniture_spec(furniture: str) -> dict[str, Any]:
    """Returns the catalog's entry; an unseen appliance has the uses of the appliance that it replaces (`key`)."""
    things: dict[str, Any] = catalog()["things"]
    spec: dict[str, Any] = things[furniture]
    return {**things[spec["for"]], **spec, "key": spec["for"]} if "for" in spec else {**spec, "key": furniture}


@cache
def unseen_furniture() -> dict[str, str]:
    """Returns appliance of training -> the unseen appliance that replaces it."""
    return {spec["for"]: key for key, spec in catalog()["things"].items() if "for" in spec}
