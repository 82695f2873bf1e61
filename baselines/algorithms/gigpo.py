"""GiGPO: group-in-group policy optimisation (Feng et al., 2025, arXiv 2505.10978).

    A_{i,t} = A^E_i + omega * A^S_{i,t}
    A^E: an episode's return against its group's;   A^S: return-to-go against all turns of the group that saw the same

An anchor is the observation's text, exactly. Statistics of episodes are over episodes, as in the paper; the published
code counts an episode once per turn (`over_rows`). With `kl_in = "reward"` a turn is paid less kl_coef times its k1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from baselines.algorithms.grpo import flat_groups, group_of, paid
from baselines.algorithms.policy_step import Optimisers, descend
from baselines.algorithms.ppo import kl_terms
from baselines.batch import collate, turn_values
from baselines.configs import GiGPO as Config
from baselines.math.estimators import gigpo
from baselines.model import Model
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
    """One update from a batch of groups. Logs the share of turns that share their anchor with another."""
    batch = collate(trajectories, config.whole)
    extra, reference = kl_terms(model, optimisers, batch, config, temperature)
    rewards = paid(batch, trajectories, extra)
    anchors = [[turn.observation for turn in run.turns] for run in trajectories]
    groups = [group_of(run, config.group_size) for run in trajectories]
    _, steps, found = gigpo(
        rewards, anchors, groups, config.gamma, config.omega, config.std, over_rows=config.over_rows
    )
    advantage = turn_values(batch, found).float()
    log = descend(model, optimisers, batch, advantage, config, generator, reference=reference, temperature=temperature)
    log["flat_groups"] = flat_groups(trajectories, config.group_size)
    log["shared_anchors"] = sum(value != 0 for row in steps for value in row) / max(1, sum(map(len, steps)))
    return log
