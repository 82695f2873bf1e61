"""Instances are ordered by how often they were solved."""

import pytest

from envsuite.errors import UsageError
from harness.stats.curriculum import Curriculum, by_difficulty

RESULTS = [("hard", False), ("hard", False), ("easy", True), ("easy", True), ("once", True), ("half", True)]
RESULTS += [("half", False), ("never", False), ("often", True), ("often", True), ("often", True)]


def test_the_levels_go_from_often_to_seldom_and_few_episodes_are_not_extreme():
    levels = by_difficulty(RESULTS, levels=6)
    assert [level["instances"] for level in levels] == [
        ("often",), ("easy",), ("once",), ("half",), ("never",), ("hard",)
    ]  # fmt: skip
    assert [len(level["instances"]) for level in by_difficulty(RESULTS, levels=4)] == [1, 2, 1, 2]


def test_a_curriculum_moves_along_the_levels():
    curriculum = Curriculum(by_difficulty(RESULTS, levels=3), window=2)
    assert next(curriculum).knobs == {"instances": ("often", "easy")}
    for _ in range(2):
        curriculum.report(next(curriculum), True)
    assert next(curriculum).knobs == {"instances": ("once", "half")}


def test_more_levels_than_instances_are_refused():
    with pytest.raises(UsageError, match="7 levels need at least as many instances: the results have 6"):
        by_difficulty(RESULTS, levels=7)
