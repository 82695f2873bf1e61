"""Overcooked-AI as an environment: turns, texts, rewards, players, teams."""

import numpy as np
import pytest

from envsuite import registry
from envsuite.envs.overcooked.soup.layout import GRIDS
from envsuite.errors import UsageError

ROOM = "Overcooked-AI-cramped_room-v0"


def play(env, command, seed=0):
    """Plays a game; `command` gives the next one. Returns the observations, rewards and the last info."""
    text, info = env.reset(seed=seed)
    texts, rewards, over = [text], [], False
    while not over:
        text, reward, terminated, truncated, info = env.step(command())
        texts.append(text)
        rewards.append(reward)
        over = terminated or truncated
    return texts, rewards, info


@pytest.mark.parametrize(
    ("layout", "soups"),
    [
        ("cramped_room", 12),
        ("asymmetric_advantages", 16),
        ("coordination_ring", 12),
        ("forced_coordination", 12),
        ("counter_circuit", 11),
    ],
)
def test_two_experts_serve_soups_in_every_layout(layout, soups):
    env = registry.build(f"Overcooked-AI-{layout}-v0", reward_mode="dense")
    _, rewards, info = play(env, env.expert)
    metrics = info["metrics"]
    assert metrics["soups"] == soups and info["stop_reason"] == "solved" and len(rewards) == 800
    assert sum(rewards) == metrics["soup_return"] + metrics["shaped_return"]
    assert metrics["soup_return"] == 20 * soups and metrics["primitive_steps"] == 400


def test_the_documented_tasks_are_the_five_layouts():
    assert {task for task in registry.TASKS if task.startswith("Overcooked-AI-")} == {
        f"Overcooked-AI-{layout}-v0" for layout in GRIDS
    }


def test_both_cooks_act_in_one_step_and_the_second_does_not_see_the_first_ones_command():
    env = registry.build(ROOM)
    env.reset(seed=0)
    first, _, _, _, info = env.step("right")
    assert info["primitive_steps"] == 0 and "Cook 1 is in row 3, column 2, facing up" in first
    second, _, _, _, info = env.step("move left")
    assert info["primitive_steps"] == 1
    assert "You are cook 1 of 2, in row 3, column 3, facing right" in second
    assert "Cook 2 is in row 2, column 3, facing left" in second


def test_the_text_names_hands_pots_counters_and_what_is_in_front():
    env = registry.build(ROOM, partner="stay")
    env.reset(seed=0)
    for command in ("up", "left", "interact", "right", "up"):
        text, *_ = env.step(command)
    assert "facing up, with an onion in hand" in text and "In front of you is the pot in row 1, column 3." in text
    for command in ("interact", "interact"):
        text, *_ = env.step(command)
    assert "The pot in row 1, column 3 cooks a soup of 1 onion, 19 steps left." in text
    for command in ("left", "left", "interact", "up", "interact"):
        text, *_ = env.step(command)
    assert "There is an onion on the counter in row 1, column 2." in text
    assert text.splitlines()[:4] == ["XXPXX", "O1.2O", "X...X", "XDXSX"]


def test_an_unknown_command_is_a_step_in_place_and_its_cook_is_told():
    env = registry.build(ROOM)
    env.reset(seed=0)
    text, _, _, _, info = env.step("dance")
    assert not info["is_action_valid"] and "unknown" not in text
    text, _, _, _, info = env.step("stay")
    assert text.startswith("This command is unknown") and "You are cook 1" in text and info["is_action_valid"]


def test_success_is_the_goal_at_the_horizon():
    for goal, reason in ((2, "solved"), (3, "failed")):
        env = registry.build(ROOM, horizon=90, goal=goal)
        texts, rewards, info = play(env, env.expert)
        assert info["metrics"]["soups"] == 2 and info["stop_reason"] == reason and sum(rewards) == (goal == 2)
        assert texts[-1] == "The time is up. You served 2 soups."


def test_a_cook_that_stays_never_wins_and_the_blind_player_repeats_the_experts_game():
    env = registry.build(ROOM, horizon=100)
    assert not play(env, env.idle)[2]["success"]
    assert play(env, env.blind)[0] == play(env, env.expert)[0]


@pytest.mark.parametrize("partner", ["expert", "greedy", "random", "stay"])
def test_one_player_can_command_one_cook_beside_a_scripted_partner(partner):
    env = registry.build("Overcooked-AI-asymmetric_advantages-v0", partner=partner)
    _, rewards, info = play(env, lambda: env.expert("greedy"))
    assert info["metrics"]["soups"] > 0 and len(rewards) == 400
    assert registry.agents(registry.TASKS[ROOM], {"partner": partner}) == 1


def test_in_a_team_each_cook_has_its_own_turns_and_reads_messages_once():
    env = registry.build(ROOM, partner="team", say=True)
    assert registry.agents(registry.TASKS[ROOM], {"partner": "team"}) == 2
    _, info = env.reset(seed=0)
    assert info["agent"] == 1
    text, _, _, _, info = env.step("up; say: I bring onions")
    assert info["agent"] == 2 and text.startswith('Cook 1 says: "I bring onions"')
    env.step("stay")
    text, *_ = env.step("stay")
    assert "says" not in text
    with pytest.raises(UsageError, match="partner=team"):
        registry.build(ROOM, say=True)


def test_shaped_rewards_can_be_left_out():
    env = registry.build(ROOM, reward_mode="dense", shaping=0.0)
    _, rewards, info = play(env, env.expert)
    assert set(rewards) == {0.0, 20.0} and info["metrics"]["shaped_return"] > 0


def test_a_snapshot_between_two_commands_restores_the_game():
    env = registry.build("Overcooked-AI-counter_circuit-v0", reward_mode="dense")
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(101):
        env.step(env.random_command(rng))
    saved = env.snapshot()
    commands = [env.random_command(rng) for _ in range(50)]
    first = [env.step(command)[:2] for command in commands]
    env.restore(saved)
    assert [env.step(command)[:2] for command in commands] == first


def test_pictures_show_every_layout():
    pytest.importorskip("PIL", reason="pillow is not installed")
    for layout, grid in GRIDS.items():
        env = registry.build(f"Overcooked-AI-{layout}-v0", render_mode="rgb_array")
        env.reset(seed=0)
        before = env.render()
        for _ in range(60):
            env.step(env.expert())
        after = env.render()
        assert before.shape == after.shape == (len(grid) * 48 + 22, len(grid[0]) * 48, 3) and (before != after).any()
