"""Checks of the interface: Gymnasium's checker, splits, the schema of `info`, and any string as a command."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium.utils.env_checker import check_env

from envsuite.checks.demand import demand
from envsuite.core import TextEnv
from envsuite.types import StopReason, Task

INFO: dict[str, type | tuple[type, ...]] = {
    "success": bool,
    "is_action_valid": bool,
    "admissible_commands": list,
    "progression": float,
    "stop_reason": (StopReason, type(None)),
}
HOSTILE = (
    "",
    " ",
    "\n",
    "\\",
    "\x00\x01\x1b[2J",
    "x" * 10_000,
    "打开 冰箱 🧊",
    "'; DROP TABLE games; --",
    "../../etc/passwd",
    "save",
    "restore",
    "restart",
    "quit",
    "{}{0}%s%n",
    "<action>look</action>",
    "go to\tnowhere",
    "undo",
    '"""',
    "\ud800",
)


def gymnasium(build: Callable[..., TextEnv]) -> str:
    """Runs Gymnasium's own checker with warnings as errors."""
    env = build()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(env, skip_render_check=True)
    finally:
        env.close()
    return "passed"


def splits(task: Task) -> str:
    """Checks that no two splits share a seed; states their sizes."""
    ordered = sorted(task.splits.items(), key=lambda item: item[1].start)
    for (first, seeds), (second, later_seeds) in pairwise(ordered):
        demand(seeds.stop <= later_seeds.start, f"{first} and {second} share seeds")
    return ", ".join(f"{name} {len(seeds):,}" for name, seeds in ordered)


def info_schema(build: Callable[..., TextEnv], seeds: list[int]) -> str:
    """Checks keys and types of `info` on resets and steps, and the instructions."""
    env = build()
    try:
        steps = 0
        for info in _infos(env, seeds):
            for key, kind in INFO.items():
                demand(key in info, f"info lacks {key!r}")
                demand(isinstance(info[key], kind), f"info[{key!r}] is {type(info[key]).__name__}")
            demand(0.0 <= info["progression"] <= 1.0, f"progression is {info['progression']}")
            demand(all(isinstance(word, str) for word in info["admissible_commands"]), "a command is not a string")
            steps += 1
        demand(bool(env.instructions.strip()), "no instructions")
        return f"{steps} infos"
    finally:
        env.close()


def _infos(env: TextEnv, seeds: list[int]) -> Iterator[dict[str, Any]]:
    for seed in seeds:
        _, info = env.reset(seed=seed)
        demand(isinstance(info.get("objective"), str) and bool(info["objective"]), "no objective on reset")
        labels = info.get("labels", {})
        demand(
            all(isinstance(x, str) for pair in labels.items() for x in pair), f"labels are not all strings: {labels}"
        )
        yield info
        for turn in range(10):
            command = env.random_command(np.random.default_rng([seed, turn]))
            _, reward, terminated, truncated, info = env.step(command)
            demand(isinstance(reward, float) and math.isfinite(reward), f"reward {reward!r} is not a finite float")
            demand((info["stop_reason"] is None) != (terminated or truncated), "stop_reason does not match the ending")
            yield info
            if terminated or truncated:
                break


def fuzz(build: Callable[..., TextEnv], seeds: list[int]) -> str:
    """Checks that strange and random strings get an observation and never win."""
    env = build()
    tried = 0
    try:
        env.action_space.seed(0)
        for commands in (HOSTILE, [env.action_space.sample() for _ in range(30)]):
            env.reset(seed=seeds[0])
            for command in commands:
                text, reward, terminated, truncated, info = env.step(command)
                demand(isinstance(text, str), f"{command[:20]!r} returned {type(text).__name__}, not a string")
                demand(not info["success"], f"{command[:20]!r} won the game")
                tried += 1
                if terminated or truncated:
                    env.reset(seed=seeds[0])
        return f"{tried} strings"
    finally:
        env.close()
