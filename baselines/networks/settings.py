"""Settings of the model to train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from baselines.ranges import Count, Natural


@dataclass(frozen=True)
class ModelConfig:
    """The model to train, and which of its weights are trained."""

    name: str
    """Alias, path or org/name."""
    device: str = "auto"
    dtype: str = "auto"
    """Type of the forward passes. Trained weights have float32 master copies and moments in any
    case."""
    attention: Literal["sdpa", "eager", "flash_attention_2", "flash_attention_3"] = "sdpa"
    """Attention kernel; the FlashAttention kernels need the package flash-attn and a GPU."""
    compile: Literal["", "inductor", "aot_eager"] = ""
    """torch.compile's backend for the blocks of actor and critic in an update; "": not compiled. aot_eager
    computes with the ordinary kernels and only tests the capture."""
    packing: bool = False
    """Rows of a micro-batch share rows of the forward pass, without padding between them. Refused for
    models without full attention in every layer."""
    lora_rank: Natural = 0
    """0 trains every weight; POAD and TWOSOME use 8."""
    lora_alpha: Count = 16
    lora_targets: tuple[str, ...] = ("q_proj", "v_proj")
    critic: Literal["none", "head", "own"] = "own"
    """head: an MLP on the features of the frozen reference; own: a trained copy of the model with a
    linear head. Algorithms without a critic build none."""
    critic_hidden: tuple[Count, ...] = (1024, 512)
    """Hidden sizes of the MLP (TWOSOME, ADRL); () gives a linear head."""
    gradient_checkpointing: bool = False
    """Recomputes the activations of actor and critic in the backward pass."""
    seed: Natural = 0
