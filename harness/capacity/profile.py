"""What one environment of each family costs, measured here and shipped as `profiles.json`.

    python -m harness.capacity.profile [--family NAME ...] [--seconds 10] [--write]

Times are CPU seconds of the engine and its child processes, so that what else the machine does counts little; sizes are
bytes and characters of the random player's episodes. Four characters are taken for a token, as in the difficulty cards.
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
MOST_EPISODES = 64
REPEATS = 5


@dataclass(frozen=True)
class Profile:
    """Costs of a task's environments."""

    task: str
    reset_s: float
    """CPU seconds of a reset, the building of the environment left out"""
    turn_s: float
    """CPU seconds of a turn"""
    turns: dict[str, list[int]]
    """lengths of the episodes played, by player: "random", "expert" """
    worker_mb: float
    """resident megabytes of a process with the engine and one environment in it"""
    environment_mb: float
    """of every further environment"""
    instruction_chars: float
    observation_chars: float
    """of a turn, its admissible commands included"""
    command_chars: float
    record_bytes: float
    """of an episode in results.jsonl"""
    measured: str = ""
    """when and where"""

    def mean_turns(self, player: str) -> float:
        return mean(self.turns.get(player) or self.turns["random"])


@dataclass(frozen=True)
class Head:
    """What the process costs that holds the policy and the journal, in CPU seconds."""

    turn_s: float
    """to take an answer, ask the policy and book the reply, the conversation included"""
    answer_s: float
    """to read a turn's answer from another process"""
    journal_s_per_mb: float
    """to make, write and flush records"""
    message_s: float = 0.0
    """to send a message to a worker of a Ray cluster and take its answer in, what is in it left out; 0: not measured"""
    measured: str = ""


def load(source: str | Path | None = None) -> tuple[Head, dict[str, Profile]]:
    """The shipped profiles (or a file's), by family."""
    shipped = importlib.resources.files("harness.capacity").joinpath("profiles.json")
    found = json.loads(shipped.read_text() if source is None else Path(source).read_text())
    return Head(**found["head"]), {name: Profile(**one) for name, one in found["families"].items()}


class _Meter:
    """CPU seconds of this process and, with `children`, of all processes below it, lap by lap.

    Where a process went to init and took its count with it, the lap's wall time stands in.
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
    with contextlib.suppress(OSError):  # it has ended meanwhile
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, path.read_text().split()):
                yield child
                yield from _descendants(child)


def _ticks(pid: int) -> int:
    """Clock ticks of a process that lives, and of its children that have ended."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15]))
    return 0


def _resident_mb() -> float:
    """Of this process and all below it."""
    pages = 0
    for pid in (os.getpid(), *_descendants(os.getpid())):
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure(task: Task, seconds: float = 10.0) -> Profile:
    """Plays the random player and the expert for `seconds` each. In a fresh process, or memory is not the task's."""
    lengths, resets, steps = dict[str, list[int]](), [0.0, 0], [0.0, 0]
    meter = _Meter(children=registry.env_class(task).isolate)
    players = ["random", *(["expert"] if registry.env_class(task).experts else [])]
    env = registry.build(task, "sparse")
    try:
        seeds = RunConfig(task, "random").seeds[:MOST_EPISODES]
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
        whole, others = _resident_mb(), []
        for seed in seeds[:8]:
            others.append(registry.build(task, "sparse"))
            others[-1].reset(seed=seed)
        further = (_resident_mb() - whole) / len(others)
        for other in others:
            other.close()
    finally:
        env.close()
    sample = list(
        rollout(
            make_policy("random"),
            RunConfig(task, "random", episodes=min(2, len(seeds))).all_episodes(),
            LocalExecutor(1, advice_kind="random"),
        )
    )
    said = [turn for run in sample for turn in run.turns]
    return Profile(
        task=task.id,
        reset_s=round(resets[0] / resets[1], 6),
        turn_s=round(steps[0] / steps[1], 6),
        turns={player: sorted(found) for player, found in lengths.items()},
        worker_mb=round(whole, 1),
        environment_mb=round(max(further, 0.0), 2),
        instruction_chars=round(mean(len(run.instructions) + len(run.objective) for run in sample)),
        observation_chars=round(mean(len(turn.observation) + len(", ".join(turn.admissible)) for turn in said)),
        command_chars=round(mean(len(turn.reply.text) for turn in said), 1),
        record_bytes=round(mean(len(records.dump(records.record(run, "random", "sparse"))) for run in sample)),
    )


