"""The input of every algorithm's `update`, and the decoupled objective.

Episodes that older weights played (`async_level = 1`) are learned from with the decoupled objective,
in which three policies take part: the behaviour policy sampled the tokens, the proximal policy has
the weights before the update, and pi is the policy that is trained. Per token, with advantage A:

    loss = w * max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high))
    r = pi / proximal,    w = min(proximal / behaviour, importance_cap)

The clipping keeps pi near the proximal policy, however old the behaviour policy is, and the weight
w, a constant, corrects for who sampled. KL and entropy terms and the KL that `target_kl` limits
refer to the proximal policy and have no weight. Advantages are not corrected.

Sources: Hilton, Cobbe and Schulman, "Batch size-invariance for policy optimization" (2021,
arXiv 2110.00641), for the objective; Fu et al., "AReaL" (2025, arXiv 2505.24298), for its use with
language models that play while they learn (their code drops tokens above the cap); Ionides,
"Truncated importance sampling" (2008), for the truncation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from baselines.algorithms.optimisers import Optimisers
from baselines.batch import Batch
from baselines.configs import UpdateConfig
from baselines.math.losses import early_stop_kl, truncated_importance
from baselines.microbatch import MicroBatch, evaluate
from baselines.networks.model import Model
from harness.types import Trajectory

Config = TypeVar("Config", bound=UpdateConfig)


@dataclass(frozen=True)
class UpdateInput(Generic[Config]):
    """One batch of episodes, the model that learns from it, and the settings."""

    model: Model
    optimisers: Optimisers
    trajectories: Sequence[Trajectory]
    config: Config
    generator: torch.Generator
    """Draws the order of rows."""
    final_prompts: Sequence[Sequence[int]] = ()
    """For each trajectory the tokens of the prompt that would follow; [] if the episode ended by
    itself."""
    temperature: float = 1.0
    """Sampling temperature of the rollout."""
    step: int = 0
    """Updates before this one."""
    share: float = 1.0
    """Share of the rows that each epoch draws."""
    decoupled: bool = False
    """True if older weights may have played the episodes, and the objective is the decoupled one."""


@torch.no_grad()
def proximal_pass(inputs: UpdateInput[Any], batch: Batch) -> dict[str, float]:
    """Stores in `batch` the log-probs of both the proximal and the behaviour policy, and returns
    numbers to log; does nothing and returns {} unless the update is decoupled."""
    if not inputs.decoupled:
        return {}
    model, config, temperature = inputs.model, inputs.config, inputs.temperature

    def present(rows: MicroBatch) -> Tensor:
        return model.logprobs(rows.ids, rows.valid, temperature, rows.sampled, False, rows.allowed)[0]

    proximal = evaluate(present, batch, config.micro_rows, model.sharded)
    behaviour = batch.flat(batch.logprobs)
    batch.behaviour, batch.logprobs = batch.logprobs, batch.spread(proximal)
    weight, truncated = truncated_importance(proximal, behaviour, config.importance_cap)
    return {
        "importance": weight.mean().item(),
        "truncated": truncated.float().mean().item(),
        "behaviour_kl": early_stop_kl(proximal, behaviour).mean().item(),
    }
