"""Advantages of the group algorithms on cases worked out by hand, and what defines each of them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.turn_credit import gagpo, graphgpo, hgpo, spa
from baselines.algorithms.update import UpdateInput
from baselines.batch import collate
from baselines.math import estimators, losses
from envsuite.types import Task
from harness.types import Episode, Reply, Trajectory, Turn
from tests.baselines import hand_made as hand
from tests.baselines.hand_made import Play

GAME = ["game"] * 3


def test_hgpo_weighs_levels_of_shared_history_by_their_length():
    """Turns 1 of the first two episodes share "ab", that of the third only "b"."""
    states = [["a", "b"], ["a", "b"], ["c", "b"]]
    rewards = [[0.0, 4.0], [0.0, 2.0], [0.0, 0.0]]
    config = hgpo.HGPO(gamma=0.5, history=1, alpha=1.0, std=False)
    result = hgpo.advantages(rewards, states, GAME, config)
    # "a": returns 2 and 1; "c" is alone. "b": returns 4, 2, 0; "ab": 4 and 2, which weighs twice.
    assert result[0] == pytest.approx([0.5, (2.0 + 2 * 1.0) / 3])
    assert result[1] == pytest.approx([-0.5, (0.0 + 2 * -1.0) / 3])
    assert result[2] == pytest.approx([0.0, -2.0])


def test_hgpo_without_history_is_the_step_advantage_of_gigpo():
    states = [["a", "b", "a"], ["a", "c"], ["b", "b"]]
    rewards = [[0.1, 0.7, 1.0], [0.4, -0.3], [0.0, 0.2]]
    expected = estimators.gigpo(rewards, states, GAME, gamma=0.7)[1]
    result = hgpo.advantages(rewards, states, GAME, hgpo.HGPO(gamma=0.7, history=0))
    assert result == [pytest.approx(row) for row in expected]


def test_hgpo_compares_only_turns_of_one_group():
    states, rewards = [["a"], ["a"], ["a"]], [[1.0], [0.0], [5.0]]
    result = hgpo.advantages(rewards, states, ["one", "one", "other"], hgpo.HGPO(std=False))
    assert result == [[0.5], [-0.5], [0.0]]


# ---- GraphGPO

WALKS = [
    [("a", ("go",), "b"), ("b", ("open",), None)],  # won
    [("a", ("look",), "a"), ("a", ("go",), "b")],
    [("a", ("go",), "b"), ("b", ("wait",), "c")],
]
SCORES = [[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]


def walked(*turns, success=False):
    """An episode of turns (observation, admissible commands, command)."""
    run = Trajectory(Episode(Task(id="Toy-v0", entry_point=""), "{}", 0, 0), success=success, final_observation="end")
    reply = Reply("", [1], [2], [0.0])
    run.turns = [Turn(text, reply, (command,), 0.0, {}, admissible=listed) for text, listed, command in turns]
    return run


def test_distances_count_transitions_to_the_goal():
    assert graphgpo.goal_distances(step for walk in WALKS for step in walk) == {None: 0, "b": 1, "a": 2}
    assert graphgpo.goal_distances(WALKS[1]) == {}


def test_graphgpo_prefers_steps_towards_the_goal_also_in_lost_episodes():
    config = graphgpo.GraphGPO(decay=0.5, episode_weight=0.0, std=False)
    result = graphgpo.advantages(SCORES, WALKS, GAME, config)
    # Next states at distance 0, 1, 2 and (unknown) 3 pay 5, 2.5, 1.25 and 0.625.
    assert result[0] == pytest.approx([2.5 - 2.1875, 5 - 2.8125])
    assert result[1] == pytest.approx([1.25 - 2.1875, 2.5 - 2.1875])
    assert result[2] == pytest.approx([2.5 - 2.1875, 0.625 - 2.8125])


def test_states_with_commands_tell_apart_what_an_equal_text_hides():
    """At the table with and without the object: one text, and two lists of commands."""
    holding, empty = ("put it down", "leave"), ("leave",)
    won = walked(("shelf", ("take it", "leave"), "take it"), ("table", holding, "put it down"), success=True)
    lost = walked(("shelf", ("take it", "leave"), "leave"), ("table", empty, "leave"))
    by_text = [graphgpo.transitions_of(run) for run in (won, lost)]
    by_commands = [graphgpo.transitions_of(run, with_commands=True) for run in (won, lost)]
    distances = graphgpo.goal_distances(step for steps in by_text for step in steps)
    assert distances[by_text[1][0][2]] == 1  # the lost game seems to be one step from its end
    distances = graphgpo.goal_distances(step for steps in by_commands for step in steps)
    assert by_commands[1][0][2] not in distances and distances[by_commands[0][0][2]] == 1
    assert by_commands[0][0][0] == by_commands[1][0][0]  # both begin in one state


def test_graphgpo_without_a_won_episode_is_grpo():
    lost = [WALKS[1], WALKS[2]]
    rewards = [[0.0, 0.3], [0.1, 0.0]]
    result = graphgpo.advantages(rewards, lost, GAME[:2], graphgpo.GraphGPO(std=False))
    assert [x for row in result for x in row] == pytest.approx([0.1, 0.1, -0.1, -0.1])


def test_salt_makes_steps_neutral_that_won_and_lost_episodes_share():
    config = graphgpo.GraphGPO(graph_weight=0.0, merge=True, std=False)
    result = graphgpo.advantages(SCORES, WALKS, GAME, config)
    assert result[0] == pytest.approx([0.0, 2 / 3])  # "go" from a to b occurs in all three
    assert result[1] == pytest.approx([-1 / 3, 0.0])
    assert result[2] == pytest.approx([0.0, -1 / 3])


# ---- GAGPO


def test_gagpo_passes_the_outcome_back_through_values_of_equal_states():
    states, rewards = [["a", "b"], ["a", "b"], ["a"]], [[0.0, 1.0], [0.0, 0.0], [0.5]]
    config = gagpo.GAGPO(gamma=0.5, lam=0.5, std=False)
    # V(a) = (0.5 + 0 + 0.5) / 3 and V(b) = (1 + 0) / 2; the advantages of the group sum to 0.
    result = gagpo.advantages(rewards, states, GAME, config)
    assert result[0] == pytest.approx([-1 / 12 + 0.25 * 0.5, 0.5])
    assert result[1] == pytest.approx([-1 / 12 - 0.25 * 0.5, -0.5])
    assert result[2] == pytest.approx([1 / 6])


def test_gagpo_normalises_each_group_by_itself():
    states, rewards = [["a"], ["a"], ["a"], ["a"]], [[1.0], [0.0], [10.0], [30.0]]
    result = gagpo.advantages(rewards, states, ["x", "x", "y", "y"], gagpo.GAGPO())
    root = 0.5**0.5
    assert [x for row in result for x in row] == pytest.approx([root, -root, -root, root], abs=1e-5)


def test_the_ratio_of_a_turn_is_the_geometric_mean_of_its_tokens():
    change = torch.tensor([[0.2, 0.4, 9.0, 1.0], [0.6, 9.0, 0.3, 0.1]])
    turns = torch.tensor([[0, 0, 0, 1], [0, 0, 2, 2]])  # turn 0 continues in the next row
    sampled = torch.tensor([[True, True, False, True], [True, False, True, True]])
    expected = torch.tensor([[0.4, 0.4, 0.0, 1.0], [0.4, 0.0, 0.2, 0.2]])
    torch.testing.assert_close(losses.turn_means(change, turns, sampled), expected)


# ---- SPA


def test_spa_fits_contributions_that_sum_to_the_outcome():
    """With many steps on the same episodes the estimator learns their outcomes, whatever turn it
    credits. With five models the errors are 0.9 to 4.0 before and at most 0.0001 after."""
    model = hand.tiny_model("own")
    plays = [Play([[4, 6], [5, 1]], [0.0, 1.0]), Play([[9], [2, 10], [7]], [0.0, 0.0, 0.0], attempt=1)]
    runs = hand.trajectories(model, plays)
    config = spa.SPA(group_size=2, kl_coef=0.0, critic_learning_rate=0.02, estimator_epochs=60)
    inputs = UpdateInput(model, Optimisers(model, config), runs, config, torch.Generator())
    ends = spa.reply_ends(collate(runs))
    outcomes = torch.tensor([1.0, 0.0])
    before = spa.fit(inputs, ends, outcomes)["progress_loss"]
    after = spa.fit(inputs, ends, outcomes)["progress_loss"]
    assert after < 0.01 < before


def test_spa_pays_contributions_and_grounded_turns():
    model = hand.tiny_model("own")
    runs = hand.trajectories(model, [Play([[4], [5]], [0.0, 1.0]), Play([[9]], [0.5], attempt=1)])
    runs[0].turns[0].fault = "invalid"
    ends = spa.reply_ends(collate(runs))
    config = spa.SPA(contribution=2.0, grounding=0.5)
    rewards = [[-0.1, 1.0], [0.5]]  # the first turn has a KL penalty of 0.1
    result = spa.redistribute(runs, rewards, ends, torch.tensor([0.3, 0.4, -0.2]), config)
    assert result[0] == pytest.approx([0.6 - 0.1, 0.8 + 0.5])
    assert result[1] == pytest.approx([-0.4 + 0.5])
