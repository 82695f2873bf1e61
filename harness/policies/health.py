"""Which of several model servers are well: one that failed is left alone for a while, then looked at before it is used."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import httpx

REST = 30.0
"""seconds a server is left alone after a failure; twice as many after the next, and so on"""
LONGEST_REST = 600.0
LOOK = 10.0
"""seconds to answer a look in"""


class Health:
    """Of `count` servers, by place. Where all are ill, or there is but one, all are asked: there is nothing better."""

    def __init__(self, count: int) -> None:
        self._places = range(count)
        self._rests_until: dict[int, float] = {}
        self._rest = dict.fromkeys(self._places, REST)

    def well(self) -> list[int]:
        return [place for place in self._places if place not in self._rests_until] or list(self._places)

    def after(self, place: int) -> int:
        """The next that is well."""
        well = self.well()
        return min(well, key=lambda other: (other - place - 1) % len(self._places))

    def failed(self, place: int) -> None:
        if place not in self._rests_until:  # many requests fail at once
            self._rests_until[place] = time.monotonic() + self._rest[place]
            self._rest[place] = min(2 * self._rest[place], LONGEST_REST)

    def answered(self, place: int) -> None:
        self._rests_until.pop(place, None)
        self._rest[place] = REST

    async def look(self, client: httpx.AsyncClient, servers: Sequence[str]) -> None:
        """Lets those whose rest is over be used again where they list their models; the others rest on."""
        if len(self._rests_until) < len(self._places):
            now = time.monotonic()
            over = [place for place, until in self._rests_until.items() if until <= now]
            await asyncio.gather(*(self._look(client, servers[place], place) for place in over))

    async def _look(self, client: httpx.AsyncClient, server: str, place: int) -> None:
        try:
            async with asyncio.timeout(LOOK):
                well = (await client.get(f"{server}/models")).status_code < 500
        except (TimeoutError, httpx.HTTPError):
            well = False
        del self._rests_until[place]
        if not well:
            self.failed(place)
