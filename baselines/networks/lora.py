"""LoRA adapters: adding a new one to a model, continuing a published one, and merging for a checkpoint."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from baselines.networks.settings import ModelConfig
from envsuite.errors import MissingExtra, UsageError, did_you_mean
from harness.lm import adapters, model_files

ADAPTER = "default"
"""peft's name of a model's only adapter."""


def add_adapter(lm: Any, config: ModelConfig) -> Any:
    """Returns `lm` with a LoRA adapter. Raises UsageError if the model has no linear layer of a
    name in `lora_targets`."""
    try:
        from peft import LoraConfig, get_peft_model
        from peft.tuners.lora.layer import Linear
    except ModuleNotFoundError as error:
        raise MissingExtra("LoRA needs the package 'peft': pip install 'envsuite[train]'") from error
    layers = [name for name, module in lm.named_modules() if isinstance(module, nn.Linear)]
    for target in config.lora_targets:
        if not any(name == target or name.endswith(f".{target}") for name in layers):
            names = sorted({name.rpartition(".")[2] for name in layers})
            raise UsageError(
                f"model.lora_targets: {config.name} has no linear layer {target!r}: it has {', '.join(names)}."
                f"{did_you_mean(target, names)}"
            )
    settings = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        target_modules=list(config.lora_targets),
        task_type="CAUSAL_LM",
    )
    from baselines.networks.fused_lora import FusedLinear

    with warnings.catch_warnings():  # peft reads a property by its former name
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        adapted = get_peft_model(lm, settings)
    for module in adapted.modules():
        if type(module) is Linear:
            module.__class__ = FusedLinear
    return adapted


def continued(config: ModelConfig) -> adapters.Adapter | None:
    """Returns the adapter that LoRA training continues: the one in the folder `config.name`. None for another
    model and for training of all weights. Raises UsageError for settings that are not the adapter's."""
    source = model_files.resolve(config.name)
    if not config.lora_rank or source.kind != "adapter":
        return None
    adapter = adapters.read(Path(source.where))
    if adapter.scaling != adapter.alpha / adapter.rank:
        raise UsageError(
            f"The adapter in {config.name} has use_rslora = true, which training does not continue: set "
            "model.lora_rank = 0 to train all weights of the merged model."
        )
    if not adapter.targets:
        raise UsageError(
            f"The adapter in {config.name} does not list the names of its layers (target_modules), as training "
            "that continues it needs: set model.lora_rank = 0 to train all weights of the merged model."
        )
    settings = {"rank": config.lora_rank, "alpha": config.lora_alpha, "targets": sorted(config.lora_targets)}
    of_adapter = {"rank": adapter.rank, "alpha": adapter.alpha, "targets": list(adapter.targets)}
    for name, value in settings.items():
        own = of_adapter[name]
        if value != own:
            raise UsageError(
                f"model.lora_{name} = {value}, and the adapter in {config.name} has {own}: set model.lora_{name} = "
                f"{own} to train the adapter on, or model.lora_rank = 0 to train all weights of the merged model."
            )
    return adapter


@torch.no_grad()
def fill_adapter(lm: Any, adapter: adapters.Adapter) -> None:
    """Writes the matrices of a published adapter into `lm`'s. Raises DataError if they do not fit."""
    layers = {name: layer for name, layer in lm.get_base_model().named_modules() if hasattr(layer, "get_delta_weight")}
    pairs = adapters.pairs(adapter)
    for name in sorted(layers.keys() | pairs.keys()):
        if name not in layers or name not in pairs:
            raise adapters.misfit(adapter, name)
        for module, tensor in zip((layers[name].lora_A, layers[name].lora_B), pairs[name], strict=True):
            weight = module[ADAPTER].weight
            if weight.shape != tensor.shape:
                raise adapters.misfit(adapter, name)
            weight.copy_(tensor)


@torch.no_grad()
def merged_weight(module: Any) -> Tensor:
    """Returns the weight of an adapted layer with its adapter added, in the layer's own type. [out,
    in]"""
    base = module.base_layer.weight
    return (base + module.get_delta_weight(ADAPTER).to(base.dtype)).to(base.dtype)


@torch.no_grad()
def merged_state(lm: Any) -> dict[str, Tensor]:
    """Returns the base model's state with the adapter merged.

    Only the adapted weights are new tensors, in main memory; the others are the model's own.
    """
    base = lm.get_base_model()
    adapted = {name: module for name, module in base.named_modules() if hasattr(module, "get_delta_weight")}
    state = {}
    for name, tensor in base.state_dict().items():
        if ".lora_" in name:
            continue
        layer = name.removesuffix(".base_layer.weight")
        if layer != name and layer in adapted:
            state[f"{layer}.weight"] = merged_weight(adapted[layer]).cpu()
        else:
            state[name.replace(".base_layer.", ".")] = tensor
    return state
