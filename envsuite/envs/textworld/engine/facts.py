"""Facts of a textworld game as tuples of names, and combinations of them that no state may contain."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

Fact = tuple[str, ...]
"""Name of a predicate and names of its arguments."""
Pattern = tuple[str, tuple[int, ...]]
"""Name of a predicate and numbers of its placeholders."""


class Constraint(NamedTuple):
    """A combination of facts that no state may contain, seen from one of them."""

    pattern: Pattern
    others: list[Pattern]
    allowed: list[frozenset[str]]
    """types of the variables that fit a placeholder, by its number"""
    is_first: bool


class Constraints:
    """Combinations of facts that no state may contain."""

    def __init__(self, logic: Any) -> None:
        self._by_name: dict[str, list[Constraint]] = {}
        for rule in logic.constraints.values():
            if not any(fact.name == "fail" for fact in rule.postconditions):
                continue
            numbers = {placeholder: number for number, placeholder in enumerate(rule.placeholders)}
            allowed = [frozenset(kind.name for kind in logic.types.get(each.type).subtypes) for each in numbers]
            patterns = patterns_of(rule.preconditions, numbers)
            for number, pattern in enumerate(patterns):
                others = [*patterns[:number], *patterns[number + 1 :]]
                self._by_name.setdefault(pattern[0], []).append(Constraint(pattern, others, allowed, number == 0))

    def allow_all(self, facts: set[Fact], types: dict[str, str]) -> bool:
        """Tests whether the facts contain no forbidden combination."""
        index = FactIndex(facts, types)
        return not any(
            each.is_first and self._is_violated(index, fact, each)
            for fact in facts
            for each in self._by_name.get(fact[0], ())
        )

    def allow(self, facts: set[Fact], types: dict[str, str], added: Iterable[Fact]) -> bool:
        """Tests whether no forbidden combination contains one of the facts `added`, which are among the facts."""
        index = FactIndex(facts, types)
        return not any(
            self._is_violated(index, fact, each) for fact in added for each in self._by_name.get(fact[0], ())
        )

    @staticmethod
    def _is_violated(index: FactIndex, fact: Fact, constraint: Constraint) -> bool:
        bound = index.bind(constraint.pattern, fact, {}, constraint.allowed)
        return bound is not None and index.can_complete(constraint.others, bound, constraint.allowed)


class FactIndex:
    """Facts by their name and one of their arguments; each index is made when it is first used."""

    def __init__(self, facts: set[Fact], types: dict[str, str]) -> None:
        self._facts, self._types = facts, types
        self._by_argument: dict[tuple[str, int], dict[str, list[Fact]]] = {}

    def bind(
        self, pattern: Pattern, fact: Fact, bound: dict[int, str], allowed: list[frozenset[str]]
    ) -> dict[int, str] | None:
        """Returns `bound` with the variables of a fact for a pattern's placeholders; None if they do not fit.

        Different placeholders stand for different variables.
        """
        numbers = pattern[1]
        if len(fact) != len(numbers) + 1:
            return None
        for number, name in zip(numbers, fact[1:], strict=True):
            known = bound.get(number)
            if known is not None and known != name:
                return None
        extended = bound.copy()
        for number, name in zip(numbers, fact[1:], strict=True):
            known = extended.get(number)
            if known is None:
                if self._types[name] not in allowed[number] or name in extended.values():
                    return None
                extended[number] = name
            elif known != name:
                return None
        return extended

    def can_complete(self, patterns: list[Pattern], bound: dict[int, str], allowed: list[frozenset[str]]) -> bool:
        """Tests whether facts exist for all patterns."""
        if not patterns:
            return True
        for fact in self._matching(patterns[0], bound):
            extended = self.bind(patterns[0], fact, bound, allowed)
            if extended is not None and self.can_complete(patterns[1:], extended, allowed):
                return True
        return False

    def _matching(self, pattern: Pattern, bound: dict[int, str]) -> Iterable[Fact]:
        """Returns the facts of a pattern's name, narrowed by one argument that is bound."""
        name, numbers = pattern
        for position, number in enumerate(numbers, 1):
            if number in bound:
                by_value = self._by_argument.get((name, position))
                if by_value is None:
                    by_value = self._by_argument[name, position] = {}
                    for fact in self._facts:
                        if fact[0] == name and len(fact) > position:
                            by_value.setdefault(fact[position], []).append(fact)
                return by_value.get(bound[number], ())
        return [fact for fact in self._facts if fact[0] == name]


def patterns_of(predicates: Iterable[Any], numbers: dict[Any, int]) -> tuple[Pattern, ...]:
    """Returns predicates with the numbers of their placeholders."""
    return tuple((each.name, tuple(numbers[placeholder] for placeholder in each.parameters)) for each in predicates)


@functools.lru_cache(16)
def constraints_of(logic: Any) -> Constraints:
    """Returns the constraints of a logic, made once."""
    return Constraints(logic)
