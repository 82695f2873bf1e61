"""Measured cost of one environment of each family, shipped as `profiles.json`.

    python -m harness.capacity.profile [--family NAME ...] [--seconds 10] [--write]

Times are CPU seconds of the engine and its child processes, so that other load matters little. Sizes are bytes and
characters of the random player's episodes. A token counts as four characters, as in the difficulty cards.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.resources
import importlib.util
import itertools
import json
import math
import multiprocessing
import os
import pickle
import platform
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

import envsuite
from envsuite import registry
from envsuite.cache import write_atomically
from envsuite.errors import EnvsuiteError
from envsuite.types import Task
from harness import records
from harness.evaluate import RunConfig
from harness.policies import make_policy
from harness.records import Journal
from harness.rollout.executors import LocalExecutor, StepResult
from harness.rollout.loop import rollout
from harness.types import Prompt, Reply

CHARS_PER_TOKEN = 4
MAX_EPISODES = 64
REPEATS = 5


@dataclass(frozen=True)
class Profile:
    """Costs of the environments of one task."""

    task: str
    reset_s: float
    """CPU seconds of a reset, without constructing the environment"""
    turn_s: float
    """CPU seconds per turn"""
    turns: dict[str, list[int]]
    """lengths of the measured episodes by player: "random", "expert" """
    worker_mb: float
    """resident megabytes of a process with the engine and one environment"""
    environment_mb: float
    """resident megabytes of each further environment"""
    instruction_chars: float
    observation_chars: float
    """characters per turn, including the admissible commands"""
    command_chars: float
    record_bytes: float
    """bytes per episode in results.jsonl"""
    measured: str = ""
    """date, versions and machine of the measurement"""

    def mean_turns(self, player: str) -> float:
        return mean(self.turns.get(player) or self.turns["random"])


@dataclass(frozen=True)
class Head:
    """CPU seconds of the process that runs the rollout and writes the journal."""

    turn_s: float
    """per turn: process an answer, build the prompt and process the reply"""
    answer_s: float
    """per turn: read the environment's answer from another process"""
    journal_s_per_mb: float
    """per megabyte: build, write and flush records"""
    message_s: float = 0.0
    """per message to a worker of a Ray cluster, without its contents; 0: not measured"""
    measured: str = ""


def load(source: str | Path | None = None) -> tuple[Head, dict[str, Profile]]:
    """Returns the costs of the head and the profiles by family, shipped or from a file."""
    shipped = importlib.resources.files("harness.capacity").joinpath("profiles.json")
    profile = json.loads(shipped.read_text() if source is None else Path(source).read_text())
    return Head(**profile["head"]), {name: Profile(**fields) for name, fields in profile["families"].items()}


class _Meter:
    """Stopwatch for CPU seconds of this process and, with `children`, of its descendants.

    If a descendant was re-parented to init, so that its CPU time is lost, a lap counts as wall time.
    """

    def __init__(self, children: bool = False) -> None:
        self._children = children
        self._last = self._now()

    def _now(self) -> tuple[float, float]:
        spent = time.process_time()
        if self._children:
            ended = resource.getrusage(resource.RUSAGE_CHILDREN)
            living = sum(map(_ticks, _descendants(os.getpid()))) / os.sysconf("SC_CLK_TCK")
            spent += ended.ru_utime + ended.ru_stime + living
        return spent, time.monotonic()

    def lap(self) -> float:
        (before, began), self._last = self._last, self._now()
        spent = self._last[0] - before
        return spent if spent >= 0 else self._last[1] - began


def _descendants(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):  # the process has ended
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, path.read_text().split()):
                yield child
                yield from _descendants(child)


