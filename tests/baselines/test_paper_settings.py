"""Settings of papers: defaults as the documentation lists them, and what recipes at paper settings need."""

import dataclasses
import re
from pathlib import Path

import pytest

from baselines import recipe as recipes
from baselines.algorithms import ALGORITHMS, module_of, ppo
from baselines.collection.sampler import check_choice
from envsuite.errors import UsageError
from tests import toys  # noqa: F401  registers the tasks

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| `(\w+)` \| ([\w.-]+) \| ([^|]+) \| ([^|]+) \|$", re.M)


def test_the_defaults_are_those_that_the_documentation_lists_with_their_sources():
    text = (ROOT / "docs/explanation/algorithms.md").read_text().partition("## Defaults and their sources")[2]
    rows = ROW.findall(text.partition("\n## ")[0])
    assert len(rows) > 30
    trainers = {name: module_of(name).Config() for name in ALGORITHMS if name != "sft"}
    for setting, value, of, source in rows:
        named = {name for row in rows if row[0] == setting for name in re.findall(r"`(\w+)`", row[2])}
        meant = set(re.findall(r"`(\w+)`", of)) or {name for name in trainers if name not in named}
        assert source.strip() and meant <= set(trainers)
        values = {name: getattr(trainers[name], setting) for name in meant if hasattr(trainers[name], setting)}
        assert values, setting
        for name, default in values.items():
            assert str(default) == value or float(value) == default, f"{name}.{setting}"


def test_the_first_token_of_a_reply_may_weigh_more_for_the_critic():
    torch = pytest.importorskip("torch")
    from baselines.algorithms.optimisers import Optimisers
    from baselines.algorithms.update import UpdateInput
    from tests.baselines import hand_made as hand
    from tests.baselines.test_exact_gradients import PLAYS, expected_advantages, flat, next_prompts

    for micro_rows in (0, 2):
        config = ppo.PPO(highlight_first=3.0, max_grad_norm=1e9, micro_rows=micro_rows)
        model = hand.tiny_model("own")
        runs = hand.trajectories(model, PLAYS)
        prompts = next_prompts(runs)
        advantage, values = expected_advantages(model, runs, config, (0.99, 0.95, 0.99, 0.95), prompts)
        targets = torch.tensor([a + v for a, v in zip(flat(advantage), flat(values), strict=True)])
        weights = torch.tensor([3.0 if j == 0 else 1.0 for t in hand.turns(runs) for j in range(len(t.reply.ids))])
        result = torch.cat([hand.values(model.critic, turn) for turn in hand.turns(runs)])
        loss = config.value_coef * 0.5 * (weights * (result - targets) ** 2).sum() / len(weights)
        expected = hand.gradient(loss, model.critic_parameters())
        inputs = UpdateInput(model, Optimisers(model, config), runs, config, torch.Generator(), prompts)
        ppo.update(inputs)
        hand.agree(hand.left_by(model.critic_parameters()), expected)


def test_a_critic_is_warmed_up_by_passes_over_one_large_batch(tmp_path_factory, tmp_path):
    """Only the critic learns from it, from a new part of its rows in each pass."""
    torch = pytest.importorskip("torch")
    from baselines.train import TrainingRun
    from tests.baselines.test_training import made
    from tests.baselines.test_training_scale import recipe as base

    config = {"critic_warmup": 3, "critic_warmup_batch": 4, "critic_warmup_share": 0.5, "minibatches": 2}
    table = base(made(tmp_path_factory, "xxs"), algorithm="dual_gae", turns=2, updates=4, save_every=10, config=config)
    states = []

    def watch(line):
        if line["kind"] == "update":
            states.append((line, run.model.state(), run.optimisers.critic.state()["state"][0]["step"].item()))

    run = TrainingRun(recipes.parse(table), tmp_path / "run", display=watch)
    before = run.model.state()
    run.train()
    (large, warm, steps), (ordinary, after, _) = states
    assert (large["update"], ordinary["update"]) == (3, 4)
    assert (large["env_steps"], ordinary["env_steps"]) == (4 * 2 * 8, 2 * 8)
    assert steps == 3 * 4  # passes, times 2 minibatches * 4 batches * half of the rows
    assert all(torch.equal(value, before["lm"][name]) for name, value in warm["lm"].items())
    assert not all(torch.equal(value, before["critic"][name]) for name, value in warm["critic"].items())
    assert not all(torch.equal(value, before["lm"][name]) for name, value in after["lm"].items())
    with pytest.raises(UsageError, match=r"critic_warmup_batch = 4 needs passes over this batch"):
        recipes.parse({**table, "config": {**config, "critic_warmup": 0}})


