"""LoRA adapters in peft's format: a folder with adapter_config.json and adapter_model.safetensors.

`read` returns an adapter's settings and the name of its base model. `merge` adds the adapter to the
base model's weights, so that a merged model is as fast as its base; `pairs` returns the matrices, for
training that continues an adapter. Only plain LoRA on linear layers is supported; every other setting
is refused, because its result would be another model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envsuite.errors import DataError
from envsuite.reading import read_json

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

_PREFIX = "base_model.model."
_DOWN = ".lora_A.weight"
_PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": (None, "none"),
    "use_dora": (None, False),
    "fan_in_fan_out": (None, False),
    "modules_to_save": (None, []),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "layer_replication": (None, []),
}
"""Values of settings with which an adapter is a plain product of two matrices per layer."""


@dataclass(frozen=True)
class Adapter:
    """Settings of an adapter."""

    folder: Path
    base: str
    """Name of the base model: an alias, org/name or a folder."""
    scaling: float
    """Factor of the product of the two matrices."""
    rank: int
    alpha: float
    targets: tuple[str, ...]
    """Names of the adapted layers, sorted; () if the adapter names them in another way."""


def is_adapter(folder: Path) -> bool:
    """Returns True for a folder that holds an adapter and not a whole model."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()


def read(folder: Path) -> Adapter:
    """Returns an adapter's settings. Raises DataError for a damaged or unsupported adapter."""
    settings = read_json(folder / CONFIG)
    if not isinstance(settings, dict):
        raise DataError(f"{folder / CONFIG} is not an object: peft's save_pretrained writes it.")
    for name, allowed in _PLAIN.items():
        if settings.get(name) not in allowed:
            raise DataError(
                f"The adapter in {folder} has {name} = {settings[name]!r}, which is not supported: "
                "merge it with peft (merge_and_unload) and pass the merged model's folder."
            )
    base, rank, alpha = (settings.get(name) for name in ("base_model_name_or_path", "r", "lora_alpha"))
    if not isinstance(base, str) or not base:
        raise DataError(f"{folder / CONFIG} has no base_model_name_or_path: add the name of the adapter's base model.")
    if not isinstance(rank, int) or rank < 1 or not isinstance(alpha, (int, float)):
        raise DataError(f"{folder / CONFIG} has r = {rank!r} and lora_alpha = {alpha!r}: both must be numbers.")
    if not (folder / WEIGHTS).is_file():
        raise DataError(f"The adapter in {folder} has no {WEIGHTS}.")
    targets = settings.get("target_modules")
    names = tuple(sorted(targets)) if isinstance(targets, list) else ()
    scaling = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
    return Adapter(folder, base, scaling, rank, alpha, names)


def pairs(adapter: Adapter) -> dict[str, tuple[Any, Any]]:
    """Returns lora_A and lora_B of each adapted layer by the layer's name. Raises DataError."""
    from safetensors.torch import load_file

    try:
        tensors = load_file(adapter.folder / WEIGHTS)
    except Exception as error:  # whatever a damaged file raises
        raise DataError(f"{adapter.folder / WEIGHTS} cannot be read: {error}") from error
    downs = {key for key in tensors if key.endswith(_DOWN)}
    ups = {key.replace(".lora_A.", ".lora_B.") for key in downs}
    if not downs or set(tensors) != downs | ups:
        unpaired = sorted(set(tensors) ^ (downs | ups)) or ["no tensors"]
        raise DataError(f"{adapter.folder / WEIGHTS} is not pairs of lora_A and lora_B: see {unpaired[0]}.")
    return {
        key.removeprefix(_PREFIX).removesuffix(_DOWN): (tensors[key], tensors[key.replace(".lora_A.", ".lora_B.")])
        for key in sorted(downs)
    }


def merge(network: Any, adapter: Adapter) -> None:
    """Adds an adapter to the weights of its base model, in place. Raises DataError if they do not fit."""
    import torch

    layers = dict(network.named_modules())
    with torch.no_grad():
        for name, (down, up) in pairs(adapter).items():
            weight = getattr(layers.get(name), "weight", None)
            if weight is None or weight.shape != (up.shape[0], down.shape[1]) or up.shape[1] != down.shape[0]:
                raise misfit(adapter, name)
            delta = (up.float() @ down.float() * adapter.scaling).to(weight.device, weight.dtype)
            weight += delta


def misfit(adapter: Adapter, layer: str) -> DataError:
    """Returns the error for an adapter whose `layer` its base model does not have."""
    return DataError(f"The adapter in {adapter.folder} does not fit {adapter.base}: layer {layer}.")