def _ticks(pid: int) -> int:
    """Returns the clock ticks of a running process and of its finished children."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15]))
    return 0


def _resident_mb() -> float:
    """Returns the resident megabytes of this process and its descendants."""
    pages = 0
    for pid in (os.getpid(), *_descendants(os.getpid())):
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure(task: Task, seconds: float = 10.0) -> Profile:
    """Measures a task by playing the random player and the expert for `seconds` each.

    Call it in a fresh process, so that the memory figures belong to the task alone.
    """
    lengths, resets, steps = dict[str, list[int]](), [0.0, 0], [0.0, 0]
    meter = _Meter(children=registry.env_class(task).isolate)
    players = ["random", *(["expert"] if registry.env_class(task).experts else [])]
    env = registry.build(task, "sparse")
    try:
        seeds = RunConfig(task, "random").seeds[:MAX_EPISODES]
        env.reset(seed=seeds[0])
        for player in players:
            began = time.monotonic()
            lengths[player] = []
            for seed in seeds:
                meter.lap()
                env.reset(seed=seed)
                resets[0] += meter.lap()
                resets[1] += 1
                rng, over, turns = np.random.default_rng(seed), False, 0
                while not over:
                    command = env.random_command(rng) if player == "random" else env.expert() or ""
                    _, _, terminated, truncated, _ = env.step(command)
                    over, turns = terminated or truncated, turns + 1
                if player == "random":
                    steps[0] += meter.lap()
                    steps[1] += turns
                lengths[player].append(turns)
                if time.monotonic() - began > seconds:
                    break
        total, more_envs = _resident_mb(), []
        for seed in seeds[:8]:
            more_envs.append(registry.build(task, "sparse"))
            more_envs[-1].reset(seed=seed)
        extra = (_resident_mb() - total) / len(more_envs)
        for extra_env in more_envs:
            extra_env.close()
    finally:
        env.close()
    sample = list(
        rollout(
            make_policy("random"),
            RunConfig(task, "random", episodes=min(2, len(seeds))).all_episodes(),
            LocalExecutor(1, advice_kind="random"),
        )
    )
    sampled_turns = [turn for run in sample for turn in run.turns]
    return Profile(
        task=task.id,
        reset_s=round(resets[0] / resets[1], 6),
        turn_s=round(steps[0] / steps[1], 6),
        turns={player: sorted(profile) for player, profile in lengths.items()},
        worker_mb=round(total, 1),
        environment_mb=round(max(extra, 0.0), 2),
        instruction_chars=round(mean(len(run.instructions) + len(run.objective) for run in sample)),
        observation_chars=round(
            mean(len(turn.observation) + len(", ".join(turn.admissible)) for turn in sampled_turns)
        ),
        command_chars=round(mean(len(turn.reply.text) for turn in sampled_turns), 1),
        record_bytes=round(mean(len(records.dump(records.record(run, "random", "sparse"))) for run in sample)),
    )


class Instant:
    """Policy without cost that always chooses the first admissible command."""

    name, advice_kind, deterministic = "instant", "", True

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        return [Reply("", commands=(prompt.admissible[0],)) for prompt in prompts]

    def close(self) -> None:
        pass


def measure_head(task: Task, episodes: int = 64) -> Head:
    """Measures the rollout's overhead over replaying the same commands on a bare environment.

    Each cost is the minimum of `REPEATS` measurements, since other load can only add to it.
    """
    config, meter = RunConfig(task, "random", episodes=episodes, split="train"), _Meter()
    minimum = dict.fromkeys(("whole", "bare", "answer", "megabyte"), math.inf)
    for _ in range(REPEATS):
        meter.lap()
        runs = list(rollout(Instant(), config.all_episodes(), LocalExecutor(32)))
        total = meter.lap()
        env = registry.build(task, "sparse")
        for run in runs:
            env.reset(seed=run.episode.seed)
            for turn in run.turns:
                env.step(turn.commands[0])
        bare = meter.lap()
        result = [
            pickle.dumps(StepResult(turn.observation, turn.info, turn.reward)) for run in runs for turn in run.turns
        ]
        meter.lap()
        for answer in result:
            pickle.loads(answer)
        read = meter.lap()
        with tempfile.TemporaryDirectory() as folder:
            journal = Journal(Path(folder) / "journal.jsonl")
            meter.lap()
            for run in runs:
                journal.append(records.record(run, "silent", "sparse"))
            written = meter.lap()
            journal.close()
            megabytes = (Path(folder) / "journal.jsonl").stat().st_size / 1e6
        turns = len(result)
        costs = {"whole": total / turns, "bare": bare / turns, "answer": read / turns, "megabyte": written / megabytes}
        minimum = {name: min(minimum[name], seconds) for name, seconds in costs.items()}
    return Head(
        turn_s=round(minimum["whole"] - minimum["bare"], 6),
        answer_s=round(minimum["answer"], 6),
        journal_s_per_mb=round(minimum["megabyte"], 6),
    )


def measure_message(task: Task, answer_s: float, messages: int = 100) -> float:
    """Measures the CPU seconds of this process, including Ray's threads, per message to a worker.

    Starts a private Ray cluster. `answer_s` is the cost of reading the answer, which counts with the turn. The result
    is the minimum over `REPEATS` repetitions of `messages` messages.
    """
    from harness.cluster import connect
    from harness.cluster.executors import RayExecutor

    ray = connect.connect()
    episodes = itertools.cycle(RunConfig(task, "random", episodes=8, split="train").all_episodes())
    executor, meter, minimum = RayExecutor(ray, 1, 1), _Meter(), math.inf
    try:
        result, turn = StepResult("", {}, terminated=True), 0
        for repeat in range(REPEATS + 1):  # the first repetition is a warm-up
            meter.lap()
            for _ in range(messages):
                if result.terminated or result.truncated:
                    executor.start(0, next(episodes))
                    turn = 0
                else:
                    executor.step(0, (result.info["admissible_commands"][0],), turn)
                    turn += 1
                ((_, result),) = executor.poll()
            spent = meter.lap()
            minimum = min(minimum, spent if repeat else math.inf)
        return round(max(0.0, minimum / messages - answer_s), 6)
    finally:
        executor.close()
        ray.shutdown()


def _in_fresh_process(function: Any, *arguments: Any) -> Any:
    """Calls a function in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def _measure_family(family: str, seconds: float) -> Profile | str:
    try:
        (task,) = registry.tasks(family)
        return measure(task, seconds)
    except EnvsuiteError as error:
        return str(error)


