"""RLOO: REINFORCE with a leave-one-out baseline (Ahmadian et al., 2024, arXiv 2402.14740), over whole episodes.

    A_i = s_i - mean of the other scores of its group
    s_i = sum of the episode's rewards, less kl_coef times its k1 to the first weights

Groups of one are refused: without another episode there is no baseline.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from baselines.algorithms.grpo import flat_groups, group_of, paid
from baselines.algorithms.policy_step import Optimisers, descend
from baselines.algorithms.ppo import kl_terms
from baselines.batch import collate, turn_values
from baselines.configs import RLOO as Config
from baselines.math.estimators import leave_one_out, members, per_turn
from baselines.model import Model
from envsuite.errors import UsageError
from harness.types import Trajectory

NEEDS_CRITIC = False


def update(
    model: Model,
    optimisers: Optimisers,
    trajectories: Sequence[Trajectory],
    config: Config,
    generator: torch.Generator,
    final_prompts: Sequence[Sequence[int]] = (),
    temperature: float = 1.0,
    step: int = 0,
) -> dict[str, float]:
    """One update from a batch of groups; a group of which faults left one episode is left out."""
    trajectories = pairs(trajectories, config.group_size)
    batch = collate(trajectories, config.whole)
    extra, reference = kl_terms(model, optimisers, batch, config, temperature)
    groups = [group_of(run, config.group_size) for run in trajectories]
    rewards = paid(batch, trajectories, extra)
    if config.per_turn:
        found = per_turn(rewards, groups, config.gamma, "rloo")
    else:
        scores = torch.tensor([sum(row) for row in rewards], dtype=torch.float64)
        found = [[a] * len(row) for a, row in zip(leave_one_out(scores, groups).tolist(), rewards, strict=True)]
    advantage = turn_values(batch, found).float()
    log = descend(model, optimisers, batch, advantage, config, generator, reference=reference, temperature=temperature)
    log["flat_groups"] = flat_groups(trajectories, config.group_size)
    return log


def pairs(trajectories: Sequence[Trajectory], size: int) -> list[Trajectory]:
    """Those whose group has two or more."""
    keep = {i for group in members([group_of(run, size) for run in trajectories]) if len(group) > 1 for i in group}
    found = [run for i, run in enumerate(trajectories) if i in keep]
    if not found:
        raise UsageError("rloo: no group has two episodes; raise group_size, or look why episodes break.")
    return found
