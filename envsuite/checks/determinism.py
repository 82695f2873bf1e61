"""Checks that a seed gives the same game, in one process and in another."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from envsuite import registry
from envsuite.checks.demand import demand
from envsuite.core import TextEnv
from envsuite.types import Task


def transcript(env: TextEnv, seed: int, turns: int = 12) -> str:
    """Returns a SHA-256 digest of everything a random player observes and receives as reward in one
    game.
    """
    digest = hashlib.sha256()

    def add(*values: Any) -> None:
        digest.update(json.dumps(values, sort_keys=True, default=str).encode())

    text, info = env.reset(seed=seed, options={"attempt": 1})
    add(text, info["admissible_commands"], info["objective"], info.get("labels"), env.instructions)
    for turn in range(turns):
        command = env.random_command(np.random.default_rng([seed, turn]))
        text, reward, terminated, truncated, info = env.step(command)
        add(command, text, reward, terminated, truncated, info["admissible_commands"], info["success"])
        if terminated or truncated:
            break
    return digest.hexdigest()


def same_process(build: Callable[..., TextEnv], seeds: list[int]) -> str:
    """Checks that two environments of one process play each seed alike, in any order."""
    env, second_env = build(), build()
    try:
        first = [transcript(env, seed) for seed in seeds]
        # Play the seeds in another order, so that no state can carry over from the previous game.
        again = {seed: transcript(second_env, seed) for seed in reversed(seeds)}
        for seed, digest in zip(seeds, first, strict=True):
            demand(again[seed] == digest, f"seed {seed} plays differently the second time")
        return f"{len(seeds)} seeds"
    finally:
        env.close()
        second_env.close()


def other_processes(task: Task, knobs: dict[str, Any], seeds: list[int]) -> str:
    """Checks that a new process under other hash seeds plays each seed alike."""
    env = registry.build(task, **knobs)
    try:
        here = [transcript(env, seed) for seed in seeds]
    finally:
        env.close()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.run(
            [sys.executable, "-m", "envsuite.checks"],
            input=pickle.dumps((task, knobs, seeds)),
            capture_output=True,
            env=environment,
            timeout=300,
        )
        demand(process.returncode == 0, f"the second process failed: {process.stderr.decode()[-300:]}")
        there = json.loads(process.stdout.splitlines()[-1])
        for seed, mine, theirs in zip(seeds, here, there, strict=True):
            demand(mine == theirs, f"seed {seed} plays differently under PYTHONHASHSEED={hash_seed}")
    return f"{len(seeds)} seeds x 2 hash seeds"
