"""Delta debugging: the smallest subset of changes with which a check still holds (`minimise`).

Source: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002 (ddmin). Files
are reduced first and the hunks of the remaining files afterwards, as in hierarchical delta
debugging (Misherghi and Su, 2006).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)
Part = TypeVar("Part")


class OutOfBudget(Exception):
    """More checks would be needed than the budget allows."""


class CheckBudget(Generic[Item]):
    """Counts checks, and remembers the result of each."""

    def __init__(self, check: Callable[[frozenset[Item]], bool], most: int) -> None:
        self.check, self.left = check, most
        self.results: dict[frozenset[Item], bool] = {}

    def holds(self, items: frozenset[Item]) -> bool:
        """Returns whether the check holds for `items`. Raises OutOfBudget."""
        if items not in self.results:
            if self.left <= 0:
                raise OutOfBudget
            self.left -= 1
            self.results[items] = self.check(items)
        return self.results[items]


def minimise(
    items: Sequence[Item],
    check: Callable[[frozenset[Item]], bool],
    most: int,
    group: Callable[[Item], Hashable] | None = None,
) -> list[Item]:
    """Returns a subset of `items`, in their order, for which `check` holds and from which no item can be
    left out.

    The check must hold for all items together. `group`: a key by which items are first reduced
    together. Raises OutOfBudget after `most` checks.
    """
    budget = CheckBudget(check, most)
    chosen = list(items)
    if group is not None:
        keys = list(dict.fromkeys(group(item) for item in items))
        if len(keys) > 1:

            def holds_for(subset: Sequence[Hashable]) -> bool:
                return budget.holds(frozenset(item for item in items if group(item) in set(subset)))

            remaining = set(_ddmin(keys, holds_for))
            chosen = [item for item in items if group(item) in remaining]
    return _ddmin(chosen, lambda subset: budget.holds(frozenset(subset)))


def _ddmin(items: list[Part], holds: Callable[[Sequence[Part]], bool]) -> list[Part]:
    parts = 2
    while len(items) > 1:
        bounds = [len(items) * number // parts for number in range(parts + 1)]
        subsets = [items[bounds[number] : bounds[number + 1]] for number in range(parts)]
        smaller = next((subset for subset in subsets if holds(subset)), None)
        if smaller is not None:
            items, parts = smaller, 2
            continue
        complements = [
            [item for number, subset in enumerate(subsets) if number != left_out for item in subset]
            for left_out in range(parts)
        ]
        smaller = next((rest for rest in complements if holds(rest)), None) if parts > 2 else None
        if smaller is not None:
            items, parts = smaller, max(parts - 1, 2)
        elif parts < len(items):
            parts = min(len(items), 2 * parts)
        else:
            break
    return items
