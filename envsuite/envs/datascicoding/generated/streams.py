"""Random numbers that are the same on every machine and under every version of numpy."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Stream:
    """Random numbers computed from the bits of Philox by additions and multiplications alone.

    numpy guarantees the bits of its bit generators but not the algorithms of `Generator`. Normal numbers are sums of
    twelve uniform ones (Irwin and Hall), with mean 0, variance 1 and values between -6 and 6.
    """

    def __init__(self, *key: int | str) -> None:
        self._key = key
        digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
        self._bits = np.random.Philox(key=int.from_bytes(digest[:16], "little"))

    def fork(self, *key: int | str) -> Stream:
        """Returns an independent stream, which does not depend on what was drawn from this one."""
        return Stream(*self._key, *key)

    def uniform(self, *shape: int) -> np.ndarray:
        """Returns uniform numbers in [0, 1)."""
        raw = self._bits.random_raw(int(np.prod(shape)))
        return (np.asarray(raw, np.uint64) >> np.uint64(11)).astype(float).reshape(shape) * 2.0**-53

    def normal(self, *shape: int) -> np.ndarray:
        """Returns nearly normal numbers."""
        return self.uniform(12, *shape).sum(axis=0) - 6.0

    def between(self, low: float, high: float) -> float:
        """Returns one uniform number in [low, high)."""
        return low + (high - low) * float(self.uniform(1)[0])

    def below(self, bound: int) -> int:
        """Returns one of the integers 0 to bound - 1."""
        return int(float(self.uniform(1)[0]) * bound)

    def sign(self) -> float:
        """Returns -1.0 or 1.0."""
        return 1.0 if self.below(2) else -1.0

    def pick(self, items: Sequence[T]) -> T:
        """Returns one of the items."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Returns the items in random order."""
        return [items[int(k)] for k in np.argsort(self.uniform(len(items)), kind="stable")]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Returns `count` different items, or all if there are fewer."""
        return self.shuffled(items)[:count]
