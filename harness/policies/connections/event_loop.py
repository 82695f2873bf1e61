"""The event loop of policies whose replies come from requests to servers.

A subclass writes `_answer`, which returns the reply to one prompt. All its requests run at once, in the
event loop of one thread; the rollout's thread only submits prompts and collects replies.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from envsuite.errors import DataError
from harness import waiting
from harness.policies.connections.failures import FailureStreak
from harness.policies.connections.pacing import Retries
from harness.types import Prompt, Reply
from harness.waiting import Outbox


class Request(NamedTuple):
    """A submitted prompt. Requests of an earlier generation than the outbox's were cancelled."""

    generation: int
    ticket: int
    prompt: Prompt


class RequestingPolicy:
    """Base class of asynchronous policies that send one or more requests for each prompt.

    A reply that no server gave has an `error`. If servers only return errors, `collect` raises DataError.
    """

    advice_kind = ""
    deterministic = False
    name: str

    def __init__(self) -> None:
        self._streak, self._retries = FailureStreak(), Retries()
        self._outbox = Outbox()
        self._inbox: deque[Request] = deque()
        self._scheduled = False
        self._tasks: dict[asyncio.Task[None], int] = {}  # with their generation
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # The rollout's thread calls the following methods.

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        return waiting.act(self, prompts)

    def submit(self, ticket: int, prompt: Prompt) -> None:
        self._inbox.append(Request(self._outbox.expect(), ticket, prompt))
        self._streak.submitted(ticket)
        if not self._scheduled:
            self._scheduled = True
            self._event_loop().call_soon_threadsafe(self._start)

    def collect(self, timeout: float | None = 0.0) -> list[tuple[int, Reply]]:
        replies = self._outbox.take(timeout)
        for ticket, reply in replies:
            if self._streak.replied(ticket, reply):
                times = f" ({self._streak.length} failures in a row)" if self._streak.length > 1 else ""
                raise DataError(
                    f"{reply.error}{times}. Finished episodes are kept: continue with --resume when the server answers."
                )
        return replies

    def cancel(self) -> None:
        self._outbox.cancel()
        self._streak.cancel()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel_tasks)

    def sources(self) -> Sequence[Any]:
        return (self._outbox.wakeup,)

    def retrying(self) -> list[tuple[str, float]]:
        return self._retries.waiting()

    def close(self) -> None:
        self.cancel()
        if self._loop is not None and self._thread is not None:
            asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
        self._loop = self._thread = None

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="envsuite-requests", daemon=True)
            self._thread.start()
        return self._loop

    # The following methods run in the event loop.

    async def _answer(self, prompt: Prompt, home: int) -> Reply:
        """Returns the reply to a prompt; `home` is the number of the server that `_dispatch` chose."""
        raise NotImplementedError

    async def _disconnect(self) -> None:
        """Closes connections, after all requests have ended."""

    def _start(self) -> None:
        """Starts the requests of all submitted prompts."""
        self._scheduled = False
        requests = [self._inbox.popleft() for _ in range(len(self._inbox))]
        self._dispatch(self._uncancelled(requests))

    def _dispatch(self, requests: Sequence[Request]) -> None:
        """Starts a task for each request."""
        for request in requests:
            self._spawn(request.generation, self._finish(request, 0))

    def _uncancelled(self, requests: Sequence[Request]) -> list[Request]:
        return [request for request in requests if request.generation == self._outbox.generation]

    def _spawn(self, generation: int, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = generation
        task.add_done_callback(self._tasks.pop)
        return task

    async def _finish(self, request: Request, server: int) -> None:
        """Hands the reply to a request, or the error that ends the run, to `collect`."""
        try:
            outcome: Reply | BaseException = await self._answer(request.prompt, server)
        except Exception as error:
            outcome = error
        self._outbox.put(request.generation, request.ticket, outcome)

    def _cancel_tasks(self) -> None:
        for task, generation in self._tasks.items():
            if generation != self._outbox.generation:
                task.cancel()

    async def _shut_down(self) -> None:
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._disconnect()
