"""Health of model servers: a server that failed gets no requests for a while and is checked before
it is used again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from harness.policies.connections.http_answers import ClientPool

PAUSE = 30.0
"""Seconds without requests after a failure; doubles with every further failure."""
MAX_PAUSE = 600.0
CHECK_TIMEOUT = 10.0
"""Seconds that a server has to answer a health check."""
UNAVAILABLE = (502, 503, 504)
"""Answers of a proxy without a server behind it, and of a server that loads its model. Another error shows only that
the server cannot list its models: it may still answer completions."""


class Health:
    """Health of `count` servers, identified by index. If all servers have failed, all of them count
    as available.
    """

    def __init__(self, count: int) -> None:
        self._servers = range(count)
        self._paused_until: dict[int, float] = {}
        self._pause = dict.fromkeys(self._servers, PAUSE)

    def available(self) -> list[int]:
        """Returns the servers that may receive requests."""
        return [server for server in self._servers if server not in self._paused_until] or list(self._servers)

    def after(self, server: int) -> int:
        """Returns the next available server after `server`."""
        return min(self.available(), key=lambda candidate: (candidate - server - 1) % len(self._servers))

    def failed(self, server: int) -> None:
        """Pauses a server."""
        if server not in self._paused_until:  # many requests fail at the same time
            self._paused_until[server] = time.monotonic() + self._pause[server]
            self._pause[server] = min(2 * self._pause[server], MAX_PAUSE)

    def answered(self, server: int) -> None:
        """Marks a server as healthy."""
        self._paused_until.pop(server, None)
        self._pause[server] = PAUSE

    def due(self) -> list[int]:
        """Returns the servers whose pause is over; none if all servers are paused, because all are
        in use then.
        """
        if len(self._paused_until) >= len(self._servers):
            return []
        now = time.monotonic()
        return [server for server, until in self._paused_until.items() if until <= now]

    async def check(self, client: ClientPool, urls: Sequence[str]) -> None:
        """Asks the servers whose pause is over for their models; a server that answers is available again."""
        await asyncio.gather(*(self._check(client, urls[server], server) for server in self.due()))

    async def _check(self, client: ClientPool, url: str, server: int) -> None:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                healthy = (await client.get(f"{url}/models")).status_code not in UNAVAILABLE
        except Exception:  # httpx lets errors of headers through; an unusable answer is unhealthy
            healthy = False
        self._paused_until.pop(server, None)
        if not healthy:
            self.failed(server)