def test_the_gigpo_recipe_has_the_numbers_of_the_public_one():
    """Those of verl-agent's script for ALFWorld and of verl's defaults, as docs/specs lists them."""
    recipe = recipes.load(recipes.find("alfworld-gigpo-3b"))
    config = recipe.config
    assert (recipe.episodes, config.group_size, recipe.max_turns, recipe.updates) == (16 * 8, 8, 50, 150)
    assert (recipe.acting.context, recipe.acting.max_tokens) == (2048 + 512, 512)
    assert (recipe.acting.temperature, recipe.acting.eval_temperature) == (1.0, 0.4)
    assert (recipe.eval_every, recipe.eval_episodes, recipe.prompting.history) == (5, 128, 2)
    assert recipe.rewards == recipes.RewardSettings(scale=10.0, format_penalty=0.1)
    assert (config.gamma, config.omega, config.std, config.over_rows) == (0.95, 1.0, True, True)
    assert (config.clip_low, config.clip_high, config.dual_clip) == (0.2, 0.2, 3.0)
    assert (config.kl_coef, config.kl_in, config.kl_kind, config.entropy_coef) == (0.01, "loss", "k3", 0.001)
    assert (config.epochs, config.aggregation, config.weight_decay, config.max_grad_norm) == (1, "token-mean", 0.01, 1)
    assert (config.adam_eps, config.adam_betas, config.schedule, config.warmup_updates) == (
        1e-8,
        (0.9, 0.999),
        "constant",
        0,
    )


@pytest.mark.filterwarnings("error::FutureWarning")
def test_the_dry_run_of_the_largest_recipe_warns_of_nothing(capfd):
    from baselines import cli

    pytest.importorskip("peft")
    with pytest.raises(SystemExit) as left:
        cli.main(["alfworld-gigpo-3b", "--dry-run"])
    assert left.value.code == 0
    output, errors = capfd.readouterr()
    assert "memory with qwen2.5-3b:" in output and errors == ""


@pytest.mark.parametrize("choose", ["admissible", "trie"])
@pytest.mark.parametrize("task", ["SWEGym-easy-v0", "DataSciCoding-easy-v0"])
def test_choosing_commands_is_refused_where_a_task_lists_none(choose, task):
    """The error names the recipe's key, before a model is loaded."""
    table = {"algorithm": "ppo", "model": {"name": "x"}, "tasks": ["Signpost-v0"], "acting": {"choose": choose}}
    recipe = recipes.parse(table)
    check_choice(recipe)
    with pytest.raises(UsageError, match=rf"acting\.choose = '{choose}' .*lists none: set acting\.choose = 'free'"):
        check_choice(dataclasses.replace(recipe, tasks=(task,)))
    check_choice(dataclasses.replace(recipe, tasks=(task,), acting=recipes.Acting()))


def test_the_dry_run_refuses_what_the_run_would(tmp_path, capsys):
    from baselines import cli

    path = tmp_path / "recipe.toml"
    path.write_text('algorithm = "ppo"\ntasks = ["SWEGym-easy-v0"]\n[model]\nname = "x"\n[acting]\nchoose = "trie"\n')
    with pytest.raises(SystemExit) as left:
        cli.main([str(path), "--dry-run"])
    message = capsys.readouterr().err
    assert left.value.code == 2 and "set acting.choose = 'free'" in message and "--action-mode" not in message
