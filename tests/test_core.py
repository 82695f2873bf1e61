"""Properties that every environment inherits from `TextEnv`."""

import copy
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from envsuite import RewardMode, StopReason
from envsuite.cache import cache_dir
from envsuite.errors import BadKnob, DataError, UsageError
from envsuite.spaces import LazilySeededEnv
from envsuite.types import Seeds
from tests.toys import HiLo


def test_a_text_environment_passes_gymnasiums_own_checker_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(HiLo(), skip_render_check=True)


class _Lazy(LazilySeededEnv):
    """An environment that is seeded and does nothing else."""


class _Plain(gym.Env):
    """The same with Gymnasium's own seeding."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)


def _next_number(env):
    return float(env.np_random.random())


def _set_generator(env):
    env.np_random = np.random.default_rng(3)


@pytest.mark.parametrize(
    "uses",
    [
        [lambda env: env.reset(seed=5), _next_number],
        [lambda env: env.reset(seed=5), lambda env: env.reset(), _next_number],
        [lambda env: env.reset(seed=5), _next_number, lambda env: env.reset(), _next_number],
        [lambda env: env.reset(seed=5), _next_number, lambda env: env.reset(seed=5), _next_number],
        [lambda env: env.reset(seed=5), _set_generator, _next_number, lambda env: env.reset(), _next_number],
        [_set_generator, lambda env: env.reset(seed=6), _next_number],
    ],
)
@pytest.mark.parametrize("duplicate", [lambda env: env, copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_the_random_generator_is_the_one_that_gymnasium_would_have_built(uses, duplicate):
    plain, lazy = _Plain(), _Lazy()
    for use in uses:
        plain, lazy = copy.deepcopy(plain), duplicate(lazy)
        expected, actual = use(plain), use(lazy)
        if use is _next_number:
            assert actual == expected
        assert lazy.np_random_seed == plain.np_random_seed
    assert lazy.np_random.bit_generator.state == plain.np_random.bit_generator.state


@pytest.mark.parametrize("seed", [-1, 1.5, "1", np.int64(3)])
def test_a_seed_that_gymnasium_refuses_is_refused_with_its_words(seed):
    with pytest.raises(gym.error.Error) as expected:
        _Plain().reset(seed=seed)
    with pytest.raises(gym.error.Error) as actual:
        HiLo().reset(seed=seed)
    assert str(actual.value) == str(expected.value)


def test_info_always_holds_the_five_keys_and_reset_names_the_objective():
    env = HiLo()
    _, info = env.reset(seed=1)
    assert {"success", "is_action_valid", "admissible_commands", "progression", "stop_reason"} < set(info)
    assert info["objective"] and info["stop_reason"] is None
    *_, info = env.step("nonsense")
    assert info["is_action_valid"] is False and info["success"] is False


def test_the_step_cap_truncates_and_success_on_the_last_step_wins_over_it():
    env = HiLo(max_steps=2)
    env.reset(seed=1)
    env.step("x")
    _, _, terminated, truncated, info = env.step("x")
    assert (terminated, truncated, info["stop_reason"]) == (False, True, StopReason.MAX_STEPS)
    env.reset(seed=1)
    env.step("x")
    _, reward, terminated, truncated, info = env.step(env.expert())
    assert (reward, terminated, truncated, info["stop_reason"]) == (1.0, True, False, StopReason.SOLVED)


def test_step_after_the_end_is_refused_by_name():
    env = HiLo()
    with pytest.raises(gym.error.ResetNeeded):
        env.step("1")


def test_a_cache_that_cannot_be_made_is_one_line_with_a_cure(monkeypatch):
    monkeypatch.setenv("ENVSUITE_CACHE", "/dev/null/cache")
    with pytest.raises(DataError, match=r"folder /dev/null/cache/games cannot be created .*: set ENVSUITE_CACHE"):
        cache_dir("games")


def test_a_reset_that_raises_leaves_no_episode_to_step():
    env = HiLo()
    env.reset(seed=1)
    env._reset = lambda seed: 1 // 0
    with pytest.raises(ZeroDivisionError):
        env.reset(seed=2)
    with pytest.raises(gym.error.ResetNeeded):
        env.step("1")


def test_shaped_return_is_the_sparse_return_less_the_start_potential_whatever_is_played():
    for commands in (["expert"], ["x", "1", "expert"], ["x", "x", "x", "expert"]):
        env = HiLo(reward_mode=RewardMode.SHAPED, shaping_gamma=0.9)
        env.reset(seed=5)
        discounted, sparse, weight = 0.0, 0.0, 1.0
        for command in commands:
            _, reward, *_, info = env.step(env.expert() if command == "expert" else command)
            discounted += weight * reward
            sparse += weight * info["success"]
            weight *= 0.9
        assert discounted == pytest.approx(sparse + 1.0)  # phi(start) = -1, phi(end) = 0


@pytest.mark.parametrize(
    ("knobs", "word"),
    [({"size": 1}, "2..1024"), ({"size": "x"}, "size"), ({"siz": 3}, "Did you mean 'size'"), ({"size": 2.5}, "size")],
)
def test_a_bad_knob_names_itself_and_its_range(knobs, word):
    with pytest.raises(BadKnob, match=word):
        HiLo(**knobs)


def test_an_unknown_reward_mode_lists_the_known_ones():
    with pytest.raises(UsageError, match="sparse, dense, shaped"):
        HiLo(reward_mode="rich")


def test_seeds_with_some_left_out_are_a_sequence():
    seeds = Seeds(10, 20, (10, 13, 14, 19))
    assert list(seeds) == [11, 12, 15, 16, 17, 18] and len(seeds) == 6
    assert [seeds[number] for number in range(-6, 6)] == [*seeds, *seeds]
    assert seeds[1:3] == (12, 15) and seeds[::2] == (11, 15, 17)
    assert 13 not in seeds and 15 in seeds and 20 not in seeds
    assert list(Seeds(3, 5)) == [3, 4]
    with pytest.raises(IndexError):
        seeds[6]
