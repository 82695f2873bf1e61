"""Executor whose environments run in Ray actors, several in each."""

from __future__ import annotations

import functools
import os
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from envsuite.errors import EngineFailure, EnvsuiteError, UsageError
from envsuite.types import DEFAULT_SHAPING, Shaping
from harness.cluster import connect
from harness.rollout.hosts import EnvHosts, Request, StepResult, lost
from harness.rollout.workers import CLEANUP
from harness.types import Episode
from harness.waiting import Wakeup, wait


class EnvWorker:
    """Actor with the environments of some slots; it executes one message at a time."""

    def __init__(self, config: tuple[str, str, Shaping]) -> None:
        self.hosts = EnvHosts(config)

    def versions(self) -> dict[str, str]:
        """Returns the versions on its node."""
        return connect.versions()

    def pid(self) -> int:
        """Returns its process id."""
        return os.getpid()

    def answer(self, requests: list[Request]) -> list[tuple[int, StepResult]]:
        """Executes requests; returns the result of each slot."""
        return [self.hosts.answer(request) for request in requests]

    def close(self) -> None:
        """Closes the environments."""
        self.hosts.close()


@dataclass(eq=False)
class _RayWorker:
    """An actor as seen by the executor."""

    actor: Any
    outbox: list[Request] = field(default_factory=list)
    started: Any = None
    """a replacement's pending answer to `versions`; it gets no requests before"""
    since: float = field(default_factory=time.monotonic)
    """time of its creation or latest answer"""


