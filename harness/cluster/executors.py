"""Slots whose environments live in Ray actors, many in each."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from envsuite.errors import EngineFailure, EnvsuiteError, UsageError
from harness.cluster import connect
from harness.rollout.executors import CLEARING, EnvHosts, Request, StepResult, lost
from harness.types import Episode

AHEAD = 0.25
"""seconds for which a message's environments together play on where they are only asked for advice"""


class EnvWorker:
    """The inside of an actor: the environments of some slots, one request after another."""

    def __init__(self, config: tuple[str, str, float]) -> None:
        self.hosts = EnvHosts(config)

    def versions(self) -> dict[str, str]:
        return connect.versions()

    def pid(self) -> int:
        return os.getpid()

    def answer(self, requests: list[Request]) -> list[tuple[int, list[StepResult]]]:
        """What each slot shows, and where its player follows advice, what it shows in the turns after that."""
        return [self.hosts.play_on(request, AHEAD / len(requests)) for request in requests]

    def close(self) -> None:
        self.hosts.close()


@dataclass(eq=False)
class _Worker:
    actor: Any
    outbox: list[Request] = field(default_factory=list)
    born: Any = None
    """of a replacement: the answer that will say it lives; nothing is sent before"""
    since: float = field(default_factory=time.monotonic)
    """when it was made, or last answered"""


