"""Snapshots of BabyAI episodes: a restored game continues exactly as before, also in another environment."""

import pickle

import numpy as np
import pytest

pytest.importorskip("minigrid", reason="the babyai extra is not installed")

from envsuite import registry
from envsuite.envs.babyai.env import COMMANDS
from envsuite.errors import UsageError
from tests import toys  # noqa: F401  registers HiLo

LEVELS = ("GoToLocal", "BossLevel", "KeyInBox", "PutNextS5N2Carrying", "OpenDoorsOrderN4Debug", "UnlockToUnlock")


def wander(env, count, seed):
    """Plays mostly useful random commands; returns everything that the environment answers."""
    rng = np.random.default_rng(seed)
    answers = []
    for _ in range(count):
        command = str(rng.choice([*env.admissible(), *COMMANDS[2:]]))
        text, reward, terminated, truncated, info = env.step(command)
        answers.append((command, text, reward, terminated, truncated, info["progression"], info["unsolvable"]))
        answers.append((info["admissible_commands"], env.engine.step_count, env._expert.model.state(env.engine)))
        if terminated or truncated:
            break
    return answers


@pytest.mark.parametrize("name", LEVELS)
def test_a_restored_game_answers_as_before(name):
    env, second = (registry.build(f"BabyAI-level-{name}-v0") for _ in range(2))
    for seed in range(3):
        env.reset(seed=seed)
        wander(env, 40, seed)
        if env._over:
            continue
        snapshot = env.snapshot()
        assert pickle.loads(pickle.dumps(snapshot)) == snapshot
        expected = wander(env, 60, seed + 100)
        for _ in range(2):
            env.restore(snapshot)
            assert env.snapshot() == snapshot
            assert wander(env, 60, seed + 100) == expected
        second.restore(snapshot)
        assert wander(second, 60, seed + 100) == expected
        assert second.objective == env.objective and second.labels() == env.labels()


def test_the_expert_wins_from_a_restored_game_and_from_a_restored_start():
    env = registry.build("BabyAI-medium-v0")
    env.reset(seed=5)
    start = env.snapshot()
    for _ in range(6):
        env.step(env.expert())
    middle = env.snapshot()
    for snapshot in (middle, start):
        env.restore(snapshot)
        while not env._over:
            env.step(env.expert())
        assert env.success
    assert not env._expert.bot_failure


def test_a_restored_box_that_was_toggled_is_there_again():
    env = registry.build("BabyAI-level-KeyInBox-v0")
    env.reset(seed=0)
    while env._ahead() is None or env._ahead().type != "box":
        env.step(env.expert())
    before = env.snapshot()
    text, *_ = env.step("toggle")
    assert "box" not in text
    env.restore(before)
    assert env.step("toggle")[0] == text


def test_a_snapshot_of_other_settings_or_of_another_family_is_refused():
    env = registry.build("BabyAI-goto-v0")
    with pytest.raises(UsageError, match="call reset"):
        env.snapshot()
    env.reset(seed=0)
    snapshot = env.snapshot()
    with pytest.raises(UsageError, match=r"other settings \(max_steps\)"):
        registry.build("BabyAI-goto-v0", max_steps=9).restore(snapshot)
    with pytest.raises(UsageError, match="not of HiLo"):
        registry.build("HiLo-v0").restore(snapshot)
