"""Asynchronous policies, and one wait for their replies and for environments.

`Asynchronous` is the optional capability of policies that answer prompts one by one. `asynchronous`
returns any policy as such a policy. `wait` blocks until one of several sources is ready: file
descriptors, pipes and `Wakeup` objects.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from multiprocessing import connection
from typing import Any, Protocol, runtime_checkable

from harness.types import Policy, Prompt, Reply


class Wakeup:
    """A flag with a file descriptor that is readable while the flag is set. Threads may set it."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._lock = threading.Lock()
        self._flag = False

    def fileno(self) -> int:
        """File descriptor to wait for."""
        return self._read

    def set(self) -> None:
        """Makes the descriptor readable."""
        with self._lock:
            if not self._flag and self._write >= 0:
                self._flag = True
                os.write(self._write, b"\0")

    def clear(self) -> None:
        """Resets the flag."""
        with self._lock:
            if self._flag:
                self._flag = False
                os.read(self._read, 1)

    def close(self) -> None:
        """Closes the descriptor; `set` has no effect afterwards."""
        with self._lock:
            if self._write >= 0:
                os.close(self._read)
                os.close(self._write)
                self._read = self._write = -1

    def __del__(self) -> None:
        self.close()


def wait(sources: Iterable[Any], timeout: float | None) -> None:
    """Blocks until one of `sources` is readable, or for `timeout` seconds (None: without limit)."""
    connection.wait(list(sources), timeout)


@runtime_checkable
class Asynchronous(Protocol):
    """Optional capability of a policy: answers each prompt as soon as its reply is complete.

    A ticket identifies a prompt until its reply is collected.
    """

    def submit(self, ticket: int, prompt: Prompt) -> None:
        """Accepts a prompt without waiting for its reply."""
        ...

    def collect(self, timeout: float | None = 0.0) -> list[tuple[int, Reply]]:
        """Returns all complete replies with their tickets; waits up to `timeout` seconds for the
        first one.

        A model in this process computes here, one step per call. With `timeout` None, waits for a
        reply without limit; returns [] at once if no prompt is pending. Raises what ended the
        policy's work.
        """
        ...

    def cancel(self) -> None:
        """Drops all pending prompts; their replies are never returned."""
        ...

    def sources(self) -> Sequence[Any]:
        """Returns objects to `wait` for: one is readable when `collect` has something to return or
        to compute.
        """
        ...


class Batched:
    """Gives a policy that only has `act` the asynchronous interface: `collect` asks for all
    submitted prompts at once.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._submitted: list[tuple[int, Prompt]] = []

    def submit(self, ticket: int, prompt: Prompt) -> None:
        self._submitted.append((ticket, prompt))

    def collect(self, timeout: float | None = 0.0) -> list[tuple[int, Reply]]:
        if not self._submitted:
            return []
        submitted, self._submitted = self._submitted, []
        replies = self._policy.act([prompt for _, prompt in submitted])
        return [(ticket, reply) for (ticket, _), reply in zip(submitted, replies, strict=True)]

    def cancel(self) -> None:
        self._submitted = []

    def sources(self) -> Sequence[Any]:
        return ()


class Forwarding:
    """Base class of policies that forward prompts to another policy, `self.policy`.

    `known` may answer a prompt at once; other prompts go to `self.policy`, asynchronously if it
    supports that.
    """

    policy: Any
    _answered: list[tuple[int, Reply]] | None = None
    _inner: Asynchronous | None = None

    def known(self, prompt: Prompt) -> Reply | None:
        """Returns a reply that needs no other policy, or None."""
        return None

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        return act(self, prompts)

    def submit(self, ticket: int, prompt: Prompt) -> None:
        reply = self.known(prompt)
        if reply is None:
            self._forward().submit(ticket, prompt)
        else:
            self._answered = [*(self._answered or ()), (ticket, reply)]

    def collect(self, timeout: float | None = 0.0) -> list[tuple[int, Reply]]:
        answered, self._answered = self._answered or [], []
        return [*answered, *self._forward().collect(0.0 if answered else timeout)]

    def cancel(self) -> None:
        self._answered = []
        self._forward().cancel()

    def sources(self) -> Sequence[Any]:
        return self._forward().sources()

    def _forward(self) -> Asynchronous:
        if self._inner is None:
            self._inner = asynchronous(self.policy)
        return self._inner


def asynchronous(policy: Policy) -> Asynchronous:
    """Returns the policy itself if it is asynchronous, else a `Batched` wrapper."""
    return policy if isinstance(policy, Asynchronous) else Batched(policy)


def act(policy: Asynchronous, prompts: Sequence[Prompt]) -> list[Reply]:
    """Asks an asynchronous policy for replies to a batch and waits for all of them."""
    replies: dict[int, Reply] = {}
    try:
        for ticket, prompt in enumerate(prompts):
            policy.submit(ticket, prompt)
        while len(replies) < len(prompts):
            replies.update(policy.collect(None))
    except BaseException:
        policy.cancel()
        raise
    return [replies[ticket] for ticket in range(len(prompts))]


class Outbox:
    """Finished replies and errors that other threads hand to `collect`, with the `wakeup` that
    announces them.

    Every `cancel` starts a new generation; replies of earlier generations are dropped.
    """

    def __init__(self) -> None:
        self.wakeup = Wakeup()
        self.generation = 0
        self.pending = 0
        self._finished: deque[tuple[int, int, Reply | BaseException]] = deque()

    def expect(self) -> int:
        """Counts a submitted prompt; returns the generation to pass to `put`."""
        self.pending += 1
        return self.generation

    def put(self, generation: int, ticket: int, outcome: Reply | BaseException) -> None:
        """Adds a reply, or an error that `take` will raise. Any thread may call this."""
        self._finished.append((generation, ticket, outcome))
        self.wakeup.set()

    def take(self, timeout: float | None) -> list[tuple[int, Reply]]:
        """Returns the finished replies; waits up to `timeout` seconds for the first one, if any is
        pending.
        """
        if timeout != 0.0 and self.pending and not self._finished:
            wait([self.wakeup], timeout)
        self.wakeup.clear()
        replies: list[tuple[int, Reply]] = []
        while self._finished:
            generation, ticket, outcome = self._finished.popleft()
            if generation != self.generation:
                continue
            self.pending -= 1
            if isinstance(outcome, BaseException):
                raise outcome
            replies.append((ticket, outcome))
        return replies

    def cancel(self) -> None:
        """Starts a new generation."""
        self.generation += 1
        self.pending = 0
