"""Discrete-event simulation of a run (SimPy): policy, environment workers, head and disk are resources.

The head works like the asynchronous rollout: it processes the answers and replies that have arrived, writes finished
episodes, submits a prompt for every slot whose environment answered, and sends replies on to the workers. No episode
waits for the reply to another one.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from envsuite.errors import MissingExtra

AHEAD = 0.25
"""equals `harness.cluster.executors.AHEAD`, which cannot be imported without Ray"""
MESSAGE = 0.004
"""seconds of a message from the head to a worker and back, fitted in benchmarks/capacity.md"""
DISK = 200.0
"""assumed rate of the head's disk in megabytes per second"""


@dataclass(frozen=True)
class Work:
    """Episodes of the run; times in seconds."""

    reset_s: float
    turn_s: float
    lengths: Sequence[int]
    """turns of each episode, in playing order"""
    record_bytes: float = 0.0


@dataclass(frozen=True)
class Cluster:
    """Cluster that plays the run; times in seconds."""

    workers: int
    slots: int
    replicas: int = 1
    """replicas of the policy, or model servers; 0: a policy that only follows the environment's advice"""
    prompts_per_s: float = float("inf")
    """throughput of one replica over all its conversations"""
    latency_s: float = 0.0
    """latency of a reply, independent of the load"""
    batched: bool = True
    """requests of a round to one worker share a message; otherwise each is a message"""
    message_s: float = 0.0
    """transfer to a worker and back, including the worker's time for it"""
    head_turn_s: float = 0.0
    head_round_s: float = 0.0
    """time of the head per round of answers"""
    head_message_s: float = 0.0
    """time of the head per message and answer, without the contents"""
    journal_s_per_mb: float = 0.0
    disk_mb_per_s: float = float("inf")


@dataclass
class Simulated:
    """Result of a simulation."""

    seconds: float = 0.0
    busy: dict[str, float] = field(default_factory=dict)
    """share of the time by resource: environments, head and disk busy, and slots that wait for the policy"""
    ended: list[float] = field(default_factory=list)
    """end time of each episode"""

    @property
    def rate(self) -> float:
        """Returns episodes per second between the first and the last quarter of the episodes."""
        first, last = len(self.ended) // 4, 3 * len(self.ended) // 4
        span = self.ended[last] - self.ended[first] if last > first else 0.0
        return (last - first) / span if span else len(self.ended) / self.seconds

    @property
    def bottleneck(self) -> str:
        return max(self.busy, key=lambda name: self.busy[name])


def simulate(work: Work, cluster: Cluster) -> Simulated:
    """Simulates `work` on `cluster`. Raises MissingExtra without the extra `capacity`."""
    try:
        import simpy
    except ModuleNotFoundError:
        raise MissingExtra("A simulation needs the package 'simpy': pip install 'envsuite[capacity]'") from None
    world = simpy.Environment()
    run = _Run(world, simpy, work, cluster)
    world.run(until=world.process(run.head()))
    spent = {
        **run.spent,
        "environments": run.spent["environments"] / cluster.workers,
        "policy": run.spent["policy"] / min(cluster.slots, len(work.lengths)),
    }
    run.result.seconds = world.now
    run.result.busy = {name: used / world.now for name, used in spent.items()}
    return run.result


class _Run:
    """State and processes of one simulation."""

    def __init__(self, world: Any, simpy: Any, work: Work, cluster: Cluster) -> None:
        self.world, self.work, self.cluster = world, work, cluster
        self.simpy = simpy
        self.answers = simpy.Store(world)
        self.inboxes = [simpy.Store(world) for _ in range(cluster.workers)]
        for inbox in self.inboxes:
            world.process(self._worker(inbox))
        self.disk = simpy.Resource(world, 1)
        self.replicas = simpy.Resource(world, max(1, cluster.replicas))
        self.spent = dict.fromkeys(("policy", "environments", "head", "disk"), 0.0)
        self.result = Simulated()
        self.left: dict[int, int] = {}  # slot -> remaining turns
        self.batch_size = (
            -(-cluster.slots // cluster.workers) if cluster.replicas else -(-cluster.slots // cluster.workers // 2)
        )

    def _worker(self, inbox: Any) -> Generator[Any, Any, None]:
        while True:
            requests = yield inbox.get()
            yield self.world.timeout(self.cluster.message_s)
            spent, answers = 0.0, []
            for slot, kind in requests:
                # A policy that follows advice plays ahead for its share of AHEAD.
                share = AHEAD / len(requests) if not self.cluster.replicas else 0.0
                turns = min(self.left[slot], max(1, round(share / max(self.work.turn_s, 1e-9)))) if share else 1
                turns = turns if kind == "step" or share else 0
                spent += self.work.turn_s * turns + (self.work.reset_s if kind == "start" else 0.0)
                answers.append((slot, turns))
            self.spent["environments"] += self.cluster.message_s + spent
            yield self.world.timeout(spent)
            self.answers.put(answers)

    def _use(self, name: str, seconds: float) -> Any:
        self.spent[name] += seconds
        return self.world.timeout(seconds)

    def head(self) -> Generator[Any, Any, None]:
        todo = iter(self.work.lengths)
        outbox: dict[int, list[tuple[int, str]]] = {}

        def ask(slot: int, kind: str) -> None:
            outbox.setdefault(slot % self.cluster.workers, []).append((slot, kind))

        def refill(slot: int) -> None:
            self.left.pop(slot, None)
            length = next(todo, None)
            if length is not None:
                self.left[slot] = length
                ask(slot, "start")

        for slot in range(self.cluster.slots):
            refill(slot)
        while self.left:
            self._send(outbox)
            messages = [(yield self.answers.get())]
            while self.answers.items:
                messages.append((yield self.answers.get()))
            for slot in (message for message in messages if isinstance(message, int)):
                ask(slot, "step")  # the policy has replied
            rounds = [message for message in messages if not isinstance(message, int)]
            if not rounds:
                continue
            answers = [answer for message in rounds for answer in message]
            turns_answered = sum(max(turns, 1) for _, turns in answers)
            overhead = self.cluster.head_round_s + self.cluster.head_message_s * len(rounds)
            yield self._use("head", overhead + self.cluster.head_turn_s * turns_answered)
            for slot, turns in answers:
                self.left[slot] -= turns
                if self.left[slot] <= 0:
                    yield from self._write()
                    refill(slot)
                elif self.cluster.replicas:
                    self.world.process(self._reply(slot))
                else:
                    ask(slot, "step")

    def _send(self, outbox: dict[int, list[tuple[int, str]]]) -> None:
        batch_size = self.batch_size if self.cluster.batched else 1
        for worker, requests in outbox.items():
            for first in range(0, len(requests), batch_size):
                self.inboxes[worker].put(requests[first : first + batch_size])
        outbox.clear()

    def _reply(self, slot: int) -> Generator[Any, Any, None]:
        """Generates the reply to one slot's prompt on a free replica, and hands it to the head."""
        began = self.world.now
        with self.replicas.request() as turn:
            yield turn
            yield self.world.timeout(1 / self.cluster.prompts_per_s)
        yield self.world.timeout(self.cluster.latency_s)
        self.spent["policy"] += self.world.now - began
        self.answers.put(slot)

    def _write(self) -> Generator[Any, Any, None]:
        megabytes = self.work.record_bytes / 1e6
        yield self._use("head", self.cluster.journal_s_per_mb * megabytes)
        with self.disk.request() as turn:
            yield turn
            yield self._use("disk", megabytes / self.cluster.disk_mb_per_s)
        self.result.ended.append(self.world.now)
