"""Checks of the reward modes: sparse, dense and shaped."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from envsuite.checks.demand import demand
from envsuite.core import TextEnv
from envsuite.errors import DataError, UsageError
from envsuite.types import RewardMode


def modes(build: Callable[..., TextEnv], seeds: list[int]) -> str:
    """Checks the returns of every reward mode; a mode that a task refuses is named."""
    summaries = []
    for mode in RewardMode:
        try:
            env = build(mode)
        except UsageError as refusal:
            demand(mode is RewardMode.SHAPED, f"{mode} is refused: {refusal}")
            summaries.append("no shaped reward")
            continue
        refused = 0
        try:
            for seed in seeds[:3]:
                try:
                    env.reset(seed=seed)
                except DataError as refusal:  # a family may not know the shortest plan of some games
                    demand(mode is RewardMode.SHAPED, f"{mode} is refused for seed {seed}: {refusal}")
                    refused += 1
                    continue
                _check_returns(env, mode)
            summaries.append(f"{mode} (refused for {refused} of {len(seeds[:3])} games)" if refused else str(mode))
        finally:
            env.close()
    return ", ".join(summaries)


def _check_returns(env: TextEnv, mode: RewardMode) -> None:
    """Plays the expert's game in an environment just reset and checks the return that `mode` defines."""
    total = 0.0
    discount = 1.0
    done = success = terminated = False
    start = env._potential
    while not done:
        command = env.expert() if type(env).experts else None
        command = command or env.random_command(np.random.default_rng(0))
        _, reward, terminated, truncated, info = env.step(command)
        done = terminated or truncated
        success = info["success"]
        if mode is RewardMode.SHAPED:
            total += discount * (reward - float(success))
            discount *= env.shaping.discount(env.primitive_steps)
        else:
            total += reward
    if mode is RewardMode.SPARSE:
        demand(total == float(success), f"sparse rewards sum to {total} for success={success}")
    if mode is RewardMode.DENSE and success:
        demand(total > 0, f"dense rewards sum to {total} for a solved game")
    if mode is RewardMode.SHAPED and terminated:  # phi(end) = 0, so that the discounted terms telescope to -phi(start)
        demand(abs(total + start) < 1e-6, f"shaping sums to {total}, not to -phi(start) = {-start}")
