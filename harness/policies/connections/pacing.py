"""Pacing of requests: a rate limit, and pauses before retries."""

from __future__ import annotations

import asyncio
import random
import time

MAX_PAUSE = 60.0
"""Longest pause before a retry, in seconds."""


class Pace:
    """Spreads requests evenly so that at most `per_minute` start in a minute."""

    def __init__(self, per_minute: float | None) -> None:
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0

    async def wait(self) -> None:
        """Waits until the next request may start."""
        if self._gap:
            now = time.monotonic()
            start = max(self._next, now)
            self._next = start + self._gap
            await asyncio.sleep(start - now)


class Retries:
    """The requests that wait for their next try, with the reason."""

    def __init__(self) -> None:
        self._waiting: dict[object, tuple[str, float]] = {}

    async def wait(self, reason: str, seconds: float) -> None:
        """Waits before the next try."""
        request = object()
        self._waiting[request] = reason, time.monotonic() + seconds
        try:
            await asyncio.sleep(seconds)
        finally:
            del self._waiting[request]

    def waiting(self) -> list[tuple[str, float]]:
        """Returns reason and monotonic time of the next try of each request. Any thread may call this."""
        return list(self._waiting.values())


def pause_before(attempt: int, first: float, requested: float | None) -> float:
    """Returns the seconds to wait before a retry: random and growing, or slightly more than the
    server requests.
    """
    random_pause = random.uniform(0.0, min(first * 2.0 ** (attempt - 1), MAX_PAUSE))
    if requested is None:
        return random_pause
    return min(max(requested, 0.0) + 0.1 * random_pause, MAX_PAUSE)
