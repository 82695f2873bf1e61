"""Settings that a run with `backend = "tinker"` may have.

Tinker trains LoRA adapters on its own machines and returns log-probs, so that a recipe may use every loss
that is a function of the log-probs of sampled tokens at temperature 1.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from baselines.networks.settings import ModelConfig
from envsuite.errors import EnvsuiteError, MissingExtra, UsageError

LAYERS = ("attn", "mlp", "unembed")
"""Groups of layers that Tinker can adapt, as names in `model.lora_targets`."""

UNSUPPORTED: dict[str, tuple[Any, str]] = {
    "model.lora_alpha": (ModelConfig.lora_alpha, "the service sets it"),
    "model.device": ("auto", "the service computes"),
    "model.dtype": ("auto", "the service sets it"),
    "model.attention": ("sdpa", "the service sets it"),
    "model.compile": ("", "the service computes"),
    "model.packing": (False, "the service computes"),
    "model.gradient_checkpointing": (False, "the service computes"),
    "acting.choose": ("free", "the service samples text"),
    "acting.temperature": (1.0, "its log-probs are at temperature 1"),
    "config.entropy_coef": (0.0, "it returns no entropies"),
    "config.target_kl": (0.0, "a gradient that was sent cannot be taken back"),
    "generation.base_url": ("", "the service samples"),
    "generation.engine": ("", "the service samples"),
    "async_level": (0, "rollout and update take turns"),
    "fsdp": (False, "the service shards"),
    "sft.episodes": (0, "it learns from episodes alone"),
    "sft.file": ("", "it learns from episodes alone"),
}
"""Settings with only one supported value, and the reason."""

KEYS = ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD")
"""Environment variables that the package reads; without them, a key that `tinker auth login` stored."""

NO_KEY = "backend = 'tinker' needs a key: set TINKER_API_KEY, or run tinker auth login"


def missing_access() -> list[EnvsuiteError]:
    """Returns an error for the package and for the key, if this machine lacks them. Imports neither."""
    errors: list[EnvsuiteError] = []
    if find_spec("tinker") is None:
        errors.append(MissingExtra("backend = 'tinker' needs the package 'tinker': pip install 'envsuite[tinker]'"))
    if not any(map(os.environ.get, KEYS)) and not Path("~/.tinker/credentials.json").expanduser().exists():
        errors.append(UsageError(f"{NO_KEY}."))
    return errors


def check_access() -> None:
    """Raises MissingExtra without the package `tinker`, UsageError without a key."""
    for error in missing_access():
        raise error


def validate(recipe: Any) -> None:
    """Raises UsageError for settings that Tinker's API cannot express."""
    if recipe.config.needs_critic or not recipe.trains_policy:
        what = "needs a critic" if recipe.config.needs_critic else "plays no games"
        raise UsageError(
            f"backend = 'tinker' trains a policy by the log-probs of its tokens, and {recipe.algorithm} {what}: use "
            "grpo, rloo, gigpo, hgpo, graphgpo, gagpo or sdar."
        )
    for key, (only, why) in UNSUPPORTED.items():
        value = recipe
        for name in key.split("."):
            value = getattr(value, name)
        if value != only:
            raise UsageError(
                f"{key} = {value!r} cannot be combined with backend = 'tinker' ({why}): leave it at {only!r}."
            )
    if not recipe.model.lora_rank:
        raise UsageError("backend = 'tinker' trains LoRA adapters, and model.lora_rank is 0: set it (32).")
    if not set(recipe.model.lora_targets) <= set(LAYERS):
        raise UsageError(
            f"model.lora_targets cannot be {list(recipe.model.lora_targets)} with backend = 'tinker', which adapts "
            f"groups of layers: set it to {list(LAYERS)} or to some of them."
        )
