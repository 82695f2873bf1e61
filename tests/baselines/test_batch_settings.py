"""Settings of a training batch: replaced groups and growing turn limits."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

from baselines import recipe as recipes
from baselines.collection.resampling import replace_flat_groups
from baselines.collection.rewards import adjusted
from baselines.recipe import RewardSettings
from baselines.studies import tiny_model
from baselines.train import TrainingRun
from envsuite.errors import UsageError
from envsuite.types import Task
from harness.stats.curriculum import task_ladder
from harness.types import Episode, Reply, Trajectory, Turn
from tests import toys  # noqa: F401

TASK = Task(id="Toy-v0", entry_point="")


def played(attempt, rewards, faults=(), **fields):
    """An episode with the given rewards of its turns."""
    run = Trajectory(Episode(TASK, "{}", 0, attempt), **fields)
    faults = faults or [""] * len(rewards)
    run.turns = [
        Turn("", Reply("", [1], [2], [0.0]), ("",), reward, {}, fault=fault)
        for reward, fault in zip(rewards, faults, strict=True)
    ]
    return run


# ---- groups that earned the same


def scored(first, *scores):
    return [played(first + k, [score]) for k, score in enumerate(scores)]


def attempts(runs):
    return [run.episode.attempt for run in runs]


def test_flat_groups_are_replaced_until_none_is_left():
    rounds = {1: scored(10, 0, 0, 1, 1), 2: scored(20, 0, 1, 1, 0)}
    asked = []

    def play(number, groups):
        asked.append((number, groups))
        return rounds[number]

    runs = scored(0, 0, 0, 0, 1, 1, 1)  # groups of two: flat, informative, flat
    kept, replaced = replace_flat_groups(runs, 2, 5, lambda run: run.total_reward, play)
    assert asked == [(1, 2), (2, 2)]
    assert attempts(kept) == [2, 3, 20, 21, 22, 23]
    assert attempts(replaced) == [0, 1, 4, 5, 10, 11, 12, 13]


def test_flat_groups_of_the_last_round_stay():
    kept, replaced = replace_flat_groups(
        scored(0, 0, 1, 0, 0), 2, 1, lambda run: run.total_reward, lambda number, groups: scored(10, 1, 1)
    )
    assert attempts(kept) == [0, 1, 10, 11] and attempts(replaced) == [2, 3]


def test_a_group_with_one_usable_episode_is_replaced():
    broken = {3}
    score = lambda run: None if run.episode.attempt in broken else run.total_reward
    kept, replaced = replace_flat_groups(scored(0, 0, 1, 0, 1), 2, 1, score, lambda number, groups: scored(10, 0, 1))
    assert attempts(kept) == [0, 1, 10, 11] and attempts(replaced) == [2, 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("model") / "tiny"
    tiny_model.make(path, ["Say it. north east south west Higher. Lower."] * 20, "xxs", vocabulary=300, context=512)
    return path


def recipe(folder, **changes):
    table = {
        "algorithm": "grpo", "model": {"name": str(folder), "critic": "none"}, "tasks": ["Signpost-v0"], "updates": 2,
        "episodes": 16, "eval_every": 0, "eval_episodes": 2, "save_every": 10,
        "acting": {"choose": "trie"}, "config": {"group_size": 2, "learning_rate": 1e-3},
        "prompting": {"grammar": "bare", "thinking": False, "history": 0, "admissible": "none"}, **changes,
    }  # fmt: skip
    return recipes.parse(table)


def test_a_batch_has_no_flat_group_but_those_of_the_last_rollout(folder, tmp_path):
    rounds = 3
    run = TrainingRun(recipe(folder, config={"group_size": 2, "resample": rounds}), tmp_path / "run")
    try:
        batch = run.collector.collect(1, 0)
    finally:
        run.close()
    assert len(batch.learned) == 16 and len(batch.played) == 16 + batch.resampled
    assert batch.resampled == batch.log["resampled"] > 0
    numbers = attempts(batch.played)
    assert len(set(numbers)) == len(numbers)  # no sampling seed is used twice
    assert min(numbers) >= 16 * (1 + rounds)  # nor is one of the update before
    groups: dict = {}
    for episode in batch.learned:
        groups.setdefault(episode.episode.attempt // 2, []).append(episode)
    for number, group in groups.items():
        assert len({episode.episode.seed for episode in group}) == 1
        last = number * 2 // 16 - (1 + rounds) == rounds
        assert last or len({episode.total_reward for episode in group}) == 2


def test_a_run_with_all_settings_takes_its_updates_and_logs_them(folder, tmp_path):
    settings = recipe(
        folder,
        config={"group_size": 2, "resample": 1, "learning_rate": 1e-3},
        turn_limits=[1, 2],
        turn_limit_updates=1,
        rewards={"invalid_penalty": 0.1},
    )
    TrainingRun(settings, tmp_path / "run").train()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    updates = [row for row in rows if row["kind"] == "update"]
    assert [row["turn_limit"] for row in updates] == [1, 2]
    assert all(row["broken"] == 0 and row["resampled"] >= 0 for row in updates)
    assert updates[0]["env_steps"] == 16  # one turn each
    assert [row["over"] for row in updates] == [16 + row["resampled"] for row in updates]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": {"group_size": 1, "resample": 2}}, "compares nothing"),
        ({"turn_limits": [4, 4]}, "each limit is larger"),
        ({"turn_limits": [4, 8], "max_turns": 6}, "none is above max_turns = 6"),
        ({"turn_limits": [0, 8]}, "turn_limits cannot be 0"),
        ({"algorithm": "ppo", "model": {"name": "x"}, "config": {}, "turns": 2, "turn_limits": [3]}, "whole episodes"),
        (
            {
                "algorithm": "twosome",
                "model": {"name": "x"},
                "acting": {"choose": "admissible"},
                "config": {"ratio": "turn"},
            },
            "config.ratio cannot be 'turn'",
        ),
        ({"algorithm": "spa", "config": {"group_size": 2}}, "model.critic cannot be 'none'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        recipe("x", **changes)


# ---- growing turn limits


def test_the_turn_limit_grows_in_steps_and_stays_at_the_last():
    growing = recipe("x", turn_limits=[2, 5, 9], turn_limit_updates=3, max_turns=20)
    assert [growing.turn_limit(update) for update in (0, 2, 3, 5, 6, 8, 9, 100)] == [2, 2, 5, 5, 9, 9, 9, 9]
    assert recipe("x", max_turns=20).turn_limit(7) == 20


# ---- gated rewards


def rewards_of(run, **settings):
    return [turn.reward for turn in adjusted(run, RewardSettings(**settings)).turns]


def test_without_a_gate_all_rewards_count():
    run = played(0, [0.2, 0.1], progression=0.0)
    assert rewards_of(run) == [0.2, 0.1]
    assert rewards_of(run, scale=2.0) == [0.4, 0.2]


# ---- a ladder of tasks


def test_success_moves_along_the_ladder_within_its_ends(folder):
    ladder = recipe(folder, tasks=["Signpost-v0", "Paths-v0", "Coloured-v0"], success_between=[0.4, 0.7])
    steps = [(0, 0.71, 1), (1, 0.7, 1), (1, 0.4, 1), (1, 0.39, 0), (0, 0.0, 0), (2, 1.0, 2), (1, 1.0, 2)]
    assert [ladder.next_stage(stage, success, 3) for stage, success, _ in steps] == [after for *_, after in steps]
    growing = recipe(folder, tasks=["Signpost-v0", "Paths-v0"], advance_at=0.5)
    assert [growing.next_stage(stage, success, 2) for stage, success in ((0, 0.5), (0, 0.4), (1, 0.0), (1, 1.0))] == [
        1, 0, 1, 1
    ]  # fmt: skip


def test_a_run_plays_one_task_of_the_ladder_at_a_time_and_resumes_on_it(folder, tmp_path):
    """Random play of the first task exceeds the upper bound, that of the second task stays between them."""
    settings = {"tasks": ["Signpost-v0", "Coloured-v0"], "success_between": [0.001, 0.01], "save_every": 1}
    TrainingRun(recipe(folder, **settings), tmp_path / "run").train()
    updates = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    levels = [(line["level"], line["success"]) for line in updates if line["kind"] == "update"]
    assert levels[0][0] == 0 and levels[0][1] > 0.01 and levels[1][0] == 1
    run = TrainingRun(recipe(folder, **{**settings, "updates": 3}), tmp_path / "run", resume=True)
    try:
        assert run.stage == 1
        played = run.collector.collect(2, run.stage).played
    finally:
        run.close()
    assert {episode.episode.task.id for episode in played} == {"Coloured-v0"}


@pytest.mark.parametrize("name", ["alfworld-generated", "babyai", "overcooked", "virtualhome"])
def test_the_levels_of_a_family_are_a_ladder_of_training_games(tmp_path, name):
    path = tmp_path / "tiny"
    tiny_model.make(path, ["You are in a room. go to open take put"] * 20, "xxxs", vocabulary=280, context=16384)
    ladder = task_ladder(name)
    settings = recipe(path, tasks=ladder, success_between=[0.4, 0.7], episodes=2, max_turns=1)
    run = TrainingRun(settings, tmp_path / "run")
    try:
        for update, stage in enumerate((0, 2)):
            learned = run.collector.collect(update, stage).learned
            assert len(learned) == 2
            for episode in learned:
                assert episode.episode.task.id == ladder[stage] and len(episode.turns) == 1
                assert episode.episode.seed in episode.episode.task.splits["train"]
    finally:
        run.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"success_between": [0.7, 0.4]}, "the lower one first"),
        ({"success_between": [0.5]}, "it is two shares"),
        ({"success_between": [0.4, 0.7], "advance_at": 0.8}, "and advance_at = 0.8 does not"),
    ],
)
def test_bounds_of_success_that_contradict_the_recipe_are_refused(folder, changes, message):
    with pytest.raises(UsageError, match=message):
        recipe(folder, tasks=["Signpost-v0", "Coloured-v0"], **changes)
