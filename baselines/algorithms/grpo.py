"""GRPO over whole episodes (Shao et al., 2024; Guo et al., 2025), Dr. GRPO (Liu et al., 2025), and
a per-turn variant.

    A_i = (s_i - mean_g) / (std_g + eps)
    s_i: sum of an episode's rewards; g: the episodes of one draw of task and seed
    loss = clipped surrogate per token + kl_coef * k3(pi, reference)

`std = false` with aggregation "seq-sum-constant" is Dr. GRPO. `per_turn` compares the return-to-go
turn by turn. With `kl_in = "reward"` each turn's reward is reduced by kl_coef times its k1, and the
loss has no KL term.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch

from baselines.algorithms.groups import GroupConfig, update_groups
from baselines.algorithms.update import UpdateInput
from baselines.math.advantages import group_normalised, per_turn
from baselines.ranges import Aggregation
from envsuite.types import Shaping


@dataclass(frozen=True)
class GRPO(GroupConfig):
    """Advantages relative to the mean of a group, without a critic."""

    std: bool = True
    """Divide by the group's standard deviation; False: Dr. GRPO."""
    per_turn: bool = False
    """Compare the return-to-go turn by turn in place of the episode's sum."""
    aggregation: Aggregation = "seq-mean-token-mean"

    def shaping(self) -> Shaping:
        return Shaping(self.gamma if self.per_turn else 1.0)


Config = GRPO


def update(inputs: UpdateInput[Config]) -> dict[str, float]:
    """Trains on one batch of groups."""
    return update_groups(inputs, lambda _, rewards, groups: advantages(rewards, groups, inputs.config))


def advantages(rewards: Sequence[Sequence[float]], groups: Sequence[Hashable], config: Config) -> list[list[float]]:
    """Returns an advantage per episode and turn. [E][T_e], [E] -> [E][T_e]"""
    if config.per_turn:
        return per_turn(rewards, groups, config.gamma, "grpo_std" if config.std else "grpo_mean")
    scores = torch.tensor([sum(row) for row in rewards], dtype=torch.float64)
    per_episode = group_normalised(scores, groups, config.std).tolist()
    return [[value] * len(row) for value, row in zip(per_episode, rewards, strict=True)]
