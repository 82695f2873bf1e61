"""Vector environments that look steps up in tables give the same results as Gymnasium's SyncVectorEnv."""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from envsuite.envs.overcooked.vector import OvercookedTable
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envsuite import registry
from envsuite.envs.virtualhome.vector import VirtualHomeTable
from envsuite.vector.base import TextVectorEnv
from envsuite.vector.tables import TableVectorEnv
from tests.toys import Faulty

TABLES = [
    ("Overcooked-tomato_salad-v0", {}),
    ("Overcooked-tomato_lettuce_salad-v0", {"texts": "v1", "horizon": 60}),
    ("Overcooked-tomato_salad-c-v0", {"wording": "honest"}),
    ("VirtualHome-food_preparation-v0", {}),
    ("VirtualHome-entertainment-v0", {}),
    ("VirtualHome-food_preparation-fixed-v0", {"sight": "home"}),
    ("VirtualHome-entertainment-fixed-v0", {}),
]
DRAWN = [("Overcooked-easy-v0", {}), ("VirtualHome-easy-v0", {}), ("VirtualHome-easy-v1", {})]
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


@pytest.mark.parametrize(("task", "knobs"), TABLES, ids=[task for task, _ in TABLES])
@pytest.mark.parametrize("mode", ["sparse", "dense", "shaped"])
def test_a_table_returns_what_the_engine_returns(task: str, knobs: dict[str, Any], mode: str) -> None:
    autoreset = {"sparse": AutoresetMode.SAME_STEP, "dense": AutoresetMode.NEXT_STEP, "shaped": AutoresetMode.DISABLED}
    ours, theirs = pair(task, {"max_steps": 25, **knobs}, mode, 5, autoreset[mode])
    assert isinstance(ours, TableVectorEnv)
    assert compare(ours, theirs, 150) > 20
    hits = 150 * 5 - ours._size
    assert hits > 100  # most results come from the table


@pytest.mark.parametrize("task", ["Overcooked-tomato_salad-v0", "VirtualHome-food_preparation-v0"])
def test_every_edge_of_the_graph_is_looked_up_as_it_was_simulated(task: str) -> None:
    """Plays every offered command twice from every state that such commands reach."""
    venv = registry.make_vec(task, 1, "dense").unwrapped
    env = registry.build(task, "dense")
    env.reset(seed=0)
    venv.reset(seed=0)
    snapshots = [env.snapshot()]
    seen = {venv._state(env)}
    edges = 0
    for snapshot in snapshots:  # the list grows during the loop
        env.restore(snapshot)
        for command in env.admissible():
            env.restore(snapshot)
            text, reward, terminated, truncated, info = env.step(command)
            for _ in range(2):
                venv.envs[0].restore(snapshot)
                texts, rewards, ends, cuts, infos = venv.step([command])
                assert (texts[0], rewards[0], ends[0], cuts[0]) == (text, reward, terminated, truncated)
                assert all(same(infos[key].tolist()[0], value) for key, value in info.items() if key != "metrics")
                if terminated or truncated:
                    venv.reset(seed=0)  # or the next step would
                    assert {key: infos["metrics"][key][0] for key in info["metrics"]} == info["metrics"]
            edges += 1
            if not (terminated or truncated) and venv._state(env) not in seen:
                seen.add(venv._state(env))
                snapshots.append(env.snapshot())
    assert edges > 100


@pytest.mark.parametrize(("task", "knobs"), DRAWN, ids=[task for task, _ in DRAWN])
@pytest.mark.parametrize("autoreset", list(AutoresetMode))
def test_drawn_games_return_what_sync_vector_env_returns(
    task: str, knobs: dict[str, Any], autoreset: AutoresetMode
) -> None:
    ours, theirs = pair(task, {"max_steps": 9, **knobs}, "dense", 3, autoreset)
    assert isinstance(ours, TextVectorEnv)
    assert compare(ours, theirs, 25, expert=0.7) > 5


def test_sub_environments_are_in_the_states_of_their_games() -> None:
    ours, theirs = pair("Overcooked-tomato_lettuce_salad-v0", {}, "dense", 3, AutoresetMode.NEXT_STEP)
    rng = np.random.default_rng(1)
    ours.reset(seed=0)
    _, infos = theirs.reset(seed=0)
    for turn in range(120):
        commands = commands_for(theirs, infos, rng, 0.2)
        ours.step(commands)
        *_, infos = theirs.step(commands)
        if turn % 7 == 0:
            for env, twin in zip(ours.envs, theirs.envs, strict=True):
                twin = twin.unwrapped
                assert env.sim.save() == twin.sim.save()
                assert env.metrics() == twin.metrics()
                assert (env.turn, env.time, env._over, env.episode_seed) == (
                    twin.turn,
                    twin.time,
                    twin._over,
                    twin.episode_seed,
                )
                assert (env.success, env.progression, env.expert()) == (twin.success, twin.progression, twin.expert())


def test_kitchens_with_chance_or_several_cooks_are_simulated() -> None:
    for knobs in ({"slip": 0.1}, {"cooks": 2}, {"recipe": "random", "variant": "v3"}, {"layout": "random"}):
        assert type(registry.make_vec("Overcooked-tomato_salad-v0", 2, **knobs).unwrapped) is TextVectorEnv
    assert isinstance(registry.make_vec("Overcooked-tomato_salad-v0", 2).unwrapped, OvercookedTable)
    assert isinstance(registry.make_vec("VirtualHome-entertainment-v0", 2).unwrapped, VirtualHomeTable)


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
