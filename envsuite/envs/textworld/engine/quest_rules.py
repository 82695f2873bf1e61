"""Rules of a textworld game in the direction of the search for a quest, prepared for enumerating their assignments."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from envsuite.envs.textworld.engine.facts import Fact, patterns_of

Names = tuple[str | None, ...]
"""Names of the variables for the open placeholders of a rule; None stands for a new variable."""
Identity = tuple[str, frozenset[Fact], frozenset[Fact]]
"""A value that equal actions share."""


class OpenPlaceholders(NamedTuple):
    """Placeholders of a rule that the search assigns, in textworld's order."""

    numbers: tuple[int, ...]
    subtypes: tuple[tuple[str, ...], ...]
    absent: tuple[tuple[int, ...], ...]
    """sets of placeholders that may stand for new variables, in the order of their assignments"""
    overlap: bool
    """True if one variable may fit two placeholders"""


class ChainingRule:
    """A rule in the direction of the search, prepared for enumerating its assignments."""

    def __init__(self, rule: Any, logic: Any, constants: dict[Any, str], may_be_new: Callable[[str], bool]) -> None:
        self.rule = rule
        self.name: str = rule.name
        self.is_navigation = self.name.startswith("go/")
        placeholders = rule.placeholders
        numbers = {placeholder: number for number, placeholder in enumerate(placeholders)}
        self.types: tuple[str, ...] = tuple(placeholder.type for placeholder in placeholders)
        pre = patterns_of(rule.preconditions, numbers)
        self.pre = tuple(sorted(pre, key=lambda pattern: -len(set(pattern[1]))))  # those first that seldom hold
        self.post = patterns_of(rule.postconditions, numbers)
        here = next((fact.parameters[-1] for fact in rule.preconditions if _is_place_of_player(fact)), None)
        self.here: int | None = numbers.get(here)
        """number of the placeholder of the player's room"""
        self.template = [constants.get(placeholder, "") for placeholder in placeholders]

        def open_placeholders(fixed: Any) -> OpenPlaceholders:
            free = sorted(each for each in placeholders if each not in constants and each != fixed)
            subtypes = tuple(tuple(kind.name for kind in logic.types.get(each.type).subtypes) for each in free)
            new = [number for number, each in enumerate(free) if may_be_new(each.type)]
            absent = sorted(chosen for size in range(len(new) + 1) for chosen in itertools.combinations(new, size))
            overlap = any(set(first) & set(second) for first, second in itertools.combinations(subtypes, 2))
            return OpenPlaceholders(tuple(numbers[each] for each in free), subtypes, tuple(absent), overlap)

        self.free_anywhere, self.free_here = open_placeholders(None), open_placeholders(here)


class Assignment(NamedTuple):
    """A rule and the variables of its open placeholders."""

    rule: ChainingRule
    names: Names


class Action(NamedTuple):
    """A rule with variables for all placeholders."""

    rule: ChainingRule
    slots: tuple[str, ...]
    pre: tuple[Fact, ...]
    post: tuple[Fact, ...]

    @property
    def identity(self) -> Identity:
        return self.rule.name, frozenset(self.pre), frozenset(self.post)

    @property
    def added(self) -> set[Fact]:
        return set(self.post).difference(self.pre)

    @property
    def removed(self) -> set[Fact]:
        return set(self.pre).difference(self.post)


def _is_place_of_player(predicate: Any) -> bool:
    return predicate.name == "at" and predicate.signature.types == ("P", "r")


@functools.lru_cache(64)
def prepare_rules(
    logic: Any,
    rules: tuple[Any, ...],
    constants: tuple[tuple[Any, str], ...],
    restricted: frozenset[str],
    allowed: frozenset[str],
) -> list[ChainingRule]:
    """Returns rules in the direction of the search, sorted by name."""

    def may_be_new(kind: str) -> bool:
        return (kind in allowed if allowed else True) and kind not in restricted

    prepared = [ChainingRule(rule.inverse(), logic, dict(constants), may_be_new) for rule in rules]
    return sorted(prepared, key=lambda rule: rule.name)
