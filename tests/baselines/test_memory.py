"""The memory that --dry-run states is the memory that training uses, within 15 %."""

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from baselines import memory
from baselines import recipe as recipes
from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.update import UpdateInput
from baselines.networks.model import Model
from benchmarks import gpu_proof
from benchmarks.peak_memory import PeakMemory

SMALL = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 4096}  # fmt: skip
LORA = {"lora_rank": 8, "lora_alpha": 16, "lora_targets": list(gpu_proof.TARGETS)}


@pytest.mark.parametrize(
    ("algorithm", "model"),
    [
        ("grpo", {"dtype": "float32"}),
        ("grpo", {"dtype": "float32", "gradient_checkpointing": True, **LORA}),
        ("grpo", {"dtype": "bfloat16", "gradient_checkpointing": True}),
        ("grpo", {"dtype": "bfloat16", "gradient_checkpointing": True, **LORA}),
        ("ppo", {"dtype": "float32", "critic": "own"}),
        ("ppo", {"dtype": "float32", "critic": "head", **LORA}),
        ("poad", {"dtype": "float32", "critic": "own", "gradient_checkpointing": True}),
    ],
)
def test_the_estimate_is_what_two_updates_use(monkeypatch, tmp_path, algorithm, model):
    torch.set_num_threads(1)
    monkeypatch.setitem(gpu_proof.SHAPES, "small", SMALL)
    (tmp_path / "config.json").write_text(json.dumps(gpu_proof.qwen_settings("small")))
    # No KL guard: a skipped policy step would not allocate the moments of the actor.
    config = {"kl_coef": 0.01, "micro_rows": 2, "whole": False, "target_kl": 0.0}
    table = {
        "algorithm": algorithm,
        "model": {"name": str(tmp_path), **model},
        "tasks": ["VirtualHome-food_preparation-v0"],
        "episodes": 4,
        "acting": {"context": 192, "max_tokens": 32},
        "config": {**config, "group_size": 4} if algorithm == "grpo" else config,
    }
    recipe = recipes.parse(table)
    parts = memory.estimate(recipe)
    expected = memory.peak({**parts, "rollout's keys and values": 0.0})
    with PeakMemory(torch.device("cpu")) as counter:
        lm = gpu_proof.qwen("small", torch.device("cpu"), getattr(torch, model["dtype"]))
        trained = Model(lm, None, recipe.model_config)
        trained.keep_reference()
        optimisers = Optimisers(trained, recipe.config)
        for seed in range(2):
            runs = gpu_proof.episodes(4, 160, 32, seed=seed)
            generator = torch.Generator().manual_seed(0)
            recipe.module.update(UpdateInput(trained, optimisers, runs, recipe.config, generator))
    assert counter.peak == pytest.approx(expected, rel=0.15), f"{counter.peak / expected - 1:+.1%}"
