"""Estimates the device memory that a recipe needs, before any weight is loaded.

Weights, masters, gradients and moments are counted exactly on a model without storage ("meta").
Activations, logits and the keys and values of the rollout are computed from shapes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from baselines.networks.lora import ADAPTER
from baselines.networks.model import Model
from baselines.recipe import SHIPPED, Recipe
from baselines.train import CONCURRENT
from envsuite.errors import UsageError
from harness.lm import model_files

PLAYING = "rollout's keys and values"
LEARNING = ("gradients", "activations", "logits")
SNAPSHOT = "copy that plays"
"""With async_level = 1: playing and learning take place at once."""
SHARDED = ("actor's weights", "critic's weights", "target critic", "reference", "master weights", "gradients",
           "optimisers' moments")  # fmt: skip
"""Parts of which each of several processes holds a share with `fsdp`."""


def configuration(name: str) -> Any:
    """Returns the architecture of a model from its folder, or from the files shipped with the
    recipes.

    Raises UsageError if it is in neither.
    """
    from transformers import AutoConfig

    path = model_files.here(model_files.resolve(name))
    if path is not None:
        return AutoConfig.from_pretrained(path, trust_remote_code=False)
    shipped = {file.stem: file for file in SHIPPED.glob("*.json")}
    if name not in shipped:
        remedy = "create it as the recipe's first lines say"
        if not name.startswith("models/"):  # where recipes have their own models; all others are on the hub
            remedy = f"download it (envsuite models get {name}), or {remedy}"
        raise UsageError(
            f"--dry-run cannot estimate the memory of {name!r}, which is not on this machine: {remedy}, or use another "
            f"model, such as --set model.name={min(shipped)}."
        )
    settings = json.loads(shipped[name].read_text())
    return AutoConfig.for_model(settings.pop("model_type"), **settings)


def estimate(recipe: Recipe, dtype: torch.dtype = torch.bfloat16, processes: int = 1) -> dict[str, float]:
    """Returns the bytes of each part of the memory, per process. `model.dtype` "auto" counts as
    `dtype`, as on a GPU."""
    from transformers import AutoModelForCausalLM

    config = configuration(recipe.model.name)
    kind = dtype if recipe.model.dtype == "auto" else getattr(torch, recipe.model.dtype)
    with torch.device("meta"):
        model = Model(AutoModelForCausalLM.from_config(config, dtype=kind), None, recipe.model_config)
    actor, critic = model.actor_parameters(), model.critic_parameters()
    elements = sum(parameter.numel() for parameter in [*actor, *critic])
    weights = _bytes(model.lm.parameters())
    parts = {
        "actor's weights": weights,
        "critic's weights": _bytes(critic),
        "target critic": 4.0 * sum(p.numel() for p in critic) if recipe.config.trains_target_critic else 0.0,
        "reference": 0.0,
        "master weights": 4.0 * sum(p.numel() for p in [*actor, *critic] if p.dtype != torch.float32),
        "gradients": 4.0 * elements,
        "optimisers' moments": 8.0 * elements,
    }
    if recipe.needs_reference:
        parts["reference"] = _bytes(actor) if recipe.model.lora_rank else weights
    if recipe.async_level:
        parts[SNAPSHOT] = _bytes(actor)
    if recipe.fsdp:
        parts = {name: value / processes if name in SHARDED else value for name, value in parts.items()}
    copies = _adapters_copies(model.lm) / config.get_text_config().num_hidden_layers
    return {**parts, **_working_memory(recipe, config.get_text_config(), kind, processes, copies)}


def _adapters_copies(lm: torch.nn.Module) -> float:
    """Returns the bytes per token of copies that peft makes of the inputs of adapted layers.

    Its adapters are float32 also where the layer is not.
    """
    adapted = [module for module in lm.modules() if hasattr(module, "lora_A")]
    weights = [(module.lora_A[ADAPTER].weight, module.base_layer.weight) for module in adapted]  # type: ignore
    return 4.0 * sum(adapter.shape[1] for adapter, layer in weights if adapter.dtype != layer.dtype)


def _bytes(tensors: Iterable[Tensor]) -> float:
    return float(sum(tensor.numel() * tensor.element_size() for tensor in tensors))


def _working_memory(recipe: Recipe, config: Any, kind: torch.dtype, processes: int, copies: float) -> dict[str, float]:
    """Estimates the memory of forward and backward passes and of the rollout. `copies`: of adapters, per layer."""
    width, layers = config.hidden_size, config.num_hidden_layers
    length = recipe.acting.context or config.max_position_embeddings
    rows = _rows_per_pass(recipe, processes)
    head = getattr(config, "head_dim", None) or width // config.num_attention_heads
    itemsize = torch.empty(0, dtype=kind).element_size()
    # What normalisations, projections and the gated feed-forward network of a layer keep for the
    # backward pass.
    layer = (12 * width + 4 * config.intermediate_size) * itemsize + copies
    stored = layers * width * itemsize + layer if recipe.model.gradient_checkpointing else layers * layer
    # Only sampled positions reach the head. Their logits and the gradient of these have the model's
    # type.
    positions = rows * min(length, recipe.acting.max_tokens) if _rows_are_turns(recipe) else rows * length
    concurrent = min(CONCURRENT, -(-recipe.episodes // processes))
    cache = float(concurrent * length * 2 * layers * config.num_key_value_heads * head * itemsize)
    return {
        "activations": float(rows * length * stored),
        "logits": float(positions * config.vocab_size * 2 * itemsize),
        PLAYING: 0.0 if recipe.generation.elsewhere else cache,
    }


def _rows_are_turns(recipe: Recipe) -> bool:
    """Returns True if a row of a batch holds one turn, and not a conversation."""
    return recipe.prompting.history >= 0 or not recipe.config.whole


def _rows_per_pass(recipe: Recipe, processes: int) -> int:
    """Returns the most rows that go through the model in one backward pass.

    Without `micro_rows` these are all turns of a minibatch, if each is a row; where the recipe does not
    limit the turns of an episode, one is counted.
    """
    rows = []
    if recipe.trains_policy:
        turns = recipe.turns or max(recipe.turn_limits, default=recipe.max_turns) or 1
        whole_batch = recipe.episodes * (turns if _rows_are_turns(recipe) else 1)
        per_minibatch = -(-whole_batch // max(1, recipe.config.minibatches))
        rows.append(recipe.config.micro_rows or -(-per_minibatch // processes))
    if recipe.sft.any:
        rows.append(recipe.sft.train.micro_rows or -(-recipe.sft.train.rows // processes))
    return max(rows)


def peak(parts: dict[str, float]) -> float:
    """Returns the most bytes in use at once: playing and learning alternate unless a copy plays."""
    learning, playing = sum(parts[name] for name in LEARNING), parts[PLAYING]
    permanent = sum(value for name, value in parts.items() if name not in (PLAYING, *LEARNING))
    return permanent + (learning + playing if parts.get(SNAPSHOT) else max(learning, playing))


def table(parts: dict[str, float]) -> str:
    """Formats the estimate in lines of megabytes (1e6 bytes)."""
    rows = {**{name: value for name, value in parts.items() if value}, "peak": peak(parts)}
    return "\n".join(f"  {name:28} {value / 1e6:10,.1f} MB" for name, value in rows.items())
