"""Which of several replicas or servers a conversation belongs to: the one that has its prefix in memory."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Sequence

KNOWN = 100_000
"""conversations whose home is remembered"""


class ServerAffinity:
    """A conversation stays where it is; a new one, or one whose home is closed, goes where the least is to be done."""

    def __init__(self) -> None:
        self._homes: OrderedDict[str, int] = OrderedDict()
        self._held: Counter[int] = Counter()

    def share(self, keys: Sequence[str], places: Collection[int]) -> list[int]:
        """The home, one of `places`, of each conversation of a batch. An empty key is a conversation of its own."""
        found: list[int] = []
        load: Counter[int] = Counter()
        for key in keys:
            home = self._homes.get(key, -1)
            found.append(home if home in places else -1)
            load[found[-1]] += 1
        for index, key in enumerate(keys):
            if found[index] < 0:
                found[index] = min(places, key=lambda place: (load[place], self._held[place]))
                load[found[index]] += 1
            self.move(key, found[index])
        return found

    def move(self, key: str, place: int) -> None:
        """From now on that is its home."""
        if not key:
            return
        if key in self._homes:
            self._held[self._homes.pop(key)] -= 1
        self._homes[key] = place
        self._held[place] += 1
        while len(self._homes) > KNOWN:
            self._held[self._homes.popitem(last=False)[1]] -= 1
