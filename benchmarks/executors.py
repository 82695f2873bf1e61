"""Episodes per second of the executors, measured in one run, and the overhead of the harness.

    python -m benchmarks.executors [--episodes 400] [--markdown benchmarks/executors.md]

Compares (a) this process, (b) Ray with 1, 2 and 4 environment workers, (c) a plain loop over one
environment, and (d) one Ray actor per environment with one remote call per step, where the batch waits
for its slowest member, as common in training code. A random player plays Overcooked, whose engine
answers in microseconds, so the overhead dominates. More workers than cores share the cores. The time
of the local executor is also split into parts and compared with the plain loop. Tokens per second are
measured for a language model with random weights on the CPU, with conversations one at a time or in
batches of 32.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from baselines.studies import tiny_model
from envsuite import registry
from envsuite.core import TextEnv
from harness import records
from harness.capacity.profile import Instant
from harness.cluster import connect
from harness.cluster.executors import EnvWorker, RayExecutor
from harness.cluster.replicas import RayPolicy
from harness.evaluate import Execution, RunConfig, open_slots
from harness.policies import make_policy
from harness.records import Journal
from harness.rollout.executors import Executor, LocalExecutor
from harness.rollout.hosts import EnvHost
from harness.rollout.loop import EpisodeState, rollout
from harness.rollout.seeding import Seeding
from harness.types import Policy, Prompt, Reply

TASK = "Overcooked-easy-v0"


def config(episodes: int) -> RunConfig:
    return RunConfig(registry.TASKS[TASK], "random", episodes=episodes, split="train")


def timed(play: Callable[[], Any], repeats: int = 3) -> tuple[float, float]:
    """Returns the median wall-clock seconds and the minimum CPU seconds of this process."""
    spans = []
    for _ in range(repeats):
        began, spent = time.perf_counter(), time.process_time()
        play()
        spans.append((time.perf_counter() - began, time.process_time() - spent))
    wall, own = zip(*spans, strict=True)
    return statistics.median(wall), min(own)


def local(count: int) -> Executor:
    """Opens the local executor as an evaluation does; a player that follows advice uses one slot."""
    return open_slots(config(count), Execution(max_concurrent=count), count, "random")


def through(slots: Executor, episodes: int) -> None:
    assert sum(1 for _ in rollout(make_policy("random"), config(episodes).all_episodes(), slots)) == episodes


def plain(episodes: int) -> None:
    """Plays episodes in a plain loop over one environment, without records and prompts."""
    env = registry.build(registry.TASKS[TASK], "sparse")
    for seed in config(episodes).seeds:
        env.reset(seed=seed)
        rng, over = np.random.default_rng(seed), False
        while not over:
            _, _, terminated, truncated, _ = env.step(env.random_command(rng))
            over = terminated or truncated


class Lonely:
    """Ray actor with one environment."""

    def ready(self) -> None:
        pass

    def reset(self, seed: int) -> list[str]:
        self.env = registry.build(registry.TASKS[TASK], "sparse")
        self.rng = np.random.default_rng(seed)
        return list(self.env.reset(seed=seed)[1]["admissible_commands"])

    def step(self) -> tuple[str, bool]:
        text, _, terminated, truncated, _ = self.env.step(self.env.random_command(self.rng))
        return text, terminated or truncated


def actor_per_environment(ray: Any, actors: list[Any], episodes: int) -> None:
    """Steps all environments in lockstep; each step waits for the slowest, finished ones idle."""
    seeds = list(config(episodes).seeds)
    for first in range(0, episodes, len(actors)):
        live = actors[: len(seeds[first : first + len(actors)])]
        batch = seeds[first : first + len(live)]
        ray.get([actor.reset.remote(seed) for actor, seed in zip(live, batch, strict=True)])
        while live:
            over = ray.get([actor.step.remote() for actor in live])
            live = [actor for actor, (_, ended) in zip(live, over, strict=True) if not ended]


@contextlib.contextmanager
def actors(ray: Any, cls: type, count: int, *arguments: Any) -> Iterator[list[Any]]:
    """Starts `count` actors that reserve almost no CPU; waits until all are ready."""
    started = [ray.remote(num_cpus=0.001)(cls).remote(*arguments) for _ in range(count)]
    ray.get([actor.ready.remote() for actor in started])
    try:
        yield started
    finally:
        for actor in started:
            ray.kill(actor)


class LonelyHost(EnvWorker):
    """Environment worker for a single slot."""

    def ready(self) -> None:
        pass


class ActorSlots:
    """Executor with one actor per slot; sends all calls at once and waits for all answers."""

    def __init__(self, ray: Any, actors: list[Any]) -> None:
        self.ray, self.count, self._actors = ray, len(actors), actors
        self._asked: list[Any] = []

    def start(self, slot: int, episode: Any) -> None:
        self._asked.append(self._actors[slot].answer.remote([("start", slot, episode)]))

    def step(self, slot: int, commands: tuple[str, ...], turn: int) -> None:
        self._asked.append(self._actors[slot].answer.remote([("step", slot, commands, turn)]))

    def sources(self) -> list[Any]:
        return []

    def deadline(self) -> float | None:
        return None

    def poll(self, wait: bool = True) -> list[tuple[int, Any]]:
        calls, self._asked = self._asked, []
        return [(slot, answer) for answers in self.ray.get(calls) for slot, (answer,) in answers]

    def cancel(self) -> None:
        self._asked = []

    def close(self) -> None:
        pass


@contextlib.contextmanager
def metered(**places: list[tuple[type, str]]) -> Iterator[Counter[str]]:
    """Measures CPU seconds spent in methods, by name, without the time of other measured methods they call."""
    spent, within = Counter[str](), [0.0]

    def meter(inner: Callable[..., Any], name: str) -> Callable[..., Any]:
        def outer(*args: Any, **kwargs: Any) -> Any:
            within.append(0.0)
            began = time.process_time()
            try:
                return inner(*args, **kwargs)
            finally:
                span = time.process_time() - began
                spent[name] += span - within.pop()
                within[-1] += span

        return outer

    with contextlib.ExitStack() as stack:
        for name, methods in places.items():
            for owner, method in methods:
                stack.enter_context(mock.patch.object(owner, method, meter(getattr(owner, method), name)))
        began = time.process_time()
        yield spent
        spent["rest"] = time.process_time() - began - sum(spent.values())


def parts(episodes: int, count: int) -> Iterator[str]:
    """Yields a table of CPU time per turn by part, for the local executor and the plain loop."""
    env = registry.env_class(registry.TASKS[TASK])
    places = {
        "engine": [(env, "step"), (env, "reset")],
        "player": [(TextEnv, "random_command")],
        "dice": [(Seeding, "at"), (Seeding, "below")],
        "build": [(EnvHost, "_build")],
        "host": [(EnvHost, "start"), (EnvHost, "step")],
        "prompt": [(EpisodeState, "prompt")],
        "take": [(EpisodeState, "take")],
    }
    runs = rollout(make_policy("random"), config(episodes).all_episodes(), local(count))
    turns = sum(len(run.turns) for run in runs)
    with metered(**places) as loop:
        plain(episodes)
    with metered(**places) as ours:
        through(local(count), episodes)
    labels = {
        "engine": "the engine's steps and resets",
        "player": "the random player's choice",
        "dice": "random numbers derived from the turn's key",
        "build": "building the environment",
        "host": "assembling what the environment returns",
        "prompt": "building the prompt",
        "take": "storing the turn for the record",
        "rest": "everything else: slots, the rollout loop, trajectories",
    }
    yield "\n| where the processor's time goes, microseconds a turn | plain loop | local |\n|---|--:|--:|"
    for name, text in labels.items():
        yield f"| {text} | {1e6 * loop[name] / turns:.0f} | {1e6 * ours[name] / turns:.0f} |"
    over = sum(ours.values()) - sum(loop.values())
    shares = sorted(((ours[name] - loop[name]) / over, text) for name, text in labels.items())
    share, most = shares[-1]
    yield f"\nOf what local takes beyond the plain loop, {100 * share:.0f} % is the row '{most}'. Measuring slows both."


def tokens(ray: Any, episodes: int = 32, turns: int = 3) -> Iterator[str]:
    """Yields a table of tokens per second of one model under each executor."""
    yield "\n| a language model of random weights, CPU | tokens/s | x one at a time |\n|---|--:|--:|"
    base = 0.0

    def row(name: str, policy: Policy, slots: Executor) -> str:
        nonlocal base
        # Warm-up: reads the weights and imports the engines.
        assert sum(1 for _ in rollout(policy, config(slots.count).all_episodes(), slots, max_turns=1)) == slots.count
        began, written = time.perf_counter(), 0
        for run in rollout(policy, config(episodes).all_episodes(), slots, max_turns=turns):
            written += sum(turn.reply.output_tokens for turn in run.turns)
        rate = written / (time.perf_counter() - began)
        slots.close()
        policy.close()
        base = base or rate
        line = f"| {name} | {rate:,.0f} | {rate / base:.2f} |"
        print(line, flush=True)
        return line

    with tempfile.TemporaryDirectory() as folder:
        tiny_model.make(Path(folder), tiny_model.texts([TASK], 2), "s", vocabulary=1024, context=4096)
        options = {"temperature": 1.0, "max_tokens": 32, "device": "cpu", "dtype": "float32"}
        model = functools.partial(make_policy, folder, **options)
        yield row("(c) plain loop, one conversation at a time", model(), LocalExecutor(1))
        yield row(f"(a) local, {episodes} conversations a batch", model(), LocalExecutor(episodes))
        for workers in (1, 2, 4):
            yield row(
                f"(b) Ray, {episodes} conversations, {workers} workers", model(), RayExecutor(ray, episodes, workers)
            )
        replicas = RayPolicy(ray, folder, 2, options)
        yield row(
            f"(b) Ray, {episodes} conversations, 1 worker, the model in 2 replicas",
            replicas,
            RayExecutor(ray, episodes, 1),
        )
        with actors(ray, LonelyHost, episodes, ("sparse", "", 0.99)) as alone:
            yield row(f"(d) Ray, an actor per environment ({episodes})", model(), ActorSlots(ray, alone))


class Rash(Instant):
    """Instant policy that picks admissible commands by seed, so that episodes differ in length."""

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        return [Reply("", commands=(prompt.admissible[prompt.seed % len(prompt.admissible)],)) for prompt in prompts]


class Busy(LocalExecutor):
    """Local executor that records the share of busy slots per turn until the last episode starts."""

    def __init__(self, count: int, episodes: int) -> None:
        super().__init__(count)
        self.left, self.shares = episodes, [0.0]

    def start(self, slot: int, episode: Any) -> None:
        self.left -= 1
        super().start(slot, episode)

    def poll(self, wait: bool = True) -> list[tuple[int, Any]]:
        answers = super().poll(wait)
        if answers and self.left > 0:
            self.shares.append(len({slot for slot, _ in answers}) / self.count)
        return answers


def overhead() -> Iterator[str]:
    episodes = 1024
    slots = Busy(512, episodes)
    began, spent, lengths = time.process_time(), 0.0, list[int]()
    step = slots._hosts[0].__class__.step

    def timed_step(host: Any, *arguments: Any) -> Any:
        nonlocal spent
        before = time.process_time()
        answer = step(host, *arguments)
        spent += time.process_time() - before
        return answer

    slots._hosts[0].__class__.step = timed_step  # type: ignore[method-assign]
    try:
        for run in rollout(Rash(), config(episodes).all_episodes(), slots):
            lengths.append(len(run.turns))
    finally:
        slots._hosts[0].__class__.step = step  # type: ignore[method-assign]
    total = time.process_time() - began
    overhead_ms = 1000 * (total - spent) / sum(lengths)
    yield (
        "| harness per turn at 512 slots, instant policy, engine's steps left out, processor time "
        f"| {overhead_ms:.3f} ms |"
    )
    yield (
        f"| slots busy until the last episode starts (512 slots, {episodes} episodes of {min(lengths)} to "
        f"{max(lengths)} turns) | {100 * statistics.mean(slots.shares[1:]):.1f} % |"
    )
    yield from writing("Overcooked-easy-v0", "random")
    yield from writing("VirtualHome-food_preparation-v0", "expert")


def writing(task: str, player: str, count: int = 20_000) -> Iterator[str]:
    """Yields rows on the speed of writing the record of one real episode many times."""
    with tempfile.TemporaryDirectory() as folder:
        todo = RunConfig(registry.TASKS[task], player, episodes=1, split="train").all_episodes()
        run = next(rollout(make_policy(player), todo, LocalExecutor(1, advice_kind=player)))
        record = records.record(run, player, "sparse")
        journal = Journal(Path(folder) / "journal.jsonl")

        def append() -> None:
            for number in range(count):
                journal.append({**record, "seed": number})

        (written, own), keys = timed(append, 1), journal.done()
        sorting, own_sorting = timed(lambda: records.write_results(Path(folder) / "results.jsonl", journal, keys), 1)
        size = (Path(folder) / "results.jsonl").stat().st_size / count
        journal.close()
    yield (
        f"| journal, {size / 1000:.1f} kB an episode, flushed one by one "
        f"| {count / written:,.0f} episodes/s; {count / own:,.0f} by processor time |"
    )
    yield (
        f"| results.jsonl, {count:,} of them sorted and written whole "
        f"| {count / sorting:,.0f} episodes/s; {count / own_sorting:,.0f} by processor time |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's default of 15 starves on a busy machine
    import ray
    from ray.cluster_utils import Cluster

    count, rows = 32, ["| what | episodes/s | x plain loop | by this process's time alone |\n|---|--:|--:|--:|"]
    base, own_base = timed(lambda: plain(args.episodes), 5)

    def row(name: str, seconds: float, own: float = 0.0, episodes: int = args.episodes) -> None:
        least = base * episodes / args.episodes
        alone = f"{own_base / own:.2f}" if own else ""
        rows.append(f"| {name} | {episodes / seconds:,.0f} | {least / seconds:.2f} | {alone} |")
        print(rows[-1], flush=True)

    row("(c) plain loop, one environment, nothing kept", base, own_base)
    row("(a) local", *timed(lambda: through(local(count), args.episodes), 5))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    try:
        connect.connect(cluster.address)
        for workers in (1, 2, 4):
            slots = RayExecutor(ray, count, workers, advice_kind="random")
            through(slots, count)  # engines imported
            seconds, _ = timed(functools.partial(through, slots, args.episodes))
            row(f"(b) Ray, 32 slots in {workers} workers", seconds)
            slots.close()
        few = max(1, args.episodes // 4 // count) * count  # complete batches only; a partial one would be mostly idle
        with actors(ray, Lonely, count) as alone:
            actor_per_environment(ray, alone, count)  # engines imported
            seconds, _ = timed(lambda: actor_per_environment(ray, alone, few), 1)
        row("(d) Ray, an actor per environment (32)", seconds, episodes=few)
        rows.extend(tokens(ray))
    finally:
        ray.shutdown()
        cluster.shutdown()
    rows.extend(parts(args.episodes, count))
    rows.append("\n| the harness itself | |\n|---|--:|")
    rows.extend(overhead())
    print("\n".join(rows[7:]))
    if args.markdown:
        load = os.getloadavg()[0]
        head = (
            f"# Executors\n\n`python -m benchmarks.executors`, {TASK}, random player, medians of 3 or "
            "5 (processor time: "
            f"the least); {os.cpu_count()} cores, load {load:.0f}, niceness {os.nice(0)}.\n\n"
        )
        args.markdown.write_text(head + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
