"""A curriculum follows success, on a ladder of settings and on the levels of every family."""

from itertools import islice
from random import Random

import pytest

from envsuite import registry
from envsuite.envs.alfworld.ladder import LADDER
from envsuite.errors import UnknownTask, UsageError
from harness.stats.curriculum import LEVELS, Curriculum, task_ladder

LADDERS = sorted(name.removesuffix("-easy-v0").lower() for name, task in registry.TASKS.items() if task.level == "easy")


def play(curriculum, games, wins):
    """Returns the levels of `games` lessons for a player who wins if `wins(level)`."""
    levels = []
    for lesson in islice(curriculum, games):
        levels.append(lesson.level)
        curriculum.report(lesson, wins(lesson.level))
    return levels


def test_a_curriculum_keeps_success_between_its_bounds():
    dice = Random(0)
    curriculum = Curriculum(LADDER, low=0.4, high=0.6, window=20)
    won = []

    def wins(level):
        won.append(dice.random() < 1.0 - 0.17 * level)
        return won[-1]

    levels = play(curriculum, 2000, wins)
    assert len({*levels[500:]}) <= 4 and 2 <= sum(levels[500:]) / 1500 <= 4
    assert 0.4 <= sum(won[500:]) / 1500 <= 0.6


def test_a_curriculum_stays_on_its_ladder_and_ignores_lessons_of_another_level():
    curriculum = Curriculum(LADDER, window=5)
    old = next(curriculum)
    assert play(curriculum, 100, lambda level: True)[-1] == len(LADDER) - 1
    for _ in range(50):
        curriculum.report(old, False)
    assert curriculum.level == len(LADDER) - 1 and curriculum.success == 1.0
    assert play(curriculum, 100, lambda level: False)[-1] == 0
    with pytest.raises(UsageError, match="low < high"):
        Curriculum(LADDER, low=0.7, high=0.4)
    for ladder, window in ((LADDER, 0), (LADDER, -1), ((), 5)):
        with pytest.raises(UsageError, match="needs levels and window >= 1"):
            Curriculum(ladder, window=window)


def test_every_family_with_levels_has_a_ladder():
    climbed = {task_id.partition("-")[0] for name in LADDERS for task_id in task_ladder(name)}
    assert climbed == {task_id.partition("-")[0] for task_id, task in registry.TASKS.items() if task.level in LEVELS}
    with pytest.raises(UnknownTask, match="alfworld-easy"):
        task_ladder("alfworld")


@pytest.mark.parametrize("name", LADDERS)
def test_a_player_climbs_the_levels_of_every_family_and_comes_down_again(name):
    """`tests/test_every_task.py` opens the games of these tasks, `tests/baselines` trains on some of the ladders."""
    ladder = task_ladder(name)
    levels = [registry.TASKS[task_id] for task_id in ladder]
    assert [task.level for task in levels] == list(LEVELS)
    curriculum = Curriculum(ladder, window=1)
    lessons = []
    for won in (True, True, True, False, False):
        lessons.append(next(curriculum))
        curriculum.report(lessons[-1], won)
    trained = [task.split_ids.get("train", task.id) for task in levels]
    assert [lesson.task for lesson in lessons] == [*trained, trained[2], trained[1]]
    for lesson in lessons:
        splits = registry.TASKS[lesson.task].splits
        assert [split for split, seeds in splits.items() if lesson.seed in seeds] == ["train"]
    assert len({lesson.seed for lesson in lessons}) == 5


def test_a_curriculum_continues_with_the_lesson_after_the_last():
    whole = list(islice(Curriculum(["textworld-hard"]), 5))
    assert list(islice(Curriculum(["textworld-hard"], seed=3), 2)) == whole[3:]
    assert [lesson.seed for lesson in whole] == [*range(whole[0].seed, whole[0].seed + 5)]


def test_a_rung_without_training_games_is_refused():
    with pytest.raises(UsageError, match="VirtualHome-easy-unseen_home-v0 has no training games, only valid, test"):
        Curriculum(["virtualhome-easy", "VirtualHome-easy-unseen_home-v0"])
