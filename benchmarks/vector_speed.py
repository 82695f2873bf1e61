"""Steps per second of a random player in one environment and in the task's vector environment, side by side.

`rates` is used by the speed benchmarks of Overcooked and VirtualHome. Text, offers, resets and the player's own choice
are included. The forms take turns, so that a busy machine disturbs all alike. Times are wall-clock seconds, because
several processes are compared with one: the machine must be idle.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from envsuite import registry

GAMES = 256
PROCESSES = 2
ROUNDS = 5


class Rates(NamedTuple):
    """Steps per second: one environment, the vector form, that in two processes, and while its table is empty."""

    single: float
    vector: float
    shared: float
    cold: float

    def cells(self) -> str:
        """Returns the rates as cells of a Markdown row below `HEADER`."""
        vector, shared = (f"{rate:,.0f} | {rate / self.single:.1f}" for rate in (self.vector, self.shared))
        return f"{self.single:,.0f} | {vector} | {shared} | {self.cold:,.0f}"


HEADER = (
    f"one environment | vector form, {GAMES} games | ratio | vector form, {PROCESSES} processes | ratio "
    "| vector form, empty table"
)


def whole_episodes(task: str, turns: int) -> int:
    """Returns the number of turns, at least `turns`, in which the longest episodes of a task and their resets fit.

    Games that start together often end together, so a round of other length has more or less than its share of resets.
    """
    longest = registry.build(task).settings.max_steps + 1
    return math.ceil(turns / longest) * longest


def rates(
    task: str,
    settings: dict[str, Any],
    steps: int,
    turns: int,
    rounds: int = ROUNDS,
    resets: int = 0,
    games: int = GAMES,
) -> Rates:
    """Measures rounds of `steps` steps in one environment, and of `turns` turns of all games of the vector form.

    The first round of the vector form counts as `cold`, the best of the later ones as its rate. Each process draws
    `resets` games of other seeds before, so that what games share (floor plans) is in memory, as in a long run.
    """
    env = registry.build(task, "dense", **settings)
    for seed in range(500_000, 500_000 + resets):
        env.reset(seed=seed)
    single, *vectors = [
        _single(task, settings, steps),
        *(_vector(task, settings, turns, processes, resets, games) for processes in (1, PROCESSES)),
    ]
    cold, _ = [next(vector) for vector in vectors]
    rows = [[next(single), *map(next, vectors)] for _ in range(rounds)]
    return Rates(*map(max, zip(*rows, strict=True)), cold)


def _single(task: str, settings: dict[str, Any], steps: int) -> Iterator[float]:
    env = registry.build(task, "dense", **settings)
    choose, seed = random.Random(0).random, 0
    _, info = env.reset(seed=seed)
    while True:
        began = time.perf_counter()
        for _ in range(steps):
            offers = info["admissible_commands"]
            _, _, terminated, truncated, info = env.step(offers[int(choose() * len(offers))])
            if terminated or truncated:
                seed += 1
                _, info = env.reset(seed=seed)
        yield steps / (time.perf_counter() - began)


def _vector(
    task: str, settings: dict[str, Any], turns: int, processes: int, resets: int, games: int
) -> Iterator[float]:
    envs = registry.make_vec(task, games, "dense", processes=processes, **settings)
    try:
        if processes > 1:
            for seed in range(500_000, 500_000 + resets * processes, games):
                envs.reset(seed=seed)
        choose = random.Random(0).random
        _, infos = envs.reset(seed=1_000_000)
        while True:
            began = time.perf_counter()
            for _ in range(turns):
                offers = infos["admissible_commands"]
                infos = envs.step([commands[int(choose() * len(commands))] for commands in offers])[4]
            yield games * turns / (time.perf_counter() - began)
    finally:
        envs.close()
