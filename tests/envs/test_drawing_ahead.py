"""Vector environments that draw games ahead of their resets return the same results."""

from __future__ import annotations

import copy
import time
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from envsuite import registry
from envsuite.core import TextEnv
from envsuite.errors import UsageError
from tests.envs.test_tables import compare, pair

DRAWN = [
    ("Overcooked-easy-v0", {"horizon": 30}),
    ("Overcooked-easy-v2", {"max_steps": 15}),
    ("VirtualHome-easy-v0", {"max_steps": 9}),
    ("VirtualHome-easy-v1", {"max_steps": 9}),
]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize(("task", "knobs"), DRAWN)
def test_results_do_not_depend_on_what_was_drawn_ahead(task: str, knobs: dict[str, Any], mode: AutoresetMode) -> None:
    ours, theirs = pair(task, knobs, "dense", 3, mode)
    rng, step, prepared = np.random.default_rng(0), ours.step, 0

    def prepare_and_step(actions: list[str]) -> Any:
        nonlocal prepared
        prepared += sum(ours.draw_ahead() for _ in range(rng.integers(3)))
        return step(actions)

    ours.step = prepare_and_step
    assert compare(ours, theirs, 40) > 2
    assert prepared > 3


def draws(monkeypatch: pytest.MonkeyPatch, envs: Any) -> list[int]:
    """Returns a list of the seeds that are drawn from now on."""
    env_class, seeds = type(envs.envs[0]), list[int]()
    draw = env_class._draw_game

    def record(env: TextEnv, seed: int) -> Any:
        seeds.append(seed)
        return draw(env, seed)

    monkeypatch.setattr(env_class, "_draw_game", record)
    return seeds


def test_a_game_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = registry.make_vec("VirtualHome-easy-v1", 3, max_steps=1)
    assert not envs.draw_ahead()  # before the first reset, nobody knows the seeds
    seeds = draws(monkeypatch, envs)
    envs.reset(seed=[5, 6, 7])
    assert seeds == [5, 6, 7]
    for _ in range(3):
        assert envs.draw_ahead()
    assert not envs.draw_ahead()
    ahead = seeds[3:]
    envs.step(["look around"] * 3)
    envs.step(["look around"] * 3)  # resets all games
    assert [env.episode_seed for env in envs.envs] == ahead and len(seeds) == 6
    assert envs.draw_ahead()


def test_a_reset_with_a_seed_discards_what_was_drawn_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = registry.make_vec("VirtualHome-easy-v1", 2)
    texts, _ = envs.reset(seed=[5, 6])
    while envs.draw_ahead():
        pass
    assert envs.reset(seed=[6, 5])[0] == (texts[1], texts[0])
    seeds = draws(monkeypatch, envs)
    while envs.draw_ahead():
        pass
    assert envs.reset()[0] and [env.episode_seed for env in envs.envs] == seeds


def test_a_reset_after_a_change_of_a_knob_discards_what_was_drawn_ahead() -> None:
    ours, theirs = (registry.build("Overcooked-hard-v0") for _ in range(2))
    for env in (ours, theirs):
        env.reset(seed=3)
    ours.draw_ahead()
    for env in (ours, theirs):
        env.settings.recipe_size = 1
    assert ours.reset() == theirs.reset()
    assert ours.np_random.bit_generator.state == theirs.np_random.bit_generator.state


def test_a_copy_has_what_was_drawn_ahead() -> None:
    env = registry.build("VirtualHome-easy-v1")
    env.reset(seed=3)
    env.draw_ahead()
    copied = copy.deepcopy(env)
    assert copied._drawn_ahead is not None and copied.reset() == env.reset()


@pytest.mark.parametrize("task", ["VirtualHome-food_preparation-v0", "VirtualHome-easy-v0", "Overcooked-easy-v0"])
def test_a_long_run_without_drawing_ahead_leaves_at_most_one_draw_per_game(task: str) -> None:
    envs = registry.make_vec(task, 2, max_steps=1)
    envs.reset(seed=0)
    for _ in range(10):
        envs.step(["wait"] * 2)
    assert sum(envs.draw_ahead() for _ in range(10)) <= 2


def test_a_published_home_can_be_drawn_ahead() -> None:
    env = registry.build("VirtualHome-food_preparation-v0")
    first = env.reset(seed=0)
    env.draw_ahead()
    assert env.reset() == first


def test_without_automatic_resets_nothing_is_drawn_ahead() -> None:
    envs = registry.make_vec("VirtualHome-easy-v1", 2, autoreset_mode=AutoresetMode.DISABLED)
    envs.reset(seed=0)
    assert not envs.draw_ahead()


def test_an_error_of_drawing_is_raised_by_the_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = registry.make_vec("VirtualHome-easy-v1", 1, max_steps=1)
    envs.reset(seed=0)

    def fail(env: TextEnv, seed: int) -> Any:
        raise UsageError("No home fits.")

    monkeypatch.setattr(type(envs.envs[0]), "_draw_game", fail)
    assert envs.draw_ahead()
    envs.step(["look around"])
    with pytest.raises(UsageError, match="No home fits"):
        envs.step(["look around"])


def test_a_waiting_process_draws_ahead() -> None:
    envs = registry.make_vec("Overcooked-easy-v2", 2, processes=2)
    try:
        envs.reset(seed=0)
        deadline = time.monotonic() + 20
        while None in envs.get_attr("_drawn_ahead"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        envs.close()
