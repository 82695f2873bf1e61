"""Recipes that cannot work are refused by name before transformers is imported."""

import dataclasses
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from baselines import recipe as recipes
from baselines import tables
from baselines.algorithms import ALGORITHMS, module_of, sft
from baselines.collection.env_cache import EnvCache
from baselines.networks.settings import ModelConfig
from envsuite import registry
from envsuite.errors import UsageError
from harness.evaluate import Execution, RunConfig
from harness.types import Episode

ROOT = Path(__file__).resolve().parents[2]
BASE = {"algorithm": "ppo", "model": {"name": "x"}, "tasks": ["Signpost-v0"]}
GROUPS = {**BASE, "algorithm": "grpo"}
TWOSOME = {**BASE, "algorithm": "twosome", "acting": {"choose": "admissible"}}


def number_hints(cls):
    """The annotations of a class's numeric fields."""
    hints = typing.get_type_hints(cls, include_extras=True)
    numeric = (int, float, tuple[int, ...])
    return {
        field.name: hints[field.name]
        for field in dataclasses.fields(cls)
        if typing.get_type_hints(cls)[field.name] in numeric
    }


CONFIGS = {name: module_of(name).Config for name in ALGORITHMS}
CLASSES = [recipes.Recipe, recipes.Acting, recipes.Generation, recipes.Demonstrations]
CLASSES += [ModelConfig, sft.SFTConfig]


@pytest.mark.parametrize("cls", [*CLASSES, *CONFIGS.values()], ids=lambda cls: cls.__name__)
def test_every_number_of_a_recipe_has_a_range(cls):
    hints = number_hints(cls)
    assert hints or cls is recipes.Recipe
    for name, hint in hints.items():
        limits = tables.range_of(hint)
        assert limits is not None, name
        assert float("nan") not in limits
        assert float("inf") not in limits


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("updates", -3, "at least 0"),
        ("train_seeds", -2, "at least 0"),
        ("max_turns", -1, "at least 0"),
        ("seed", -1, "at least 0"),
        ("episodes", 0, "at least 1"),
        ("eval_episodes", 0, "at least 1"),
        ("advance_at", 2.0, "at least 0 and at most 1"),
        ("tasks", [], "one at least"),
        ("tasks", 3.5, "it is a list"),
        ("acting", {"top_p": 7.0}, "above 0 and at most 1"),
        ("acting", {"top_p": 0.9}, r"top_p = 0\.9: .*over all of it"),
        ("prompting", {"history_reasoning": -2}, "history_reasoning cannot be -2"),
        ("config", {"adam_betas": [0.9]}, "two numbers below 1"),
        ("config", {"adam_eps": 0}, "above 0"),
        ("model", {"name": "x", "lora_rank": -1}, "at least 0"),
        ("model", {"name": "x", "lora_rank": 8, "lora_targets": []}, "lora_targets"),
        ("model", {"name": "x", "critic": "none"}, "ppo needs a critic"),
        ("algorithm", "sft", "the recipe has none: set sft.episodes"),
        ("sft", 3, "expected a table"),
        ("sft", {"train": {"rows": 0}}, r"sft\.train\.rows cannot be 0: it is at least 1"),
        ("sft", {"file": "nowhere.jsonl"}, "is not there"),
        ("sft", {"file": "nowhere.jsonl", "episodes": 4}, "one of them"),
        ("config", {"epochs": 0}, "at least 1"),
        ("config", {"minibatches": -1}, "at least 1"),
        ("config", {"micro_rows": -1}, "at least 0"),
        ("config", {"learning_rate": -1}, r"config\.learning_rate cannot be -1\.0: it is at least 0"),
        ("config", {"learning_rate": float("nan")}, "at least 0"),
        ("config", {"learning_rate": float("inf")}, "at least 0"),
        ("config", {"gamma": 1.5}, "at most 1"),
        ("config", {"aggregation": "seq-sum-constant"}, "needs config.constant"),
    ],
)
def test_a_value_outside_its_range_is_refused(key, value, message):
    with pytest.raises(UsageError, match=message):
        recipes.parse({**BASE, key: value})