class Instant:
    """A policy that costs nothing: the first admissible command."""

    name, advice_kind, deterministic = "instant", "", True

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        return [Reply("", commands=(prompt.admissible[0],)) for prompt in prompts]

    def close(self) -> None:
        pass


def measure_head(task: Task, episodes: int = 64) -> Head:
    """The rollout's own cost: what it takes beyond replaying the same commands on a bare environment.

    Each cost is the least of `REPEATS` measurements: what else the machine does only adds.
    """
    config, meter = RunConfig(task, "random", episodes=episodes, split="train"), _Meter()
    least = dict.fromkeys(("whole", "bare", "answer", "megabyte"), math.inf)
    for _ in range(REPEATS):
        meter.lap()
        runs = list(rollout(Instant(), config.all_episodes(), LocalExecutor(32)))
        whole = meter.lap()
        env = registry.build(task, "sparse")
        for run in runs:
            env.reset(seed=run.episode.seed)
            for turn in run.turns:
                env.step(turn.commands[0])
        bare = meter.lap()
        shown = [
            pickle.dumps(StepResult(turn.observation, turn.info, turn.reward)) for run in runs for turn in run.turns
        ]
        meter.lap()
        for answer in shown:
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
        turns = len(shown)
        once = {"whole": whole / turns, "bare": bare / turns, "answer": read / turns, "megabyte": written / megabytes}
        least = {name: min(least[name], seconds) for name, seconds in once.items()}
    return Head(
        turn_s=round(least["whole"] - least["bare"], 6),
        answer_s=round(least["answer"], 6),
        journal_s_per_mb=round(least["megabyte"], 6),
    )


def measure_message(task: Task, answer_s: float, messages: int = 100) -> float:
    """CPU seconds of this process, Ray's threads in it included, for a message to a worker of a cluster of its own.

    `answer_s`: of reading the answer, which is counted with the turn. The least of `REPEATS` times so many messages.
    """
    from harness.cluster import connect
    from harness.cluster.executors import RayExecutor

    ray = connect.connect()
    episodes = itertools.cycle(RunConfig(task, "random", episodes=8, split="train").all_episodes())
    slots, meter, least = RayExecutor(ray, 1, 1), _Meter(), math.inf
    try:
        shown, turn = StepResult("", {}, terminated=True), 0
        for repeat in range(REPEATS + 1):  # the first to warm up
            meter.lap()
            for _ in range(messages):
                if shown.terminated or shown.truncated:
                    slots.start(0, next(episodes))
                    turn = 0
                else:
                    slots.step(0, (shown.info["admissible_commands"][0],), turn)
                    turn += 1
                ((_, shown),) = slots.poll()
            spent = meter.lap()
            least = min(least, spent if repeat else math.inf)
        return round(max(0.0, least / messages - answer_s), 6)
    finally:
        slots.close()
        ray.shutdown()


def _apart(function: Any, *arguments: Any) -> Any:
    """A call in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def _measured(family: str, seconds: float) -> Profile | str:
    try:
        (task,) = registry.tasks(family)
        return measure(task, seconds)
    except EnvsuiteError as error:
        return str(error)


def _head_measured() -> Head:
    task = registry.TASKS["Overcooked-easy-v0"]
    head = measure_head(task)
    if importlib.util.find_spec("ray") is None:
        return head
    return replace(head, message_s=measure_message(task, head.answer_s))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", action="append", default=[], help="these alone; the others keep what they have")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each player of each family")
    parser.add_argument("--write", action="store_true", help="into the package; else printed")
    args = parser.parse_args(argv)
    path = Path(__file__).with_name("profiles.json")
    kept = json.loads(path.read_text())["families"] if path.exists() else {}
    head = asdict(_apart(_head_measured))
    for family in args.family or sorted(registry.FAMILIES):
        found = _apart(_measured, family, args.seconds)
        if isinstance(found, str):
            print(f"{family}: not measured: {found}", flush=True)
            continue
        kept[family] = {**asdict(found), "measured": _here()}
        lines = ",\n".join(f'"{name}": {json.dumps(one)}' for name, one in sorted(kept.items()))
        text = f'{{"head": {json.dumps({**head, "measured": _here()})},\n"families": {{\n{lines}\n}}}}\n'
        if args.write:
            write_atomically(path, text)
        print(f"{family}: {json.dumps(asdict(found))}", flush=True)


def _here() -> str:
    """Where and when something was measured, in words."""
    load = os.getloadavg()[0]
    return (
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, envsuite {envsuite.__version__}, Python {platform.python_version()}, "
        f"{os.cpu_count()} x {platform.machine()}, load {load:.0f}"
    )


if __name__ == "__main__":
    main()
