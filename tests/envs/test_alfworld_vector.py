"""The native vector environment gives the same results as Gymnasium's SyncVectorEnv."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envsuite.envs.alfworld.batch_state import MAX_LOG_TURNS
from envsuite.envs.alfworld.env import AlfworldEnv
from envsuite.envs.alfworld.vector import AlfworldVectorEnv

pytest.importorskip("alfworld", reason="the package alfworld is not installed")


def same(a: Any, b: Any) -> bool:
    """Compares nested dictionaries of arrays, including array types."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray):
        return (
            a.dtype == b.dtype
            and a.shape == b.shape
            and all(same(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=False))
        )
    return bool(a == b)


@pytest.mark.parametrize("reward_mode", ["sparse", "dense", "shaped"])
@pytest.mark.parametrize("autoreset", list(AutoresetMode))
def test_results_equal_those_of_sync_vector_env(reward_mode: str, autoreset: AutoresetMode) -> None:
    settings = {"reward_mode": reward_mode, "max_steps": 12, "receptacles": 6, "objects": 8}
    n = 5
    ours = AlfworldVectorEnv(n, autoreset_mode=autoreset, **settings)
    theirs = SyncVectorEnv([partial(AlfworldEnv, **settings)] * n, autoreset_mode=autoreset)
    rng = np.random.default_rng(0)
    (texts, infos), (texts_, infos_) = ours.reset(seed=3), theirs.reset(seed=3)
    assert texts == texts_
    assert same(infos, infos_)
    ended = 0
    for _ in range(40):
        commands = []
        for i in range(n):
            env, dice = ours.envs[i], rng.random()
            plan = env.expert() if dice < 0.6 else None
            commands.append(plan or ("dance" if dice > 0.95 else env.random_command(rng)))
        got, expected = ours.step(commands), theirs.step(commands)
        assert got[0] == expected[0]
        assert all(same(a, b) for a, b in zip(got[1:4], expected[1:4], strict=False))
        assert got[4].keys() == expected[4].keys()
        assert same(got[4], expected[4])
        over = got[2] | got[3]
        ended += int(over.sum())
        if autoreset is AutoresetMode.DISABLED and over.any():
            with pytest.raises(gym.error.ResetNeeded):
                ours.step(commands)
            again = [venv.reset(seed=7, options={"reset_mask": over}) for venv in (ours, theirs)]
            assert again[0][0] == again[1][0]
            assert same(again[0][1], again[1][1])
    assert ended > 10


def test_gymnasium_can_make_the_vector_environment() -> None:
    envs = gym.make_vec("envsuite/ALFWorld-generated-easy-v0", num_envs=3, max_steps=7)
    assert isinstance(envs, AlfworldVectorEnv)
    assert envs.num_envs == 3
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    texts, infos = envs.reset(seed=[4, 5, 6])
    assert len(texts) == 3
    assert texts == tuple(gym.make("envsuite/ALFWorld-generated-easy-v0").reset(seed=seed)[0] for seed in (4, 5, 6))
    assert infos["objective"].shape == (3,)
    for _ in range(7):
        _, _, _, truncated, infos = envs.step(["look"] * 3)
    assert truncated.all()
    assert infos["stop_reason"].tolist() == ["max_steps"] * 3


def test_wrong_numbers_and_types_of_commands_are_rejected() -> None:
    envs = AlfworldVectorEnv(2, receptacles=6, objects=8)
    envs.reset(seed=0)
    with pytest.raises(gym.error.InvalidAction, match="2 commands, not 1"):
        envs.step(["look"])
    with pytest.raises(gym.error.InvalidAction, match="string, not int"):
        envs.step(["look", 3])  # type: ignore[list-item]


def test_a_game_with_command_none_skips_the_turn() -> None:
    settings = {"max_steps": 9, "receptacles": 6, "objects": 8}
    ours = AlfworldVectorEnv(3, autoreset_mode=AutoresetMode.DISABLED, **settings)
    alone = [AlfworldEnv(**settings) for _ in range(3)]
    ours.reset(seed=0)
    for seed, env in enumerate(alone):
        env.reset(seed=seed)
    rng = np.random.default_rng(1)
    over = [False] * 3
    while not all(over):
        commands = [None if over[i] or rng.random() < 0.4 else alone[i].random_command(rng) for i in range(3)]
        texts, rewards, terminated, truncated, infos = ours.step(commands)
        for i, command in enumerate(commands):
            assert infos["_success"][i] == (command is not None)
            if command is not None:
                expected = alone[i].step(command)
                assert (texts[i], rewards[i], terminated[i], truncated[i]) == expected[:4]
                assert all(infos[key][i] == value for key, value in expected[4].items() if key != "metrics")
                over[i] = expected[2] or expected[3]
            else:
                assert not rewards[i] and not terminated[i] and not truncated[i]
    with pytest.raises(gym.error.ResetNeeded):
        ours.step([None, None, "look"])


def test_sub_environments_can_be_used_between_steps() -> None:
    settings = {"receptacles": 8, "objects": 8}
    ours = AlfworldVectorEnv(2, **settings)
    alone = [AlfworldEnv(**settings) for _ in range(2)]
    ours.reset(seed=4)
    for i, env in enumerate(alone):
        env.reset(seed=4 + i)
    hand, twin = ours.envs[0], alone[0]  # the log is complete from here on
    rng = np.random.default_rng(2)
    for turn in range(8):
        commands = [env.random_command(rng) for env in alone]
        ours.step(commands)
        for env, command in zip(alone, commands, strict=False):
            env.step(command)
        if turn == 3:
            assert hand.step("look") == twin.step("look")
        if turn == 5:
            saved = twin.get_state()
            assert hand.get_state() == saved
            hand.set_state(saved)
            twin.set_state(saved)
        for env, single in zip(ours.envs, alone, strict=False):
            assert env.turn == single.turn and env.progression == single.progression
            assert env.expert("partial") == single.expert("partial")
            assert env.snapshot() == single.snapshot()


def test_the_command_log_is_trimmed_when_every_game_has_restarted() -> None:
    settings = {"receptacles": 4, "objects": 3, "max_steps": 400, "task_types": ("pick_and_place_simple",)}
    alone, several = AlfworldEnv(**settings), AlfworldVectorEnv(2, **settings)
    for seed in range(3):
        alone.reset(seed=seed)
        for _ in range(30):
            alone.step("look")
    assert len(alone._batch.command_log) == 30
    several.reset(seed=0)
    for _ in range(2_100):
        several.step(["look", "inventory"])
        assert len(several._batch.command_log) <= MAX_LOG_TURNS + 401
    commands = several.envs[1]._batch.commands(1)
    assert len(commands) == several.envs[1].turn == 2_100 % 401 and {*commands} == {"inventory"}
