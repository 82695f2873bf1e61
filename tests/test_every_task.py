"""Tests of every registered task's row, and of one complete task per family."""

import mmap

import gymnasium as gym
import pytest

import envsuite
from envsuite import registry
from envsuite.checks import check, rewards
from envsuite.errors import DataError, MissingExtra, UnknownTask
from envsuite.types import RewardMode
from examples import hilo
from harness.cli import check as command

TASKS = envsuite.tasks("*")
HOARD: list[bytearray] = []


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_every_row_of_the_menu_names_a_class_and_fitting_knobs(task):
    try:
        cls = registry.env_class(task)
    except MissingExtra as missing:
        pytest.skip(str(missing))
    registry.check_knobs(cls, dict(task.kwargs))
    assert f"envsuite/{task.id}" in gym.registry
    for split in task.split_ids.values():
        assert split in registry.TASKS


def test_some_tasks_have_splits():
    """The loop over splits above is not a loop over nothing."""
    assert sum(len(task.split_ids) for task in TASKS) >= 30


def test_a_foreign_environment_is_made_by_gymnasium_and_passes_every_check():
    env = gym.make("envsuite/HiLo-v0", size=8)
    env.reset(seed=1)
    env.close()
    for finding in check(registry.TASKS["HiLo-v0"], seconds=5, seeds=3):
        assert finding.ok, finding


def test_ids_are_found_in_any_case_without_version_and_by_glob():
    assert envsuite.tasks("hilo")[0].id == "HiLo-v0"
    assert envsuite.tasks("HILO-V0")[0].id == "HiLo-v0"
    assert envsuite.tasks("envsuite/HiLo-v0")[0].id == "HiLo-v0"
    assert "HiLo-v0" in {task.id for task in envsuite.tasks("hi*")}
    with pytest.raises(UnknownTask, match="Did you mean 'HiLo-v0'"):
        envsuite.tasks("HiLo-v1")
    with pytest.raises(UnknownTask, match="Did you mean 'ALFWorld-generated-easy-v0'"):
        envsuite.tasks("alfworld-easy")


def test_a_check_finds_what_is_wrong():
    class Cheating(hilo.HiLo):
        def _act(self, command):
            return envsuite.Outcome("won", reward=1.0, done=True, success=True)

        def _reset(self, seed):
            HOARD.append(mmap.mmap(-1, 2**20))  # not from the heap, where earlier tests have left room
            HOARD[-1].write(b"x" * 2**20)
            return super()._reset(seed)

    import tests.test_every_task as here

    here.Cheating = Cheating
    task = envsuite.Task(id="Cheating-v0", entry_point="tests.test_every_task:Cheating")
    failed = {finding.name for finding in check(task, seconds=10, seeds=1) if not finding.ok}
    HOARD.clear()
    assert "no leak over resets" in failed
    assert "idle player loses" in failed and "any string is answered (fuzzing)" in failed


def test_a_task_whose_data_are_not_here_is_named_and_not_failed(monkeypatch, capsys):
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    with pytest.raises(SystemExit) as done:
        command.main(["ALFWorld-valid_seen-v0"])
    assert done.value.code == 1  # nothing was checked
    text = capsys.readouterr().out
    assert "not checked: ALFWORLD_DATA is not set" in text and "FAIL" not in text
    with pytest.raises(SystemExit) as done:
        command.main(["ALFWorld-valid_seen-v0", "HiLo-v0", "--seconds", "1", "--seeds", "1"])
    assert done.value.code == 0
    assert "1 task, 0 failed checks, 1 task not checked" in capsys.readouterr().out


def test_a_game_without_a_known_plan_may_refuse_the_shaped_reward():
    class Unknown(hilo.HiLo):
        def remaining(self):
            raise DataError("No exact plan is known for this game: use sparse or dense.")

    import tests.test_every_task as here

    here.Unknown = Unknown
    task = envsuite.Task(id="Unknown-v0", entry_point="tests.test_every_task:Unknown")
    message = rewards.modes(lambda mode=RewardMode.SPARSE: registry.build(task, mode), [0, 1])
    assert message.endswith("shaped (refused for 2 of 2 games)")
