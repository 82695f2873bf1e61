"""RLOO: REINFORCE with a leave-one-out baseline (Ahmadian et al., 2024, arXiv 2402.14740), over
whole episodes.

A_i = s_i - mean of the other scores of its group s_i = sum of the episode's rewards, minus kl_coef
times its k1 to the first weights
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch

from baselines.algorithms.groups import update_groups
from baselines.algorithms.update import UpdateInput
from baselines.configs import RLOO as Config
from baselines.math.estimators import leave_one_out, per_turn


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
