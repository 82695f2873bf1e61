"""RLOO: REINFORCE with a leave-one-out baseline (Ahmadian et al., 2024, arXiv 2402.14740), over
whole episodes.

A_i = s_i - mean of the other scores of its group s_i = sum of the episode's rewards, minus kl_coef
times its k1 to the first weights
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch

from baselines.algorithms.groups import GroupConfig, update_groups
from baselines.algorithms.update import UpdateInput
from baselines.math.advantages import leave_one_out, per_turn
from baselines.ranges import Range
from envsuite.errors import UsageError
from envsuite.types import Shaping


@dataclass(frozen=True)
class RLOO(GroupConfig):
    """REINFORCE with a leave-one-out baseline."""

    group_size: Annotated[int, Range(2)] = 8
    """Episodes per task and seed; at least 2."""
    per_turn: bool = False
    """Compare the return-to-go turn by turn in place of the episode's sum."""
    kl_in: Literal["loss", "reward"] = "reward"

    def shaping(self) -> Shaping:
        return Shaping(self.gamma if self.per_turn else 1.0)

    def __post_init__(self) -> None:
        if self.group_size < 2:
            raise UsageError(
                f"rloo: group_size must be at least 2, not {self.group_size}: one episode has no baseline."
            )


Config = RLOO


def update(inputs: UpdateInput[Config]) -> dict[str, float]:
    """Trains on one batch of groups."""
    return update_groups(inputs, lambda _, rewards, groups: advantages(rewards, groups, inputs.config))


def advantages(rewards: Sequence[Sequence[float]], groups: Sequence[Hashable], config: Config) -> list[list[float]]:
    """Returns an advantage per episode and turn. [E][T_e], [E] -> [E][T_e]"""
    if config.per_turn:
        return per_turn(rewards, groups, config.gamma, "rloo")
    scores = torch.tensor([sum(row) for row in rewards], dtype=torch.float64)
    per_episode = leave_one_out(scores, groups).tolist()
    return [[value] * len(row) for value, row in zip(per_episode, rewards, strict=True)]
