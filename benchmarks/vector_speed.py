"""Steps per second of a random player in one environment and in a vector environment, side by side.

`rates` is used by the speed benchmarks of Overcooked and VirtualHome. Text, offers, resets and the player's own choice
are included. The two take turns, so that a busy machine disturbs both alike.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from envsuite import registry

GAMES = 256
ROUNDS = 5


class Rates(NamedTuple):
    """Steps per second of one environment and of a vector environment."""

    single: float
    vector: float

    def cells(self) -> str:
        """Returns the rates as cells of a Markdown row below `HEADER`."""
        return f"{self.single:,.0f} | {self.vector:,.0f} | {self.vector / self.single:.1f}"


HEADER = f"one environment | vector environment, {GAMES} games | ratio"


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
    """Measures rounds of `steps` steps in one environment, and of `turns` turns of a vector environment.

    Returns the best round of each. `resets` games of other seeds are drawn before, so that what games share (floor
    plans) is in memory, as in a long run.
    """
    env = registry.build(task, "dense", **settings)
    for seed in range(500_000, 500_000 + resets):
        env.reset(seed=seed)
    single, vector = _single(task, settings, steps), _vector(task, settings, turns, games)
    next(vector)
    rows = [(next(single), next(vector)) for _ in range(rounds)]
    return Rates(*map(max, zip(*rows, strict=True)))


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


def _vector(task: str, settings: dict[str, Any], turns: int, games: int) -> Iterator[float]:
    envs = registry.make_vec(task, games, "dense", **settings)
    choose = random.Random(0).random
    _, infos = envs.reset(seed=1_000_000)
    while True:
        began = time.perf_counter()
        for _ in range(turns):
            offers = infos["admissible_commands"]
            infos = envs.step([commands[int(choose() * len(commands))] for commands in offers])[4]
        yield games * turns / (time.perf_counter() - began)
