"""GiGPO: group-in-group policy optimisation (Feng et al., 2025, arXiv 2505.10978).

    A_{i,t} = A^E_i + omega * A^S_{i,t}
    A^E: an episode's return against its group's;   A^S: return-to-go against all turns of the group that saw the same

An anchor is the observation's exact text. Episode statistics are over episodes, as in the paper;
the published code counts an episode once per turn (`over_rows`). With `kl_in = "reward"` each
turn's reward is reduced by kl_coef times its k1.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from baselines.algorithms.groups import update_groups
from baselines.algorithms.update import UpdateInput
from baselines.configs import GiGPO as Config
from baselines.math.estimators import anchor_cells, gigpo, shared_turns
from harness.types import Trajectory


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
