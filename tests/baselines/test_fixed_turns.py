"""Batches of a fixed number of turns: episodes continue in the next batch as if there were no edge."""

import json

import pytest

torch = pytest.importorskip("torch")

from baselines import recipe as recipes
from baselines.collection import fixed_turns
from baselines.studies import tiny_model
from baselines.train import TrainingRun
from envsuite.errors import UsageError
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from tests import toys  # noqa: F401

EPISODES, TURNS = 4, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("model") / "tiny"
    tiny_model.make(
        path, [" ".join(map(str, range(1, 65))) + " Higher. Lower."] * 20, size="xxs", vocabulary=340, context=512
    )
    return path


def recipe(folder, **changes):
    table = {
        "algorithm": "dual_gae", "model": {"name": str(folder)}, "tasks": ["HiLo-v0"], "updates": 4, "turns": TURNS,
        "episodes": EPISODES, "max_turns": 7, "eval_every": 0, "eval_episodes": 2, "save_every": 1,
        "acting": {"max_tokens": 4}, "config": {"learning_rate": 1e-3, "critic_warmup": 1},
        "prompting": {"grammar": "bare", "thinking": False, "history": 1, "admissible": "none"}, **changes,
    }  # fmt: skip
    return recipes.parse(table)


def test_episodes_played_across_batches_equal_episodes_played_at_once(folder, tmp_path):
    run = TrainingRun(recipe(folder), tmp_path / "run")
    collector = run.collector
    pieces: dict = {}
    for update in range(5):
        actor = collector.actor()
        pairs = collector._play_batch(actor, update, run.stage)
        assert sum(len(episode.turns) - first for episode, first in pairs) == EPISODES * TURNS
        for episode, first in pairs:
            before = pieces.setdefault(episode.episode.key, [])
            assert first == len(before)
            before += [(turn.reply.text, turn.reward) for turn in fixed_turns.turns_from(episode, first).turns]
        ended = [episode for episode, _ in pairs if not fixed_turns.unfinished(episode, 7)]
        actor.close()
        for episode in ended:
            todo, prompting = [episode.episode], run.recipe.prompting
            (at_once,) = rollout(collector.actor(), todo, LocalExecutor(1), prompting, 7)
            assert pieces[episode.episode.key] == [(turn.reply.text, turn.reward) for turn in at_once.turns]
    assert sum(stream.started for stream in collector.streams) > EPISODES  # some ended and some continued
    assert any(stream.replies for stream in collector.streams)
    run.close()


def test_a_run_of_fixed_turns_resumes_in_the_middle_of_its_episodes(folder, tmp_path):
    whole = TrainingRun(recipe(folder), tmp_path / "whole")
    whole.train()
    TrainingRun(recipe(folder, updates=2), tmp_path / "cut").train()
    resumed = TrainingRun(recipe(folder), tmp_path / "cut", resume=True)
    resumed.train()
    for name, value in whole.model.state()["lm"].items():
        assert torch.equal(value, resumed.model.state()["lm"][name]), name
    lines = [json.loads(line) for line in (tmp_path / "cut" / "metrics.jsonl").read_text().splitlines()]
    updates = [line for line in lines if line["kind"] == "update"]
    assert [line["env_steps"] for line in updates] == [EPISODES * TURNS] * 4
    assert [line["over"] for line in updates][:2] == [0, 0] and "success" not in updates[0]  # no end in sight yet


def test_groups_need_whole_episodes(folder):
    with pytest.raises(UsageError, match="leave turns out"):
        recipe(folder, algorithm="grpo", episodes=8, config={"group_size": 4})
    with pytest.raises(UsageError, match="takes what follows for nothing"):
        recipe(folder, config={"bootstrap": False})
