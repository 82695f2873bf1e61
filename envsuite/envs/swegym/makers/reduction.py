"""Delta debugging: the smallest subset of changes with which a check still holds (`minimise`).

Source: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002 (ddmin). Files
are reduced first and the hunks of the remaining files afterwards, as in hierarchical delta
debugging (Misherghi and Su, 2006).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)
Subset = TypeVar("Subset")


class OutOfBudget(Exception):
    """More checks would be needed than the budget allows."""


def minimise(
    items: Sequence[Item],
    check: Callable[[frozenset[Item]], bool],
    most: int,
    group: Callable[[Item], Hashable] = lambda item: 0,
) -> list[Item]:
    """Returns a subset of `items`, in their order, for which `check` holds and from which no item can be
    left out.

    The check must hold for all items together. `group`: a key by which items are first reduced
    together. Raises OutOfBudget after `most` checks.
    """
    results: dict[frozenset[Item], bool] = {}

    def holds(chosen: Iterable[Item]) -> bool:
        subset = frozenset(chosen)
        if subset not in results:
            if len(results) >= most:
                raise OutOfBudget
            results[subset] = check(subset)
        return results[subset]

    keys = list(dict.fromkeys(map(group, items)))
    remaining = set(_ddmin(keys, lambda subset: holds(item for item in items if group(item) in subset)))
    return _ddmin([item for item in items if group(item) in remaining], holds)


def _ddmin(items: list[Subset], holds: Callable[[Sequence[Subset]], bool]) -> list[Subset]:
    count = 2
    while len(items) > 1:
        bounds = [len(items) * number // count for number in range(count + 1)]
        subsets = [items[bounds[number] : bounds[number + 1]] for number in range(count)]
        smaller = next((subset for subset in subsets if holds(subset)), None)
        if smaller is not None:
            items, count = smaller, 2
            continue
        complements = [
            [item for number, subset in enumerate(subsets) if number != left_out for item in subset]
            for left_out in range(count)
        ]
        smaller = next((subset for subset in complements if holds(subset)), None) if count > 2 else None
        if smaller is not None:
            items, count = smaller, max(count - 1, 2)
        elif count < len(items):
            count = min(len(items), 2 * count)
        else:
            break
    return items
