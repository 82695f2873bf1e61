"""`TextVectorEnv` gives the same results as Gymnasium's SyncVectorEnv."""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envsuite import registry
from envsuite.vector import TextVectorEnv
from tests.toys import Faulty

TASKS = (
    "Overcooked-tomato_salad-v0",
    "Overcooked-easy-v0",
    "VirtualHome-food_preparation-v0",
    "VirtualHome-entertainment-v0",
    "VirtualHome-easy-v0",
    "ALFWorld-generated-easy-v0",
)
UNKNOWN = ("dance", "go to", "", "x" * 300)


def same(a: Any, b: Any) -> bool:
    """Compares nested dictionaries of arrays, including the types of arrays and of their elements."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and same(a.tolist(), b.tolist())
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return bool(type(a) is type(b) and a == b)


def pair(task: str, knobs: dict[str, Any], mode: str, n: int, autoreset: AutoresetMode) -> tuple[Any, SyncVectorEnv]:
    ours = registry.make_vec(task, n, mode, autoreset_mode=autoreset, **knobs)
    theirs = SyncVectorEnv([partial(registry.build, task, mode, **knobs)] * n, autoreset_mode=autoreset)
    return ours.unwrapped, theirs


def commands_for(venv: SyncVectorEnv, infos: dict[str, Any], rng: np.random.Generator, expert: float) -> list[str]:
    commands = []
    for i, env in enumerate(venv.envs):
        plan = env.unwrapped.expert() if rng.random() < expert else None
        if plan is None:
            offers = infos["admissible_commands"][i]
            plan = UNKNOWN[int(rng.integers(4))] if rng.random() < 0.08 else offers[int(rng.integers(len(offers)))]
        commands.append(plan)
    return commands


def compare(ours: Any, theirs: SyncVectorEnv, turns: int, expert: float = 0.3) -> int:
    """Plays both with the same commands and compares everything. Returns the number of ended episodes."""
    rng = np.random.default_rng(0)
    (texts, infos), (texts_, infos_) = ours.reset(seed=3), theirs.reset(seed=3)
    assert texts == texts_
    assert same(infos, infos_)
    ended = 0
    for _ in range(turns):
        commands = commands_for(theirs, infos_, rng, expert)
        got, expected = ours.step(commands), theirs.step(commands)
        assert got[0] == expected[0]
        assert same(got[1:4], expected[1:4])
        assert same(got[4], expected[4])
        infos_ = expected[4]
        over = got[2] | got[3]
        ended += int(over.sum())
        if ours.autoreset_mode is AutoresetMode.DISABLED and over.any():
            with pytest.raises(gym.error.ResetNeeded):
                ours.step(commands)
            again = [venv.reset(seed=7, options={"reset_mask": over}) for venv in (ours, theirs)]
            assert again[0][0] == again[1][0]
            assert same(again[0][1], again[1][1])
            infos_ = {"admissible_commands": [env.unwrapped.admissible() for env in theirs.envs]}
    return ended


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("autoreset", list(AutoresetMode))
def test_results_are_those_of_sync_vector_env(task: str, autoreset: AutoresetMode) -> None:
    ours, theirs = pair(task, {"max_steps": 9}, "dense", 3, autoreset)
    assert isinstance(ours, TextVectorEnv)
    assert compare(ours, theirs, 25, expert=0.7) > 5


def test_wrong_numbers_and_types_of_commands_are_rejected() -> None:
    envs = registry.make_vec("VirtualHome-food_preparation-v0", 2)
    envs.reset(seed=0)
    with pytest.raises(gym.error.InvalidAction, match="2 commands, not 1"):
        envs.step(["stand up"])
    with pytest.raises(gym.error.InvalidAction, match="string, not int"):
        envs.step(["stand up", 3])


def test_a_step_leaves_the_garbage_collector_as_it_was(monkeypatch):
    games = TextVectorEnv(Faulty, 2)
    games.reset(seed=[1, 2])
    games.step(["1", "1"])
    assert gc.isenabled()
    games.reset(seed=[1, 3])
    with pytest.raises(RuntimeError, match="the engine broke"):
        games.step(["1", "1"])
    assert gc.isenabled()

    def seen_off() -> bool:  # within another thread's step, which ends just afterwards
        enable()
        return False

    enable, is_enabled = gc.enable, gc.isenabled
    games.reset(seed=[1, 2])
    monkeypatch.setattr(gc, "isenabled", seen_off)
    games.step(["1", "1"])
    assert is_enabled()
