"""The games of a training run: panels and splits, held-out games, budgets and learning rates."""

import json

import pytest

torch = pytest.importorskip("torch")

from baselines import recipe as recipes
from baselines.collection.sampler import GameSampler
from baselines.train import TrainingRun
from envsuite import Task, register
from envsuite.errors import UsageError
from envsuite.types import Panel
from tests import toys  # noqa: F401
from tests.baselines.test_training import made
from tests.baselines.test_training_scale import recipe


def twelve(**settings):
    return Panel("twelve", tuple(f"game {k}" for k in range(12)), "")


def four(**settings):
    return Panel("four", tuple(f"other {k}" for k in range(4)), "")


SPLITS = {"train": "Signs-train-v0", "seen": "Signs-seen-v0", "unseen": "Signs-unseen-v0"}
for name, panel in zip(SPLITS.values(), ("twelve", "four", "four"), strict=True):
    register(
        Task(
            id=name,
            entry_point="tests.toys:Signpost",
            panel=f"tests.baselines.test_training_games:{panel}",
            split_ids=SPLITS,
        )
    )
register(
    Task(id="SignsAlone-v0", entry_point="tests.toys:Signpost", panel="tests.baselines.test_training_games:twelve")
)


def games(*tasks, **changes):
    return GameSampler(recipes.parse(recipe("any", tasks=list(tasks), **changes)))


def measured(sampler):
    return [(item.task.id, item.seed) for _, todo in sampler.evaluation() for item in todo]


def test_a_panel_is_measured_on_the_last_of_its_other_splits():
    sampler = games("Signs-train-v0", eval_episodes=3)
    assert measured(sampler) == [("Signs-unseen-v0", 0), ("Signs-unseen-v0", 1), ("Signs-unseen-v0", 2)]
    assert sampler.held_out
    assert {item.seed for update in range(20) for item in sampler.batch(update, 0)} == set(range(12))
    trained_on_the_last = games("Signs-unseen-v0")  # then it is the last but itself
    assert {task for task, _ in measured(trained_on_the_last)} == {"Signs-seen-v0"}


def test_a_panel_without_splits_is_measured_beyond_the_games_it_trains_on():
    sampler = games("SignsAlone-v0", train_seeds=9, eval_episodes=50)
    assert [seed for _, seed in measured(sampler)] == [9, 10, 11]  # there are no more
    assert sampler.held_out
    assert max(item.seed for update in range(20) for item in sampler.batch(update, 0)) == 8


def test_a_panel_with_nothing_left_is_measured_on_itself_and_says_so():
    for seeds in (0, 12):
        sampler = games("SignsAlone-v0", train_seeds=seeds, eval_episodes=2)
        assert [seed for _, seed in measured(sampler)] == [0, 1]
        assert not sampler.held_out
    both = games("Signs-train-v0", "SignsAlone-v0", eval_episodes=3)
    assert len(measured(both)) == 4  # alike from each
    assert not both.held_out  # one of them is not


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory, "xxs")


def test_a_budget_ends_the_run_and_the_rate_falls_as_it_is_spent(folder, tmp_path):
    """Two demonstrations cost 20 and an update of 8 episodes 8: of 50 units there are three
    updates, at rates of what is left."""
    config = {"learning_rate": 1.0, "critic_learning_rate": 0.5, "schedule": "linear"}
    table = recipe(folder, budget=50, updates=99, config=config, sft={"episodes": 2, "train": {"rows": 2}})
    run = TrainingRun(recipes.parse(table), tmp_path / "run")
    rates = []
    step = run._step

    def noted():
        step()
        actor, critic = (optimiser.rate for optimiser in (run.optimisers.actor, run.optimisers.critic))
        assert critic == pytest.approx(actor / 2)
        rates.append(actor)

    run._step = noted
    run.train()
    assert (run.update, run.spent) == (3, 44)  # one more would cost 52
    assert rates == pytest.approx([1 - spent / 50 for spent in (20, 28, 36)])
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["spent"] for line in lines if line["kind"] == "eval"] == [20, 44]
    again = TrainingRun(recipes.parse({**table, "budget": 60}), tmp_path / "run", resume=True)  # more was granted
    again.train()
    assert (again.update, again.spent) == (5, 60)
    assert again.optimisers.actor.rate == pytest.approx(1 - 52 / 60)


def test_a_game_with_a_player_for_each_cook_is_not_trained():
    with pytest.raises(UsageError, match="a player for each of 2 agents"):
        games("Overcooked-AI-cramped_room-v0", knobs={"partner": "team"})
    assert games("Overcooked-AI-cramped_room-v0").configs
