"""Snapshots of TextWorld games: the interpreter and the tracked logic continue as if nothing had happened."""

import pickle
import shutil

import pytest

from envsuite import registry

pytest.importorskip("textworld")


def build(mode="dense", **knobs):
    return registry.build("TextWorld-w2-o3-q4-v0", mode, **{"max_steps": 60, **knobs})


def play(env, commands):
    """Plays commands and returns everything that the environment answers."""
    answers = []
    for command in commands:
        text, reward, terminated, truncated, info = env.step(command)
        answers.append((text, reward, terminated, truncated, info["progression"], info["admissible_commands"]))
        answers.append((info["moves"], info["score"], info["stop_reason"]))
        if not (terminated or truncated):
            answers.append((env.expert(), env.expert("policy"), env.remaining()))
    return answers


def plan_of(env):
    """Wins the game with the expert and returns its commands."""
    commands = []
    while env.remaining():
        commands.append(env.expert())
        env.step(commands[-1])
    return commands


@pytest.fixture(scope="module")
def won():
    """Yields an environment whose game has been won once, with the commands that won it."""
    env = build("shaped")
    env.reset(seed=3)
    yield env, plan_of(env)
    env.close()


def test_a_restored_game_answers_as_before(won):
    env, plan = won
    env.reset(seed=3)
    before = play(env, ["look", plan[0], "inventory"])
    assert before
    snapshot = env.snapshot()
    detours = ["drop everything", "go north", "open nothing", *plan[1:]]
    expected = play(env, plan[1:])
    assert env.success
    for _ in range(2):  # after a win, and again from the same snapshot after a detour
        env.restore(snapshot)
        assert play(env, plan[1:]) == expected
        env.restore(snapshot)
        play(env, detours[:3])
    env.restore(snapshot)
    assert env.turn == 3 and not env.success


def test_a_snapshot_moves_to_another_environment_and_process(won):
    env, plan = won
    env.reset(seed=3)
    env.step(plan[0])
    snapshot = pickle.loads(pickle.dumps(env.snapshot()))
    expected = play(env, plan[1:])
    second = build("shaped", **{**vars(env.settings)})
    second.restore(snapshot)  # which starts a worker of its own
    assert second.interpreter.pid != env.interpreter.pid
    assert play(second, plan[1:]) == expected and second.labels() == env.labels() and second.objective == env.objective
    second.interpreter.close()
    second.restore(snapshot)  # the worker is gone
    assert play(second, plan[1:]) == expected
    second.close()


def test_branches_of_one_snapshot_do_not_affect_each_other(won):
    env, plan = won
    env.reset(seed=3)
    start = env.snapshot()
    env.step(plan[0])
    after = env.snapshot()
    env.restore(start)
    assert env.remaining() == len(plan)
    env.restore(after)
    assert env.remaining() == len(plan) - 1


def test_a_game_without_its_json_file_is_restored_too(won, tmp_path):
    env, plan = won
    env.reset(seed=3)
    story = tmp_path / "alone.z8"
    shutil.copy(env.path, story)
    alone = build(game=str(story))
    alone.reset(seed=0)
    alone.step(plan[0])
    snapshot = alone.snapshot()
    texts = [alone.step(command)[0] for command in plan[1:]]
    assert alone.success
    alone.restore(snapshot)
    assert [alone.step(command)[0] for command in plan[1:]] == texts and alone.success
    alone.close()


def test_turns_left_are_told_only_on_request():
    plain, telling = build(max_steps=3), build(max_steps=3, turns_left=True)
    text, info = plain.reset(seed=3)
    telling_text, telling_info = telling.reset(seed=3)
    assert telling_text == f"{text}\nTurns left: 3." and telling_info == info
    for left in (2, 1, 0):
        text, telling_text = plain.step("look")[0], telling.step("look")[0]
        assert telling_text == (f"{text}\nTurns left: {left}." if left else text)
    plain.close()
    telling.close()
