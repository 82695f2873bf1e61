"""Advantages of the group algorithms on cases worked out by hand, and what defines each of them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from baselines import configs
from baselines.algorithms import hgpo
from baselines.math import estimators

GAME = ["game"] * 3


def test_hgpo_weighs_levels_of_shared_history_by_their_length():
    """Turns 1 of the first two episodes share "ab", that of the third only "b"."""
    states = [["a", "b"], ["a", "b"], ["c", "b"]]
    rewards = [[0.0, 4.0], [0.0, 2.0], [0.0, 0.0]]
    config = configs.HGPO(gamma=0.5, history=1, alpha=1.0, std=False)
    result = hgpo.advantages(rewards, states, GAME, config)
    # "a": returns 2 and 1; "c" is alone. "b": returns 4, 2, 0; "ab": 4 and 2, which weighs twice.
    assert result[0] == pytest.approx([0.5, (2.0 + 2 * 1.0) / 3])
    assert result[1] == pytest.approx([-0.5, (0.0 + 2 * -1.0) / 3])
    assert result[2] == pytest.approx([0.0, -2.0])


def test_hgpo_without_history_is_the_step_advantage_of_gigpo():
    states = [["a", "b", "a"], ["a", "c"], ["b", "b"]]
    rewards = [[0.1, 0.7, 1.0], [0.4, -0.3], [0.0, 0.2]]
    expected = estimators.gigpo(rewards, states, GAME, gamma=0.7)[1]
    result = hgpo.advantages(rewards, states, GAME, configs.HGPO(gamma=0.7, history=0))
    assert result == [pytest.approx(row) for row in expected]


def test_hgpo_compares_only_turns_of_one_group():
    states, rewards = [["a"], ["a"], ["a"]], [[1.0], [0.0], [5.0]]
    result = hgpo.advantages(rewards, states, ["one", "one", "other"], configs.HGPO(std=False))
    assert result == [[0.5], [-0.5], [0.0]]
