"""Policy replicas: a local model in several Ray actors, on the cluster's GPUs or CPUs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from envsuite.errors import EngineFailure, EnvsuiteError, UsageError
from harness import waiting
from harness.cluster import connect
from harness.lm import model_files
from harness.policies import find, make_policy
from harness.policies.connections.affinity import ServerAffinity
from harness.types import Prompt, Reply
from harness.waiting import Outbox

TIMES = 3
"""Number of replicas that may die of the same prompt."""


class PolicyWorker:
    """Actor with one policy. It answers many prompts at the same time, and each one as soon as its
    reply is complete.
    """

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self._arguments = name, options
        self._policy: waiting.Asynchronous | None = None
        self._loading = asyncio.Lock()
        self._replies: dict[int, asyncio.Future[Reply]] = {}
        self._tickets = 0
        self._driver: asyncio.Task[None] | None = None

    async def versions(self) -> dict[str, str]:
        """Returns the versions on its node."""
        return connect.versions()

    async def weights_hash(self) -> str:
        """Returns the hash of the weights on its node."""
        return model_files.weights_hash(find(self._arguments[0])[1])

    async def answer(self, prompt: Prompt) -> Reply | EnvsuiteError:
        """Answers a prompt. Returns EnvsuiteError as a value, because Ray would wrap an exception."""
        try:
            policy = await self._loaded()
            self._tickets += 1
            ticket = self._tickets
            reply = self._replies[ticket] = asyncio.get_running_loop().create_future()
            policy.submit(ticket, prompt)
            if self._driver is None or self._driver.done():
                self._driver = asyncio.create_task(self._drive(policy))
            return await reply
        except EnvsuiteError as error:
            return error

    async def _loaded(self) -> waiting.Asynchronous:
        """Returns the policy. Loads it in a thread on first use: the actor answers `versions`
        meanwhile.
        """
        async with self._loading:
            if self._policy is None:
                name, options = self._arguments
                self._policy = waiting.asynchronous(await asyncio.to_thread(make_policy, name, **options))
            return self._policy

    async def _drive(self, policy: waiting.Asynchronous) -> None:
        """Runs the policy until no prompt is pending; new prompts arrive between its steps."""
        while self._replies:
            try:
                for ticket, reply in await asyncio.to_thread(policy.collect, 0.0):
                    self._replies.pop(ticket).set_result(reply)
            except Exception as error:
                policy.cancel()
                pending, self._replies = self._replies, {}
                for future in pending.values():
                    future.set_exception(error)


class RayPolicy:
    """`count` replicas of the policy `name`. A conversation stays with one replica, which has its
    prefix in memory.

    A new conversation goes to the replica with the fewest pending prompts. A replica that dies is
    replaced if the cluster has room; otherwise another replica takes over. Its prompts are asked
    again and get the same replies, because sampling depends on the prompt's seed.
    """

    advice_kind = ""

    STARTING = connect.SETTING_UP
    """seconds for a replica to start on a node, without loading the model"""
    SILENT = 3600.0
    """seconds for a reply, including loading the model"""

    def __init__(self, ray: Any, name: str, count: int, options: dict[str, Any]) -> None:
        self.ray, self.name, self._arguments = ray, name, (name, options)
        self.deterministic = False
        self._weights_hash = ""
        gpus = 1.0 if ray.cluster_resources().get("GPU", 0.0) and options.get("device") != "cpu" else 0.0
        needs = {"CPU": 1.0, **({"GPU": gpus} if gpus else {})}
        connect.check_room(ray, count, needs, "policy replicas")
        self._class = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0)(PolicyWorker)
        self._replicas = [self._class.remote(*self._arguments) for _ in range(count)]
        self._affinity = ServerAffinity()
        self._load: Counter[int] = Counter()
        self._outbox = Outbox()
        self._failed: deque[tuple[int, int, Prompt, int, Any]] = deque()  # generation, ticket, prompt, attempt, actor
        self._sent: dict[int, tuple[float, int]] = {}  # by ticket: time and replica
        started = [replica.versions.remote() for replica in self._replicas]
        try:
            late = ray.wait(started, num_returns=count, timeout=self.STARTING)[1]
            if late:
                raise UsageError(self._silent(len(late), self.STARTING))
            for ref in started:
                connect.check_actor(ray, ref, "policy replica")
        except ray.exceptions.RayError as error:
            self.close()
            raise UsageError(f"A replica of {name} did not start: {connect.last_line(error)}") from None
        except EnvsuiteError:
            self.close()
            raise

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        return waiting.act(self, prompts)

    def weights_hash(self) -> str:
        """Returns the hash of the weights here or, if only the nodes have them, on a replica's node."""
        if not self._weights_hash:
            self._weights_hash = model_files.weights_hash(find(self.name)[1]) or self._hash_on_a_node()
        return self._weights_hash

    def _hash_on_a_node(self) -> str:
        for replica in self._replicas:
            with contextlib.suppress(self.ray.exceptions.RayError):
                return str(self.ray.get(replica.weights_hash.remote(), timeout=self.STARTING))
        return ""

    def submit(self, ticket: int, prompt: Prompt) -> None:
        number = self._affinity.choose(prompt.key, range(len(self._replicas)), self._load)
        self._send(self._outbox.expect(), ticket, prompt, number, 1)

    def _send(self, generation: int, ticket: int, prompt: Prompt, number: int, attempt: int) -> None:
        actor = self._replicas[number]
        self._load[number] += 1
        self._sent[ticket] = time.monotonic(), number
        done = functools.partial(self._done, generation, ticket, prompt, attempt, actor)
        actor.answer.remote(prompt).future().add_done_callback(done)

    def _done(
        self,
        generation: int,
        ticket: int,
        prompt: Prompt,
        attempt: int,
        actor: Any,
        future: Future[Reply | EnvsuiteError],
    ) -> None:
        """Stores a reply or an error, or queues the prompt for `_retry` if its replica died.

        Ray calls this in one of its threads.
        """
        error = future.exception()
        if error is None:
            self._outbox.put(generation, ticket, future.result())
        elif isinstance(error, self.ray.exceptions.RayTaskError):
            message = f"A replica of {self.name}: {connect.last_line(error)}"
            self._outbox.put(generation, ticket, EngineFailure(message))
        else:
            self._failed.append((generation, ticket, prompt, attempt, actor))
            self._outbox.wakeup.set()

    def collect(self, timeout: float | None = 0.0) -> list[tuple[int, Reply]]:
        while True:
            patience = self.SILENT if timeout is None else timeout
            replies = self._outbox.take(min(patience, self.SILENT))
            for ticket, _ in replies:
                self._forget(ticket)
            self._retry()
            now = time.monotonic()
            late = sum(now - sent > self.SILENT for sent, _ in self._sent.values())
            if late:
                raise UsageError(self._silent(late, self.SILENT))
            if replies or timeout is not None or not self._outbox.pending:
                return replies

    def _retry(self) -> None:
        """Replaces replicas that died and sends their prompts again."""
        failed = []
        while self._failed:
            failure = self._failed.popleft()
            if failure[0] == self._outbox.generation:
                failed.append(failure)
                self._forget(failure[1])
        if any(attempt >= TIMES for *_, attempt, _ in failed):
            raise EngineFailure(
                f"A replica of {self.name} died {TIMES} times of the same prompts: see Ray's logs on its node (out of "
                "memory?). Finished episodes are kept: --resume continues."
            )
        dead = {actor for *_, actor in failed}
        numbers = {number for number, replica in enumerate(self._replicas) if replica in dead}
        if numbers:
            self._replace(numbers)
        for generation, ticket, prompt, attempt, _ in failed:
            number = self._affinity.choose(prompt.key, range(len(self._replicas)), self._load)
            self._send(generation, ticket, prompt, number, attempt + 1)

    def _forget(self, ticket: int) -> None:
        _, number = self._sent.pop(ticket)
        self._load[number] -= 1

    def cancel(self) -> None:
        self._outbox.cancel()
        self._sent.clear()
        self._load.clear()
        self._failed.clear()

    def sources(self) -> Sequence[Any]:
        return (self._outbox.wakeup,)

    def _silent(self, count: int, seconds: float) -> str:
        return (
            f"{count} requests to replicas of {self.name} did not get an answer within {seconds:.0f} s: "
            "see `ray status`. Finished episodes are kept: --resume continues."
        )

    def _replace(self, numbers: set[int]) -> None:
        """Starts new replicas; without room for one, another replica takes its place. Raises
        UsageError if none lives.
        """
        for number in numbers:
            self.ray.kill(self._replicas[number])
            self._replicas[number] = self._class.remote(*self._arguments)
        started = [replica.versions.remote() for replica in self._replicas]
        ready = set(self.ray.wait(started, num_returns=len(started), timeout=self.STARTING)[0])
        living = [
            replica
            for replica, ref in zip(self._replicas, started, strict=True)
            if ref in ready and self._is_alive(ref)
        ]
        if not living:
            raise UsageError(
                f"No replica of {self.name} lives, and the cluster had no room for another within "
                f"{self.STARTING:.0f} s: see `ray status`, start its nodes again, and continue with --resume. "
                "Finished episodes are kept."
            )
        for number, replica in enumerate(self._replicas):
            if replica not in living:
                self.ray.kill(replica)
                self._replicas[number] = living[number % len(living)]

    def _is_alive(self, started: Any) -> bool:
        try:
            connect.check_actor(self.ray, started, "policy replica")
        except self.ray.exceptions.RayError:
            return False
        return True

    def close(self) -> None:
        self.cancel()
        for replica in self._replicas:
            self.ray.kill(replica)
