"""Vector environments that draw games ahead of their resets return the same results."""

from __future__ import annotations

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
        prepared += sum(ours.prepare() for _ in range(rng.integers(3)))
        return step(actions)

    ours.step = prepare_and_step
    assert compare(ours, theirs, 40) > 2
    assert prepared > 3


def draws(monkeypatch: pytest.MonkeyPatch, envs: Any) -> list[int]:
    """Returns a list of the seeds that are drawn from now on."""
    env_class, seeds = type(envs.envs[0]), list[int]()
    draw = env_class._draw

    def record(env: TextEnv, seed: int) -> Any:
        seeds.append(seed)
        return draw(env, seed)

    monkeypatch.setattr(env_class, "_draw", record)
    return seeds


def test_a_game_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = registry.make_vec("VirtualHome-easy-v1", 3, max_steps=1)
    assert not envs.prepare()  # before the first reset, nobody knows the seeds
    seeds = draws(monkeypatch, envs)
    envs.reset(seed=[5, 6, 7])
    assert seeds == [5, 6, 7]
    for _ in range(3):
        assert envs.prepare()
    assert not envs.prepare()
    ahead = seeds[3:]
    envs.step(["look around"] * 3)
    envs.step(["look around"] * 3)  # resets all games
    assert [env.episode_seed for env in envs.envs] == ahead and len(seeds) == 6
    assert envs.prepare()


def test_a_reset_with_a_seed_discards_what_was_drawn_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = registry.make_vec("VirtualHome-easy-v1", 2)
    texts, _ = envs.reset(seed=[5, 6])
    while envs.prepare():
        pass
    assert envs.reset(seed=[6, 5])[0] == (texts[1], texts[0])
    seeds = draws(monkeypatch, envs)
    while envs.prepare():
        pass
    assert envs.reset()[0] and [env.episode_seed for env in envs.envs] == seeds


def test_without_automatic_resets_nothing_is_drawn_ahead() -> None:
    envs = registry.make_vec("VirtualHome-easy-v1", 2, autoreset_mode=AutoresetMode.DISABLED)
    envs.reset(seed=0)
    assert not envs.prepare()


def test_an_error_of_drawing_is_raised_by_the_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = registry.make_vec("VirtualHome-easy-v1", 1, max_steps=1)
    envs.reset(seed=0)

    def fail(env: TextEnv, seed: int) -> Any:
        raise UsageError("No home fits.")

    monkeypatch.setattr(type(envs.envs[0]), "_draw", fail)
    assert envs.prepare()
    envs.step(["look around"])
    with pytest.raises(UsageError, match="No home fits"):
        envs.step(["look around"])


def test_a_waiting_process_draws_ahead() -> None:
    envs = registry.make_vec("VirtualHome-easy-v1", 2, processes=2)
    try:
        envs.reset(seed=0)
        deadline = time.monotonic() + 20
        while min(envs.get_attr("_seed_ahead")) < 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        envs.close()
