"""The native engine of TextWorld answers as the interpreter does, and hands games over to it."""

import pickle
import random

import pytest

from benchmarks.textworld_native import play
from envsuite import registry

pytest.importorskip("textworld")

SEED = 50023  # its "keycard" and "type X keycard" lie side by side


@pytest.fixture(scope="module")
def pair():
    """Yields the same task in the native engine and in the interpreter."""
    both = [registry.build("TextWorld-w4-o6-q8-v0", "dense", engine=engine) for engine in ("auto", "interpreter")]
    yield both
    for env in both:
        env.close()


def reset_both(pair):
    opening, expected = (env.reset(seed=SEED) for env in pair)
    assert opening == expected and pair[0].native is not None


def step_both(pair, command):
    native, interpreter = (env.step(command) for env in pair)
    assert native == interpreter, command
    assert pair[0].frame == pair[1].frame
    return native


SAMPLES = {
    "observations raw": ("custom", {"world_size": 2, "nb_objects": 12, "quest_length": 4}, 60068),
    "a game that can be lost": ("treasure_hunter", {"level": 5}, 60005),
    "a key that is named before the food beside it": (
        "custom",
        {"world_size": 2, "nb_objects": 12, "quest_length": 4},
        71202,
    ),
    "several quests": ("simple", {"rewards": "dense"}, 60001),
}


@pytest.mark.filterwarnings("ignore:Game .* is not fully supported")
@pytest.mark.parametrize("name", SAMPLES)
def test_frames_equal_those_of_the_interpreter(name, tmp_path):
    row = play(tmp_path, *SAMPLES[name], episodes=3)
    assert row.native and row.steps >= 10 and row.wins > 0
    assert (row.losses > 0) == (name == "a game that can be lost")
    assert row.differences == 0


def test_the_expert_wins_alike_without_compiling(pair):
    reset_both(pair)
    terminated = False
    while not terminated:
        command = pair[1].expert()
        assert pair[0].expert() == command and pair[0].remaining() == pair[1].remaining()
        _, _, terminated, truncated, _ = step_both(pair, command)
        assert not truncated
    assert pair[0].success and pair[0].native is not None


def test_other_commands_are_answered_by_the_interpreter(pair):
    reset_both(pair)
    rng = random.Random(SEED)
    for _ in range(8):
        step_both(pair, rng.choice(pair[1].frame.commands))
    assert pair[0].native is not None
    step_both(pair, "jump")  # not listed: the interpreter repeats what was played
    assert pair[0].native is None
    for _ in range(3):
        step_both(pair, rng.choice(pair[1].frame.commands))
    assert pair[0].expert() == pair[1].expert()


def test_names_that_are_part_of_other_names(pair):
    reset_both(pair)
    chest = "type X chest"
    for command in (f"unlock {chest} with type X keycard", f"open {chest}", f"take keycard from {chest}"):
        step_both(pair, command)
    assert "(the keycard)" in step_both(pair, "drop keycard")[0]
    step_both(pair, "take keycard")
    assert pair[0].native is not None
    assert "Which do you mean" in step_both(pair, f"insert keycard into {chest}")[0]  # the interpreter has taken over
    assert pair[0].native is None
    step_both(pair, "insert keycard into it")


def test_snapshots_of_the_native_engine(pair):
    env = pair[0]
    reset_both(pair)
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
    assert env.frame.commands == pair[1].frame.commands and env.frame.room == pair[1].frame.room