def _measure_head() -> Head:
    task = registry.TASKS["Overcooked-easy-v0"]
    head = measure_head(task)
    if importlib.util.find_spec("ray") is None:
        return head
    return replace(head, message_s=measure_message(task, head.answer_s))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--family", action="append", default=[], help="measure only this family; the others keep their values"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="duration per player and family")
    parser.add_argument("--write", action="store_true", help="write into the package instead of printing")
    args = parser.parse_args(argv)
    path = Path(__file__).with_name("profiles.json")
    profiles = json.loads(path.read_text())["families"] if path.exists() else {}
    head = asdict(_in_fresh_process(_measure_head))
    for family in args.family or sorted(registry.FAMILIES):
        profile = _in_fresh_process(_measure_family, family, args.seconds)
        if isinstance(profile, str):
            print(f"{family}: not measured: {profile}", flush=True)
            continue
        profiles[family] = {**asdict(profile), "measured": _provenance()}
        lines = ",\n".join(f'"{name}": {json.dumps(item)}' for name, item in sorted(profiles.items()))
        text = f'{{"head": {json.dumps({**head, "measured": _provenance()})},\n"families": {{\n{lines}\n}}}}\n'
        if args.write:
            write_atomically(path, text)
        print(f"{family}: {json.dumps(asdict(profile))}", flush=True)


def _provenance() -> str:
    """Returns a text that names date, versions, machine and load."""
    load = os.getloadavg()[0]
    return (
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, envsuite {envsuite.__version__}, "
        f"Python {platform.python_version()}, "
        f"{os.cpu_count()} x {platform.machine()}, load {load:.0f}"
    )


if __name__ == "__main__":
    main()
