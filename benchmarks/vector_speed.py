"""Steps per second of a random player in one environment and in the task's vector environment, side by side.

`rates` is used by the speed benchmarks of Overcooked and VirtualHome. Text, offers, resets and the player's own choice
are included. Times are CPU seconds, and the two forms take turns, so that a busy machine disturbs both alike.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from envsuite import registry

GAMES = 256
ROUNDS = 5


class Rates(NamedTuple):
    """Steps per second: one environment, the vector form, and the vector form while its table is still empty."""

    single: float
    vector: float
    cold: float

    def cells(self) -> str:
        """Returns the rates as cells of a Markdown row."""
        return f"{self.single:,.0f} | {self.vector:,.0f} | {self.vector / self.single:.1f} | {self.cold:,.0f}"


def rates(task: str, settings: dict[str, Any], steps: int, turns: int, rounds: int = ROUNDS, resets: int = 0) -> Rates:
    """Measures rounds of `steps` steps in one environment, and of `turns` turns of all games of the vector form.

    The first round of the vector form counts as `cold`, the best of the later ones as its rate. `resets` games of other
    seeds are drawn before, so that what games share (floor plans) is in memory, as in a long run.
    """
    env = registry.build(task, "dense", **settings)
    for seed in range(500_000, 500_000 + resets):
        env.reset(seed=seed)
    single, vector = _single(task, settings, steps), _vector(task, settings, turns)
    cold = next(vector)
    pairs = [(next(single), next(vector)) for _ in range(rounds)]
    return Rates(max(pair[0] for pair in pairs), max(pair[1] for pair in pairs), cold)


def _single(task: str, settings: dict[str, Any], steps: int) -> Iterator[float]:
    env = registry.build(task, "dense", **settings)
    choose, seed = random.Random(0).random, 0
    _, info = env.reset(seed=seed)
    while True:
        began = time.process_time()
        for _ in range(steps):
            offers = info["admissible_commands"]
            _, _, terminated, truncated, info = env.step(offers[int(choose() * len(offers))])
            if terminated or truncated:
                seed += 1
                _, info = env.reset(seed=seed)
        yield steps / (time.process_time() - began)


def _vector(task: str, settings: dict[str, Any], turns: int) -> Iterator[float]:
    envs = registry.make_vec(task, GAMES, "dense", **settings)
    choose = random.Random(0).random
    _, infos = envs.reset(seed=1_000_000)
    while True:
        began = time.process_time()
        for _ in range(turns):
            offers = infos["admissible_commands"]
            infos = envs.step([commands[int(choose() * len(commands))] for commands in offers])[4]
        yield GAMES * turns / (time.process_time() - began)