@pytest.mark.parametrize("size", [0, -8])
def test_groups_hold_episodes(size):
    with pytest.raises(UsageError, match=f"group_size cannot be {size}: it is at least 1"):
        recipes.parse({**GROUPS, "config": {"group_size": size}})


def test_twosome_refuses_what_it_would_pass_over():
    recipes.parse(TWOSOME)
    for changed, message in (
        ({"acting": {"choose": "free"}}, "acting.choose cannot be 'free'"),
        ({"config": {"kl_coef": 0.1}}, "config.kl_coef cannot be 0.1"),
        ({"config": {"aggregation": "seq-mean-token-sum"}}, "config.aggregation"),
    ):
        with pytest.raises(UsageError, match=message):
            recipes.parse({**TWOSOME, **changed})


def test_defaults_that_stand_for_something_else_are_taken():
    for name, cls in CONFIGS.items():
        base = TWOSOME if name == "twosome" else {**BASE, "algorithm": name, "sft": {"episodes": 1}}
        spelled = dataclasses.asdict(cls())
        assert recipes.parse({**base, "config": spelled}).config == cls()
    with pytest.raises(UsageError, match="gamma_token"):  # -1 means gamma to ntpo, and nothing to dual_gae
        recipes.parse({**BASE, "algorithm": "dual_gae", "config": {"gamma_token": -1}})


def test_the_command_refuses_in_one_line_before_transformers_is_imported(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('algorithm = "ppo"\ntasks = ["x"]\nsft = 3\n[model]\nname = "x"\n')
    look = "import sys; from baselines import cli\ntry: cli.main(sys.argv[1:])\nfinally: assert 'transformers' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", look, path, "--set", "sft.episodes=4"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "sft = 3 is no table" in done.stderr


SHAPED = {"model": {"name": "gpt2-tiny"}, "tasks": ["Overcooked-tomato_salad-v0"], "reward_mode": "shaped"}


@pytest.mark.parametrize(
    ("algorithm", "config", "discount"),
    [
        ("ppo", {"level": "turn", "gamma": 0.95}, (0.95, "command")),
        ("poad", {"gamma": 0.98, "smdp": True}, (0.98, "step")),
        ("grpo", {}, (1.0, "command")),
        ("rloo", {"per_turn": True, "gamma": 0.9}, (0.9, "command")),
        ("hgpo", {"gamma": 0.8}, (0.8, "command")),
        ("graphgpo", {}, (1.0, "command")),
        ("gagpo", {"gamma": 0.8}, (0.8, "command")),
        ("spa", {}, (1.0, "command")),
    ],
)
def test_shaped_rewards_use_the_discount_of_the_algorithm_and_no_other(algorithm, config, discount):
    table = {**SHAPED, "algorithm": algorithm, "config": config}
    shaping = recipes.parse(table).shaping
    assert (shaping.gamma, shaping.unit) == discount


@pytest.mark.parametrize(("algorithm", "config"), [("ppo", {}), ("ntpo", {}), ("gigpo", {})])
def test_shaped_rewards_are_refused_where_no_single_discount_exists(algorithm, config):
    table = {**SHAPED, "algorithm": algorithm, "config": config}
    with pytest.raises(UsageError, match="needs one discount"):
        recipes.parse(table)
    recipes.parse({**table, "config": {**config, "gamma": 1.0}})


def test_the_environments_of_a_run_receive_its_discount():
    recipe = recipes.parse({**SHAPED, "algorithm": "poad", "config": {"gamma": 0.9, "smdp": True}})
    config = RunConfig(registry.tasks(recipe.tasks[0])[0], "expert", reward_mode=recipe.reward_mode)
    cache = EnvCache()
    try:
        executor = cache.executor(config, Execution(), 1, "expert", recipe.shaping)
        executor.start(0, Episode(config.task, "{}", 0))
        [(_, result)] = executor.poll()
        executor.step(0, (result.advice,), 0)
        [(_, result)] = executor.poll()
        steps = result.info["primitive_steps"]
        assert steps > 1 and result.reward == pytest.approx(0.9**steps * (-5 / 6) + 1)
    finally:
        cache.close()
