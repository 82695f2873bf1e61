"""GiGPO: group-in-group policy optimisation (Feng et al., 2025, arXiv 2505.10978).

    A_{i,t} = A^E_i + omega * A^S_{i,t}
    A^E: an episode's return against its group's;   A^S: return-to-go against all turns of the group that saw the same

An anchor is the observation's exact text. Episode statistics are over episodes, as in the paper;
the published code counts an episode once per turn (`over_rows`). With `kl_in = "reward"` each
turn's reward is reduced by kl_coef times its k1.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from baselines.algorithms.groups import GroupConfig, update_groups
from baselines.algorithms.update import UpdateInput
from baselines.math.estimators import anchor_cells, gigpo, shared_turns
from baselines.ranges import NonNegative, Share
from envsuite.types import Shaping
from harness.types import Trajectory


@dataclass(frozen=True)
class GiGPO(GroupConfig):
    """Group-in-group policy optimisation: episode and step advantages."""

    gamma: Share = 0.95
    """Discount of the return-to-go by which turns are compared."""
    omega: NonNegative = 1.0
    """Weight of the step advantage."""
    std: bool = True
    """Divide by the standard deviation of the group and of the turns with the same anchor."""
    over_rows: bool = False
    """Count an episode once per turn in the episode statistics, as in the published code."""
    kl_coef: NonNegative = 0.01
    whole: bool = False

    def shaping(self) -> Shaping | None:
        """Returns None unless both advantages, of the episode's sum and of the return-to-go, use
        one discount."""
        return Shaping(1.0) if self.gamma == 1 or not self.omega else None


Config = GiGPO


def update(inputs: UpdateInput[Config]) -> dict[str, float]:
    """Trains on one batch of groups. Logs the share of turns whose anchor occurs again in their
    group."""
    config = inputs.config
    shared: list[float] = []

    def advantages(
        trajectories: Sequence[Trajectory], rewards: list[list[float]], groups: list[Hashable]
    ) -> list[list[float]]:
        anchors = [[turn.observation for turn in run.turns] for run in trajectories]
        shared.append(shared_turns(anchor_cells(anchors, groups)))
        return gigpo(rewards, anchors, groups, config.gamma, config.omega, config.std, over_rows=config.over_rows)[2]

    log = update_groups(inputs, advantages)
    log["shared_anchors"] = shared[0]
    return log