class RayExecutor:
    """`count` slots in `workers` actors of one CPU each; slot s is in worker s modulo the number of
    workers.

    Fast environments are `batched`: a worker gets all requests since the last `poll` in one
    message. Slow environments get a message each, so that no answer waits for a neighbour. A worker
    that dies, or does not answer within `timeout` seconds, is replaced if the cluster has room;
    otherwise its slots move to another worker. Its episodes are lost, and the rollout plays them
    again. From then on every request is a message, so that the request that kills a worker is
    known.
    """

    MOVING = 30.0
    """seconds for a replacement to start before its slots move to a living worker"""
    ALONE = connect.SETTING_UP
    """seconds for a replacement to start if no worker lives, before the run ends"""
    CHECK = 1.0
    """seconds between checks of replacements and silent workers"""

    def __init__(
        self,
        ray: Any,
        count: int,
        workers: int,
        reward_mode: str = "sparse",
        advice_kind: str = "",
        shaping: Shaping = DEFAULT_SHAPING,
        resources: dict[str, float] | None = None,
        batched: bool = True,
        timeout: float = 600.0,
    ) -> None:
        self.ray, self.count, self.timeout, self.batched = ray, count, timeout, batched
        workers = max(1, min(workers, count))
        connect.check_room(ray, workers, {"CPU": 1.0, **(resources or {})}, "environment workers")
        # Ray must not restart an actor, because it would silently lose its environments.
        self._class = ray.remote(num_cpus=1, resources=resources or {}, max_restarts=0)(EnvWorker)
        self._config = reward_mode, advice_kind, shaping
        self._workers = [_RayWorker(self._class.remote(self._config)) for _ in range(workers)]
        self._pending: dict[Any, tuple[_RayWorker, list[int], float]] = {}  # by reference: worker, slots, time
        self._arrived: deque[tuple[Any, Future[Any]]] = deque()  # answers that are not read yet
        self._answers: deque[tuple[int, StepResult]] = deque()
        self._wakeup = Wakeup()
        self._greet()

    def _greet(self) -> None:
        """Waits for the workers. Raises UsageError or MissingExtra if a node is unsuitable."""
        refs = [worker.actor.versions.remote() for worker in self._workers]
        ready, late = self.ray.wait(refs, num_returns=len(refs), timeout=connect.SETTING_UP)
        try:
            if late:
                raise UsageError(
                    f"{len(late)} of {len(refs)} environment workers did not start within {connect.SETTING_UP:.0f} s: "
                    "see `ray status`."
                )
            for ref in ready:
                connect.check_actor(self.ray, ref, "environment worker")
        except self.ray.exceptions.RayError as error:
            self.close()
            raise UsageError(f"An environment worker did not start: {connect.last_line(error)}") from None
        except EnvsuiteError:
            self.close()
            raise

    def start(self, slot: int, episode: Episode) -> None:
        self._send(slot, ("start", slot, episode))

    def step(self, slot: int, commands: tuple[str, ...], turn: int) -> None:
        self._send(slot, ("step", slot, commands, turn))

    def _send(self, slot: int, request: Request) -> None:
        self._workers[slot % len(self._workers)].outbox.append(request)

    def poll(self, wait: bool = True) -> list[tuple[int, StepResult]]:
        answers = self._receive()
        while wait and not answers and self._busy:
            self._wait()
            answers = self._receive()
        return answers

    def sources(self) -> Sequence[Any]:
        return (self._wakeup,)

    def deadline(self) -> float | None:
        return time.monotonic() + self.CHECK if self._busy else None

    @property
    def _busy(self) -> bool:
        return bool(self._pending) or any(worker.outbox for worker in self._workers)

    def _wait(self) -> None:
        wait([self._wakeup], self.CHECK)

    def _receive(self) -> list[tuple[int, StepResult]]:
        """Sends the outboxes, and returns the available answers."""
        self._wakeup.clear()
        self._settle_replacements()
        self._dispatch()
        answers: list[tuple[int, StepResult]] = []
        while self._arrived:
            ref, future = self._arrived.popleft()
            if ref in self._pending:  # otherwise its worker was replaced
                answers.extend(self._read(ref, future))
        self._replace_silent()
        answers.extend(self._answers)
        self._answers.clear()
        return answers

    def _dispatch(self) -> None:
        """Sends the requests of workers that have started."""
        for worker in dict.fromkeys(self._workers):
            if worker.started is not None or not worker.outbox:
                continue
            size = len(worker.outbox) if self.batched else 1
            for first in range(0, len(worker.outbox), size):
                requests = worker.outbox[first : first + size]
                ref = worker.actor.answer.remote(requests)
                self._pending[ref] = worker, [request[1] for request in requests], time.monotonic()
                ref.future().add_done_callback(functools.partial(self._arrive, ref))
            worker.outbox = []

    def _arrive(self, ref: Any, future: Future[Any]) -> None:
        """Runs in one of Ray's threads when an answer arrives."""
        self._arrived.append((ref, future))
        self._wakeup.set()

    def _read(self, ref: Any, future: Future[Any]) -> list[tuple[int, StepResult]]:
        worker, slots, _ = self._pending[ref]
        try:
            results: list[tuple[int, StepResult]] = future.result()
        except self.ray.exceptions.RayActorError:
            self._replace(worker, "its worker died")
            return []
        except self.ray.exceptions.RayTaskError as error:  # the message or its answer cannot be pickled
            message = f"{EngineFailure.__name__}: {connect.last_line(error)}"
            results = [(slot, StepResult("", {}, error=message)) for slot in slots]
        except self.ray.exceptions.RayError as error:  # the answer was lost with its node
            self._replace(worker, f"its answer was lost ({type(error).__name__})")
            return []
        del self._pending[ref]
        worker.since = time.monotonic()
        return results

    def _replace_silent(self) -> None:
        now = time.monotonic()
        # A worker answers in order: it is busy since its last answer, or since the request if it
        # was idle.
        late = {worker for worker, _, sent in self._pending.values() if now - max(sent, worker.since) > self.timeout}
        for worker in late:
            self._replace(worker, f"no answer within {self.timeout:.0f} s")

    def _replace(self, worker: _RayWorker, why: str) -> None:
        if worker not in self._workers:
            return
        refs = [ref for ref, (busy, _, _) in self._pending.items() if busy is worker]
        for number, ref in enumerate(refs):
            self._answers.extend((slot, lost(why, not number)) for slot in self._pending.pop(ref)[1])
        self._answers.extend((request[1], lost(why, False)) for request in worker.outbox)
        self.batched = False
        self._succeed(worker)

    def _succeed(self, worker: _RayWorker) -> _RayWorker:
        """Starts a replacement for a worker."""
        self.ray.kill(worker.actor)
        successor = _RayWorker(self._class.remote(self._config))
        successor.started = successor.actor.versions.remote()
        self._workers = [successor if current is worker else current for current in self._workers]
        return successor

    def _settle_replacements(self) -> None:
        """Puts replacements that have started to work; moves the slots of those without room to a
        living worker.

        Raises UsageError if no worker lives, or MissingExtra if a node lacks a package.
        """
        replacements = {worker for worker in self._workers if worker.started is not None}
        for worker in replacements:
            if self.ray.wait([worker.started], timeout=0)[0]:
                try:
                    connect.check_actor(self.ray, worker.started, "environment worker")
                    worker.started, worker.since = None, time.monotonic()
                    continue
                except self.ray.exceptions.RayError:  # it died while starting; its time limit stays
                    successor = self._succeed(worker)
                    successor.outbox, successor.since = worker.outbox, worker.since
                    worker = successor
            alive = [current for current in self._workers if current.started is None]
            if alive and time.monotonic() - worker.since > self.MOVING:
                self.ray.kill(worker.actor)
                target = min(alive, key=self._workers.count)
                target.outbox.extend(worker.outbox)
                self._workers = [target if current is worker else current for current in self._workers]
        if not replacements:
            return
        now = time.monotonic()
        if all(worker.started is not None and now - worker.since > self.ALONE for worker in self._workers):
            raise UsageError(
                f"No environment worker lives, and the cluster had no room for another within {self.ALONE:.0f} s: "
                "see `ray status`, start its nodes again, and continue with --resume. Finished episodes are kept."
            )

    def cancel(self) -> None:
        self._pending.clear()
        self._arrived.clear()
        self._answers.clear()
        for worker in self._workers:
            worker.outbox = []

    def close(self) -> None:
        closing = [worker.actor.close.remote() for worker in self._workers if worker.started is None]
        self.ray.wait(closing, num_returns=len(closing), timeout=CLEANUP)
        for worker in self._workers:
            self.ray.kill(worker.actor)
        self._pending.clear()
        self._wakeup.close()
