"""What a recipe needs of a device's memory, before any weight is loaded.

Parameters, gradients and the optimisers' moments are counted on a model without storage ("meta"), exactly; activations,
logits and the keys and values of the rollout are reckoned from shapes, to within some tens of per cent. Of several processes
it is what each needs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from baselines.distributed import fsdp
from baselines.model import Model
from baselines.recipe import SHIPPED, Recipe
from baselines.train import CONCURRENT
from envsuite.errors import UsageError
from harness.lm import model_files


def configuration(name: str) -> Any:
    """The architecture of a model: of its folder where it is here, else one that is shipped beside the recipes."""
    from transformers import AutoConfig

    path: Path | None = Path(name) if Path(name).is_dir() else model_files.here(model_files.resolve(name))
    if path is not None:
        return AutoConfig.from_pretrained(path)
    known = {one.stem: one for one in SHIPPED.glob("*.json")}
    if name not in known:
        raise UsageError(
            f"--dry-run cannot tell how large {name!r} is: it is not in the cache. "
            f"Fetch it (envsuite-models get {name}), or name one of {', '.join(sorted(known))}."
        )
    found = json.loads(known[name].read_text())
    return AutoConfig.for_model(found.pop("model_type"), **found)


PLAYING = ("gathered to play", "rollout's keys and values")
LEARNING = ("gathered to learn", "activations", "logits")
LOADING = "before it is cut"
"""what is not there all the time"""


def estimate(recipe: Recipe, dtype: torch.dtype = torch.bfloat16, processes: int = 1) -> dict[str, float]:
    """Bytes by what they are for, in each of so many processes; `recipe.model.dtype` "auto" counts as `dtype`, as on a GPU."""
    from transformers import AutoModelForCausalLM

    config = configuration(recipe.model.name)
    kind = dtype if recipe.model.dtype == "auto" else getattr(torch, recipe.model.dtype)
    with torch.device("meta"):
        lm = AutoModelForCausalLM.from_config(config, dtype=kind)
        model = Model(lm, None, recipe.model)
    size = lambda tensors: float(sum(one.numel() * one.element_size() for one in tensors))
    learning = [*model.actor_parameters(), *model.critic_parameters()]
    critic = [] if model.critic is None else list(model.critic.parameters())
    found = {
        "actor's weights": size(model.lm.parameters()),
        "critic's weights": size(critic),
        "target critic": 0.0,
        "reference": 0.0,
        "gradients": size(learning),
        "optimisers' moments": 2 * size(learning),
    }
    if getattr(recipe.config, "target_tau", 0.0):
        found["target critic"] = size(model.critic_parameters())
    if recipe.algorithm != "sft" and recipe.config.kl_coef:
        found["reference"] = size(model.actor_parameters()) if recipe.model.lora_rank else found["actor's weights"]
    if recipe.fsdp and processes > 1:
        found = _shared_out(found, model, processes, plays=not recipe.generation.base_url)
    return {**found, **_reckoned(recipe, config.get_text_config(), kind, processes)}


def _shared_out(found: dict[str, float], model: Model, processes: int, plays: bool) -> dict[str, float]:
    """A process's share of what stands, and what is gathered for a while."""
    size = lambda module: float(sum(one.numel() * one.element_size() for one in module.parameters()))
    blocks = [size(one) for one in fsdp.layers(model.lm)]
    actor = found["actor's weights"]
    # What lies between the blocks (embeddings, head), one block that computes and the next that is fetched.
    together = actor - sum(blocks) + 2 * max(blocks, default=0.0)
    weights = ("actor's weights", "critic's weights", "target critic", "reference")
    return {
        **{name: value / processes for name, value in found.items()},
        "gathered to play": actor * (1 - 1 / processes) if plays else 0.0,
        "gathered to learn": min(together, actor),
        LOADING: sum(found[name] for name in weights),
    }


def _reckoned(recipe: Recipe, config: Any, kind: torch.dtype, processes: int) -> dict[str, float]:
    width, layers = config.hidden_size, config.num_hidden_layers
    length = recipe.acting.context or config.max_position_embeddings
    share = lambda count: -(-count // processes)
    passes = []
    if recipe.algorithm != "sft":
        passes.append(recipe.config.micro_rows or share(-(-recipe.episodes // max(1, recipe.config.minibatches))))
    if recipe.sft.any:
        passes.append(recipe.sft.train.micro_rows or share(recipe.sft.train.rows))
    rows = max(passes)
    head = getattr(config, "head_dim", None) or width // config.num_attention_heads
    itemsize = torch.empty(0, dtype=kind).element_size()
    # Of a layer: what normalisations, projections and the gated feed-forward network keep for the way back.
    layer = (12 * width + 4 * config.intermediate_size) * itemsize
    kept = layers * width * itemsize + layer if recipe.model.gradient_checkpointing else layers * layer
    # Logits in the model's type, then float32: the copy, log-softmax, its exponential, their gradient.
    # Only columns in which a row of the pass was sampled have logits: of rows that are turns, those of the replies.
    turns = recipe.prompting.history >= 0 or not getattr(recipe.config, "whole", True)
    columns = min(length, rows * recipe.acting.max_tokens) if turns else length
    at_once = min(CONCURRENT, share(recipe.episodes))
    cache = 2 * layers * config.num_key_value_heads * head * itemsize
    return {
        "activations": float(rows * length * kept),
        "logits": float(rows * columns * config.vocab_size * (itemsize + 4 * 4)),
        "rollout's keys and values": 0.0 if recipe.generation.base_url else float(at_once * length * cache),
    }


def peak(parts: dict[str, float]) -> float:
    """Playing and learning take turns, so that the larger of the two counts; and a model is loaded whole before it is cut."""
    playing, learning = (sum(parts.get(name, 0.0) for name in names) for names in (PLAYING, LEARNING))
    standing = sum(value for name, value in parts.items() if name not in (*PLAYING, *LEARNING, LOADING))
    return max(standing + max(learning, playing), parts.get(LOADING, 0.0))


def table(parts: dict[str, float]) -> str:
    """The estimate in lines of megabytes (1e6 bytes)."""
    shown = {**{name: value for name, value in parts.items() if value}, "at the most at once": peak(parts)}
    return "\n".join(f"  {name:28} {value / 1e6:10,.1f} MB" for name, value in shown.items())
