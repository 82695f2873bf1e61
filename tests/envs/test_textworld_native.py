"""The native engine of TextWorld answers as the interpreter does, and hands games over to it."""

import pickle
import random

import pytest

from envsuite import registry

pytest.importorskip("textworld")


@pytest.fixture(scope="module", params=["compact", "raw"])
def pair(request):
    """Yields the same task in the native engine and in the interpreter."""
    knobs = {"max_steps": 60, "observations": request.param}
    both = [
        registry.build("TextWorld-medium-v0", "dense", engine=engine, **knobs) for engine in ("auto", "interpreter")
    ]
    yield both
    for env in both:
        env.close()


def step_both(pair, command):
    native, interpreter = (env.step(command) for env in pair)
    assert native == interpreter, command
    return native


@pytest.mark.parametrize("seed", [50001, 50002])
def test_listed_commands_are_answered_alike(pair, seed):
    opening, expected = (env.reset(seed=seed) for env in pair)
    assert opening == expected and pair[0].native is not None
    rng = random.Random(seed)
    for _ in range(59):
        _, _, terminated, _, info = step_both(pair, rng.choice(pair[1].frame.commands))
        assert pair[0].frame == pair[1].frame
        if terminated:
            break
    assert pair[0].native is not None


def test_other_commands_are_answered_by_the_interpreter(pair):
    for env in pair:
        env.reset(seed=50001)
    for command in ("look", "inventory"):
        step_both(pair, command)
    assert pair[0].native is not None
    step_both(pair, "jump")
    assert pair[0].native is None
    step_both(pair, "inventory")
    assert pair[0].expert() == pair[1].expert()


def test_the_expert_wins_alike(pair):
    for env in pair:
        env.reset(seed=50002)
    terminated = False
    while not terminated:
        _, _, terminated, truncated, _ = step_both(pair, pair[1].expert())
        assert not truncated
    assert pair[0].success and pair[0].native is not None


def test_snapshots_of_the_native_engine(pair):
    env, interpreter = pair
    for each in pair:
        each.reset(seed=50001)
    step_both(pair, "inventory")
    snapshot = pickle.loads(pickle.dumps(env.snapshot()))
    command = pair[1].frame.commands[0]
    expected = step_both(pair, command)
    env.step("look")
    env.restore(snapshot)
    assert env.native is not None and env.step(command) == expected
    env.restore(snapshot)
    env.step("jump")  # the interpreter repeats what was played before the snapshot
    assert env.native is None
    env.step(command)
    assert env.frame.commands == interpreter.frame.commands and env.frame.room == interpreter.frame.room