class RayExecutor:
    """`count` slots in `workers` actors of one CPU each; slot s lives in worker s modulo their number.

    What was asked since the last `poll` goes to a worker in one message, where the environments answer at once
    (`batched`); slow ones are asked in a message each, so that an answer waits for no neighbour. Where the policy only
    follows advice (`advice_kind`), a worker plays many turns for one message. A worker that dies, with its node or alone, or
    does not answer within `timeout` seconds, is replaced where the cluster has room, else its slots move in with another
    worker; the episodes it held are lost, and the rollout plays them again. From then on each is asked in a message of
    its own, and as a worker answers in order, the one that takes it down is known.
    """

    MOVING = 30.0
    """seconds a replacement may take to start before its slots move in with a worker that lives"""
    ALONE = connect.SETTING_UP
    """the same where no worker lives, before the run is given up"""

    def __init__(
        self,
        ray: Any,
        count: int,
        workers: int,
        reward_mode: str = "sparse",
        advice_kind: str = "",
        shaping_gamma: float = 0.99,
        resources: dict[str, float] | None = None,
        batched: bool = True,
        timeout: float = 600.0,
    ) -> None:
        self.ray, self.count, self.timeout, self.batched = ray, count, timeout, batched
        workers = max(1, min(workers, count))
        connect.check_room(ray, workers, {"CPU": 1.0, **(resources or {})}, "environment workers")
        # No restarts by Ray: a restarted actor would have forgotten its environments and not say so.
        self._class = ray.remote(num_cpus=1, resources=resources or {}, max_restarts=0)(EnvWorker)
        self._config = reward_mode, advice_kind, shaping_gamma
        # Two messages to a worker, so that it plays the one half while the head writes down the other.
        self._most = math.ceil(count / workers / 2) if advice_kind else count
        self._workers = [_Worker(self._class.remote(self._config)) for _ in range(workers)]
        self._asked: dict[Any, tuple[_Worker, list[int], float]] = {}
        self._at_hand: deque[tuple[int, StepResult]] = deque()
        self._ahead: dict[
            int, deque[tuple[str, StepResult]]
        ] = {}  # of a slot: what was played on, with the advice followed
        self._greet()

    def _greet(self) -> None:
        """Waits for the workers, and refuses nodes of other versions or without what is needed."""
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
        self._ahead.pop(slot, None)  # beyond the cap on turns
        self._ask(slot, ("start", slot, episode))

    def step(self, slot: int, commands: tuple[str, ...], turn: int) -> None:
        if not self._ahead.get(slot):
            self._ask(slot, ("step", slot, commands, turn))
            return
        advice, shown = self._ahead[slot].popleft()
        if commands != (advice,):
            raise EngineFailure(f"The policy asks for advice, was told {advice!r}, and said {commands}.")
        self._at_hand.append((slot, shown))

    def _ask(self, slot: int, request: Request) -> None:
        self._workers[slot % len(self._workers)].outbox.append(request)

    def _send(self) -> None:
        most = self._most if self.batched else 1
        for worker in self._workers:  # one that took another's slots in comes up twice
            while worker.born is None and worker.outbox:
                part, worker.outbox = worker.outbox[:most], worker.outbox[most:]
                slots = [request[1] for request in part]
                self._asked[worker.actor.answer.remote(part)] = worker, slots, time.monotonic()

    def poll(self, wait: bool = True) -> list[tuple[int, StepResult]]:
        while True:
            self._settle_replacements()
            self._send()
            if self._at_hand:
                answers = list(self._at_hand)
                self._at_hand.clear()
                return answers
            wait &= bool(self._asked) or any(worker.outbox for worker in self._workers)
            answers = self._collect(1.0 if wait else 0.0)
            if answers or not wait:
                return answers
            self._replace_silent()

    def _collect(self, patience: float) -> list[tuple[int, StepResult]]:
        """What has been answered; waits `patience` seconds for the first of it."""
        refs = list(self._asked)
        if not refs:
            time.sleep(min(patience, 0.1))
            return []
        ready, late = self.ray.wait(refs, num_returns=1, timeout=patience) if patience else ([], refs)
        if late:
            ready += self.ray.wait(late, num_returns=len(late), timeout=0)[0]
        answers = []
        for ref in ready:
            if ref in self._asked:  # not where its worker was replaced meanwhile
                answers.extend(self._read(ref))
        return answers

    def _read(self, ref: Any) -> list[tuple[int, StepResult]]:
        worker, slots, _ = self._asked[ref]
        try:
            found: list[tuple[int, list[StepResult]]] = self.ray.get(ref)
        except self.ray.exceptions.RayActorError:
            self._replace(worker, "its worker died")
            return []
        except self.ray.exceptions.RayTaskError as error:  # what an actor cannot send or take
            said = f"{EngineFailure.__name__}: {connect.last_line(error)}"
            found = [(slot, [StepResult("", {}, error=said)]) for slot in slots]
        except self.ray.exceptions.RayError as error:  # answered, and gone with the node's memory
            self._replace(worker, f"its answer was lost ({type(error).__name__})")
            return []
        del self._asked[ref]
        worker.since = time.monotonic()
        for slot, shown in found:
            self._ahead[slot] = deque((before.advice or "", after) for before, after in pairwise(shown))
        return [(slot, shown[0]) for slot, shown in found]

    def _replace_silent(self) -> None:
        now = time.monotonic()
        # A worker answers in order: it has been thinking since its last answer, or since it was asked when idle.
        late = {worker for worker, _, asked in self._asked.values() if now - max(asked, worker.since) > self.timeout}
        for worker in late:
            self._replace(worker, f"no answer within {self.timeout:.0f} s")

    def _replace(self, worker: _Worker, why: str) -> None:
        if worker not in self._workers:
            return
        for number, ref in enumerate([ref for ref, (asked, _, _) in self._asked.items() if asked is worker]):
            self._at_hand.extend((slot, lost(why, not number)) for slot in self._asked.pop(ref)[1])
        self._at_hand.extend((request[1], lost(why, False)) for request in worker.outbox)
        self.batched = False
        self._succeed(worker)

    def _succeed(self, worker: _Worker) -> _Worker:
        self.ray.kill(worker.actor)
        successor = _Worker(self._class.remote(self._config))
        successor.born = successor.actor.versions.remote()
        self._workers = [successor if one is worker else one for one in self._workers]
        return successor

    def _settle_replacements(self) -> None:
        """Lets replacements that have started work; those that find no room give their slots to a worker that lives.

        Raises UsageError where none does, or MissingExtra, where a node that they start on lacks what is needed.
        """
        for worker in {one for one in self._workers if one.born is not None}:
            if self.ray.wait([worker.born], timeout=0)[0]:
                try:
                    connect.check_actor(self.ray, worker.born, "environment worker")
                    worker.born, worker.since = None, time.monotonic()
                    continue
                except self.ray.exceptions.RayError:  # it died on the way; its time to start goes on
                    successor = self._succeed(worker)
                    successor.outbox, successor.since = worker.outbox, worker.since
                    worker = successor
            alive = [one for one in self._workers if one.born is None]
            if alive and time.monotonic() - worker.since > self.MOVING:
                self.ray.kill(worker.actor)
                home = min(alive, key=self._workers.count)
                home.outbox.extend(worker.outbox)
                self._workers = [home if one is worker else one for one in self._workers]
        if all(one.born is not None and time.monotonic() - one.since > self.ALONE for one in self._workers):
            raise UsageError(
                f"No environment worker lives, and the cluster had no room for another within {self.ALONE:.0f} s: "
                "see `ray status`, start its nodes again, and go on with --resume. What has ended is kept."
            )

    def close(self) -> None:
        farewells = [worker.actor.close.remote() for worker in self._workers if worker.born is None]
        self.ray.wait(farewells, num_returns=len(farewells), timeout=CLEARING)
        for worker in self._workers:
            self.ray.kill(worker.actor)
        self._asked.clear()
