"""Server affinity: assigns conversations to servers, so that cached prefixes are reused."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection

CAPACITY = 100_000
"""Number of conversations whose server is remembered."""


class ServerAffinity:
    """A new conversation goes to the server with the fewest requests and stays there while that server is available."""

    def __init__(self) -> None:
        self._servers: OrderedDict[str, int] = OrderedDict()

    def choose(self, key: str, available: Collection[int], in_flight: Counter[int]) -> int:
        """Returns the server, one of `available`, of a conversation. An empty key is always a new conversation.

        `in_flight` counts the requests that each server is processing.
        """
        server = self._servers.get(key, -1)
        if server not in available:
            server = min(available, key=lambda number: in_flight[number])
            self.move(key, server)
        return server

    def move(self, key: str, server: int) -> None:
        """Assigns a conversation to another server."""
        if key:
            self._servers[key] = server
            self._servers.move_to_end(key)
        if len(self._servers) > CAPACITY:
            self._servers.popitem(last=False)
