"""The critic's step on a minibatch, which precedes the actor's in `policy_step.learn`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from baselines.algorithms.update import UpdateInput
from baselines.batch import Batch, crop
from baselines.math.losses import aggregate, check_finite, clipped_value_loss


class CriticStep:
    """Regresses the critic on value targets, with clipping around its values at the rollout."""

    def __init__(self, inputs: UpdateInput[Any], batch: Batch, returns: Tensor, old_values: Tensor) -> None:
        """`returns` [N] are the targets and `old_values` [N] the critic's values at the rollout."""
        self.inputs, self.batch = inputs, batch
        self.returns, self.old_values = batch.spread(returns), batch.spread(old_values)
        starts = torch.cat([torch.tensor([True]), batch.ends_turn[:-1]])
        self.weights = batch.spread(torch.where(starts, inputs.config.highlight_first, 1.0))

    def __call__(self, rows: Tensor, parts: Sequence[Tensor]) -> dict[str, float]:
        """Takes a step on the minibatch `rows`, divided into `parts`, and returns numbers to log."""
        model, config, critic = self.inputs.model, self.inputs.config, self.inputs.optimisers.critic
        assert critic is not None
        total_tokens = self.batch.sampled[rows].sum()
        critic.zero_grad()
        total = 0.0
        for part, weight in model.processes.rounds(parts, model.sharded):
            ids, valid, sampled, _ = crop(self.batch, part)
            width = sampled.shape[1]
            old_values, returns = self.old_values[part, :width], self.returns[part, :width]
            values = model.values(ids, valid, sampled)
            losses = 0.5 * clipped_value_loss(values, old_values, returns, config.value_clip or None)
            losses = losses * self.weights[part, :width]
            # The mean is over tokens, whatever the weights and the actor's aggregation.
            loss = weight * config.value_coef * aggregate(losses, sampled) * sampled.sum() / total_tokens
            loss.backward()
            total += loss.item()
        total = model.processes.add_number(total)
        check_finite(total, "value loss")
        return {"critic_grad_norm": critic.step(), "value_loss": total}
