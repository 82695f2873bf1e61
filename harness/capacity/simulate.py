"""A run as a discrete-event simulation: policy, environment workers, head and disk as resources (SimPy).

The head is simulated as it works: it takes the answers at hand, writes what has ended, asks the policy for all slots that
wait, and sends their commands on; while the policy thinks it does nothing else.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from envsuite.errors import MissingExtra

AHEAD = 0.25
"""as `harness.cluster.executors.AHEAD`, which cannot be imported without Ray"""
MESSAGE = 0.004
"""seconds of a message from the head to a worker and back, as fitted in benchmarks/capacity.md"""
DISK = 200.0
"""megabytes a second of the head's disk, assumed"""


@dataclass(frozen=True)
class Work:
    """What is played."""

    reset_s: float
    turn_s: float
    lengths: Sequence[int]
    """turns of the episodes, in the order they are played; its length is their number"""
    record_bytes: float = 0.0


@dataclass(frozen=True)
class Cluster:
    """Where it is played; times in seconds."""

    workers: int
    slots: int
    replicas: int = 1
    """of the policy, or model servers; 0: a policy that only passes on the environment's advice"""
    prompts_per_s: float = float("inf")
    """of one replica with all the conversations it can take"""
    latency_s: float = 0.0
    """of the policy's answer, however few the prompts"""
    batched: bool = True
    """a worker's requests of a round travel in one message; else in one each"""
    message_s: float = 0.0
    """from the head to a worker and back, and what the worker spends on it"""
    head_turn_s: float = 0.0
    head_round_s: float = 0.0
    """the head's own time for each round of answers"""
    head_message_s: float = 0.0
    """the head's own time for each message and its answer, what is in it left out"""
    journal_s_per_mb: float = 0.0
    disk_mb_per_s: float = float("inf")


@dataclass
class Simulated:
    """What came of it."""

    seconds: float = 0.0
    busy: dict[str, float] = field(default_factory=dict)
    """share of the time, of each resource: policy, environments, head, disk"""
    ended: list[float] = field(default_factory=list)
    """when each episode ended"""

    @property
    def rate(self) -> float:
        """Episodes a second while all slots are busy: between a quarter and three quarters of them."""
        first, last = len(self.ended) // 4, 3 * len(self.ended) // 4
        span = self.ended[last] - self.ended[first] if last > first else 0.0
        return (last - first) / span if span else len(self.ended) / self.seconds

    @property
    def bottleneck(self) -> str:
        return max(self.busy, key=lambda name: self.busy[name])


def simulate(work: Work, cluster: Cluster) -> Simulated:
    """Plays `work` on `cluster`. Needs the extra `capacity`."""
    try:
        import simpy
    except ModuleNotFoundError:
        raise MissingExtra("A simulation needs the package 'simpy': pip install 'envsuite[capacity]'") from None
    world = simpy.Environment()
    run = _Run(world, simpy, work, cluster)
    world.run(until=world.process(run.head()))
    spent = {**run.spent, "environments": run.spent["environments"] / cluster.workers}
    run.found.seconds = world.now
    run.found.busy = {name: used / world.now for name, used in spent.items()}
    return run.found


class _Run:
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
        self.found = Simulated()
        self.left: dict[int, int] = {}  # slot -> turns still to play
        self.most = (
            -(-cluster.slots // cluster.workers) if cluster.replicas else -(-cluster.slots // cluster.workers // 2)
        )

    def _worker(self, inbox: Any) -> Generator[Any, Any, None]:
        while True:
            requests = yield inbox.get()
            yield self.world.timeout(self.cluster.message_s)
            spent, answers = 0.0, []
            for slot, kind in requests:
                # Where advice is followed, a slot plays on for its share of AHEAD.
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
            ready: list[int] = []
            while True:
                self._send(outbox)
                if not self.left or (ready and not self.answers.items):
                    break
                messages = [(yield self.answers.get())]
                while self.answers.items:
                    messages.append((yield self.answers.get()))
                found = [answer for message in messages for answer in message]
                booked = sum(max(turns, 1) for _, turns in found)
                own = self.cluster.head_round_s + self.cluster.head_message_s * len(messages)
                yield self._use("head", own + self.cluster.head_turn_s * booked)
                for slot, turns in found:
                    self.left[slot] -= turns
                    if self.left[slot] > 0:
                        ready.append(slot)
                        continue
                    yield from self._write()
                    refill(slot)
            if self.cluster.replicas and ready:
                yield from self._act(len(ready))
            for slot in ready:
                ask(slot, "step")
            self._send(outbox)

    def _send(self, outbox: dict[int, list[tuple[int, str]]]) -> None:
        most = self.most if self.cluster.batched else 1
        for worker, requests in outbox.items():
            for first in range(0, len(requests), most):
                self.inboxes[worker].put(requests[first : first + most])
        outbox.clear()

    def _act(self, prompts: int) -> Generator[Any, Any, None]:
        """The prompts are spread over the replicas; the head waits for the last."""
        parts = [
            len(range(number, prompts, self.cluster.replicas)) for number in range(min(self.cluster.replicas, prompts))
        ]
        yield self.world.all_of([self.world.process(self._replica(part)) for part in parts])

    def _replica(self, prompts: int) -> Generator[Any, Any, None]:
        with self.replicas.request() as turn:
            yield turn
            seconds = self.cluster.latency_s + prompts / self.cluster.prompts_per_s
            self.spent["policy"] += seconds / self.cluster.replicas
            yield self.world.timeout(seconds)

    def _write(self) -> Generator[Any, Any, None]:
        megabytes = self.work.record_bytes / 1e6
        yield self._use("head", self.cluster.journal_s_per_mb * megabytes)
        with self.disk.request() as turn:
            yield turn
            yield self._use("disk", megabytes / self.cluster.disk_mb_per_s)
        self.found.ended.append(self.world.now)
