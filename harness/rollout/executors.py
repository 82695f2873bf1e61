"""Executors: hold the environments of a rollout, in this process or in worker processes.

A slot holds one environment and plays one episode after another. `start` and `step` only send a
request; `poll` returns the answers that are there, so that slow environments step while others
continue.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from multiprocessing import connection
from typing import Any, Protocol

from envsuite.types import DEFAULT_SHAPING, Shaping
from harness.rollout.hosts import EnvHost, StepResult, lost
from harness.rollout.workers import Worker
from harness.types import Episode


class Executor(Protocol):
    """A number of slots that each play one episode at a time."""

    count: int

    def start(self, slot: int, episode: Episode) -> None:
        """Requests a reset of the slot's environment."""
        ...

    def step(self, slot: int, commands: tuple[str, ...], turn: int) -> None:
        """Requests a turn of the slot's environment."""
        ...

    def poll(self, wait: bool = True) -> list[tuple[int, StepResult]]:
        """Returns all available answers; with `wait`, waits for at least one unless no request is
        pending.
        """
        ...

    def sources(self) -> Sequence[Any]:
        """Returns objects to wait for (`harness.waiting.wait`): one is readable when `poll` may
        return an answer.
        """
        ...

    def deadline(self) -> float | None:
        """Returns the monotonic time at which `poll` must be called again to notice a silent
        worker, or None.
        """
        ...

    def cancel(self) -> None:
        """Drops all pending requests; their answers are never returned."""
        ...

    def close(self) -> None:
        """Closes environments and workers."""
        ...


class LocalExecutor:
    """Environments in this process, for native engines that answer at once."""

    def __init__(
        self, count: int, reward_mode: str = "sparse", advice_kind: str = "", shaping: Shaping = DEFAULT_SHAPING
    ) -> None:
        self.count = count
        self._hosts = [EnvHost(reward_mode, advice_kind, shaping) for _ in range(count)]
        self._answers: list[tuple[int, StepResult]] = []

    def start(self, slot: int, episode: Episode) -> None:
        self._answers.append((slot, self._hosts[slot].start(episode)))

    def step(self, slot: int, commands: tuple[str, ...], turn: int) -> None:
        self._answers.append((slot, self._hosts[slot].step(commands, turn)))

    def poll(self, wait: bool = True) -> list[tuple[int, StepResult]]:
        answers, self._answers = self._answers, []
        return answers

    def sources(self) -> Sequence[Any]:
        return ()

    def deadline(self) -> float | None:
        return None

    def cancel(self) -> None:
        self._answers = []

    def close(self) -> None:
        for host in self._hosts:
            host.close()


class ProcessExecutor:
    """Environments in worker processes; slot s is in worker s modulo the number of workers.

    A worker that dies or does not answer within `timeout` seconds is replaced. Its episodes are
    lost, and the other workers continue. Starting an interpreter is slow on a loaded machine and
    has `START` additional seconds.
    """

    START = 120.0

    def __init__(
        self,
        count: int,
        workers: int,
        reward_mode: str = "sparse",
        advice_kind: str = "",
        shaping: Shaping = DEFAULT_SHAPING,
        timeout: float = 600.0,
    ) -> None:
        self.count = count
        self.timeout = timeout
        self._config = (reward_mode, advice_kind, shaping)
        self._workers = [Worker(self._config) for _ in range(max(1, min(workers, count)))]
        self._lost: deque[tuple[int, StepResult]] = deque()

    def start(self, slot: int, episode: Episode) -> None:
        self._worker(slot).send(("start", slot, episode))

    def step(self, slot: int, commands: tuple[str, ...], turn: int) -> None:
        self._worker(slot).send(("step", slot, commands, turn))

    def _worker(self, slot: int) -> Worker:
        return self._workers[slot % len(self._workers)]

    def poll(self, wait: bool = True) -> list[tuple[int, StepResult]]:
        answers = self._receive()
        while wait and not answers and any(worker.pending for worker in self._workers):
            deadline = self.deadline()
            connection.wait(self.sources(), None if deadline is None else max(0.0, deadline - time.monotonic()))
            answers = self._receive()
        return answers

    def sources(self) -> list[Any]:
        return [worker.pipe for worker in self._workers if worker.pending]

    def deadline(self) -> float | None:
        return min((self._due(worker) for worker in self._workers if worker.pending), default=None)

    def _due(self, worker: Worker) -> float:
        return worker.busy_since + self.timeout + (0.0 if worker.ready else self.START)

    def _receive(self) -> list[tuple[int, StepResult]]:
        """Returns the available answers, and failures of environments whose worker died or is silent."""
        answers: list[tuple[int, StepResult]] = []
        busy: dict[Any, Worker] = {worker.pipe: worker for worker in self._workers if worker.pending}
        for pipe in connection.wait(list(busy), timeout=0) if busy else ():
            worker = busy[pipe]
            try:
                while worker.pipe.poll():
                    answer = worker.pipe.recv()
                    if worker.answered(answer):
                        answers.append(answer)
            except (EOFError, OSError):
                self._replace(worker, "")
        now = time.monotonic()
        for worker in busy.values():
            if worker in self._workers and worker.pending and now > self._due(worker):
                self._replace(worker, f"no answer within {self._due(worker) - worker.busy_since:.0f} s")
        answers.extend(self._lost)
        self._lost.clear()
        return answers

    def _replace(self, worker: Worker, why: str) -> None:
        """Replaces a worker that died, or that does not answer for the reason `why`."""
        worker.stop()
        why = why or f"its worker process died ({worker.ending()})"
        # A worker answers in order: it was executing the first pending request.
        requests = [(slot, lost(why, not number)) for number, (slot, _) in enumerate(worker.pending)]
        self._lost.extend(requests[worker.dropped :])
        self._workers[self._workers.index(worker)] = Worker(self._config)

    def cancel(self) -> None:
        self._lost.clear()
        for worker in self._workers:
            worker.dropped = len(worker.pending)

    def close(self) -> None:
        for worker in self._workers:
            worker.ask_to_stop()
        for worker in self._workers:
            worker.stop()
