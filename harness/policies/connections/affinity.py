"""Server affinity: assigns conversations to replicas or servers, so that cached prefixes are
reused.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping, Sequence

CAPACITY = 100_000
"""Number of conversations whose server is remembered."""


class ServerAffinity:
    """A new conversation goes to the least loaded server and stays there while that server is
    available.
    """

    def __init__(self) -> None:
        self._servers: OrderedDict[str, int] = OrderedDict()
        self._conversations: Counter[int] = Counter()

    def share(
        self, keys: Sequence[str], available: Collection[int], in_flight: Mapping[int, int] | None = None
    ) -> list[int]:
        """Returns the server, one of `available`, of each conversation in a batch.

        An empty key is always a new conversation. `in_flight` counts requests that each server is
        already processing.
        """
        load = Counter(in_flight or {})
        servers: list[int] = []
        for key in keys:
            server = self._servers.get(key, -1)
            servers.append(server if server in available else -1)
            load[servers[-1]] += 1
        for index, key in enumerate(keys):
            if servers[index] < 0:
                servers[index] = min(available, key=lambda server: (load[server], self._conversations[server]))
                load[servers[index]] += 1
            self.move(key, servers[index])
        return servers

    def move(self, key: str, server: int) -> None:
        """Assigns a conversation to another server."""
        if not key:
            return
        if key in self._servers:
            self._conversations[self._servers.pop(key)] -= 1
        self._servers[key] = server
        self._conversations[server] += 1
        while len(self._servers) > CAPACITY:
            self._conversations[self._servers.popitem(last=False)[1]] -= 1
