"""GAGPO: generalised advantage grouped policy optimisation (Zhu et al., 2026, arXiv 2605.13217).

    V(s) = mean return-to-go of all turns of the group that saw s
    delta_t = r_t + gamma * V(s_{t+1}) - V(s_t),    V = 0 after the last turn
    A_t = delta_t + gamma * lam * A_{t+1}
    normalised over all turns of the group: (A_t - mean) / (std + eps)

A value without a critic, and with it advantages that pass the outcome back turn by turn. A state is
the observation's exact text. The ratio of a reply is the geometric mean of its tokens' ratios
(`config.ratio = "turn"`), and every token of the reply has its advantage.

Left open by what we could read of the paper, and chosen here: `gamma` and `lam` are 0.95, an episode
that a limit cuts ends with V = 0 like any other, the deviation is the sample's, and the mean is
subtracted (`std = false` does that alone).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from baselines.algorithms.groups import GroupConfig, update_groups
from baselines.algorithms.update import UpdateInput
from baselines.math.advantages import group_normalised, returns_to_go
from baselines.math.estimators import anchor_cells, cell_means, shared_turns
from baselines.ranges import NonNegative, Share
from envsuite.types import Shaping
from harness.types import Trajectory


@dataclass(frozen=True)
class GAGPO(GroupConfig):
    """Generalised advantages from values that are means over a group's turns with the same state."""

    gamma: Share = 0.95
    """Discount of the values and of the advantages."""
    lam: Share = 0.95
    """Decay of the trace of the advantages."""
    std: bool = True
    """Divide by the standard deviation of all turns of the group."""
    ratio: Literal["token", "turn"] = "turn"
    kl_coef: NonNegative = 0.01
    whole: bool = False

    def shaping(self) -> Shaping:
        return Shaping(self.gamma)


Config = GAGPO


def update(inputs: UpdateInput[Config]) -> dict[str, float]:
    """Trains on one batch of groups. Logs the share of turns whose state occurs again in their
    group: the value of any other state is its own return."""
    config = inputs.config
    shared: list[float] = []

    def compare(
        trajectories: Sequence[Trajectory], rewards: list[list[float]], groups: list[Hashable]
    ) -> list[list[float]]:
        states = [[turn.observation for turn in run.turns] for run in trajectories]
        shared.append(shared_turns(anchor_cells(states, groups)))
        return advantages(rewards, states, groups, config)

    log = update_groups(inputs, compare)
    log["shared_anchors"] = shared[0]
    return log


def advantages(
    rewards: Sequence[Sequence[float]],
    states: Sequence[Sequence[Hashable]],
    groups: Sequence[Hashable],
    config: Config,
) -> list[list[float]]:
    """Returns an advantage per episode and turn. [E][T_e], [E][T_e], [E] -> [E][T_e]"""
    returns = [returns_to_go(row, config.gamma) for row in rewards]
    values = cell_means(returns, anchor_cells(states, groups))
    temporal = []
    for row, value in zip(rewards, values, strict=True):
        following = [*value[1:], 0.0]
        deltas = [r + config.gamma * after - v for r, v, after in zip(row, value, following, strict=True)]
        temporal.append(returns_to_go(deltas, config.gamma * config.lam))
    flat = torch.tensor([x for row in temporal for x in row], dtype=torch.float64)
    owners = [group for group, row in zip(groups, temporal, strict=True) for _ in row]
    normalised = iter(group_normalised(flat, owners, config.std).tolist())
    return [[next(normalised) for _ in row] for row in temporal]
