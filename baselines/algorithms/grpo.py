"""GRPO over whole episodes (Shao et al., 2024; Guo et al., 2025), Dr. GRPO (Liu et al., 2025), and a per-turn variant.

    A_i = (s_i - mean_g) / (std_g + eps)        s_i: the sum of an episode's rewards; g: episodes of one draw of task and seed
    loss = clipped surrogate per token + kl_coef * k3(pi, reference)

`std = false` with aggregation "seq-sum-constant" is Dr. GRPO. `per_turn` compares return-to-go turn by turn. With
`kl_in = "reward"` each turn is paid less kl_coef times its k1 to the first weights, and the loss has no KL term.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from baselines.algorithms.policy_step import Optimisers, descend
from baselines.algorithms.ppo import kl_terms
from baselines.batch import Batch, collate, turn_values
from baselines.configs import GRPO as Config
from baselines.math.estimators import group_normalised, members, per_turn
from baselines.model import Model
from harness.types import Trajectory

NEEDS_CRITIC = False


def group_of(run: Trajectory, size: int) -> tuple[str, str, int, int]:
    """Episodes of one draw of task, knobs and seed began alike and are compared with each other.

    The loop numbers attempts through, so that a game drawn twice for one update is two groups of `size`.
    """
    episode = run.episode
    return episode.task.id, episode.knobs, episode.seed, episode.attempt // size


def paid(batch: Batch, trajectories: Sequence[Trajectory], extra: Tensor) -> list[list[float]]:
    """The reward of each turn with what its tokens were paid besides, such as a KL penalty `extra` [N]. [E][T_e]"""
    found = [[turn.reward for turn in run.turns] for run in trajectories]
    for e, t, value in zip(batch.episode.tolist(), batch.turn.tolist(), extra.tolist(), strict=True):
        found[e][t] += value
    return found


def advantages(
    trajectories: Sequence[Trajectory], config: Config, rewards: Sequence[Sequence[float]] | None = None
) -> list[list[float]]:
    """One advantage per episode and turn, of what turns were paid (`rewards`, or the environment's). [E][T_e]"""
    groups = [group_of(run, config.group_size) for run in trajectories]
    rewards = rewards or [[turn.reward for turn in run.turns] for run in trajectories]
    if config.per_turn:
        return per_turn(rewards, groups, config.gamma, "grpo_std" if config.std else "grpo_mean")
    scores = torch.tensor([sum(row) for row in rewards], dtype=torch.float64)
    found = group_normalised(scores, groups, config.std).tolist()
    return [[value] * len(run.turns) for value, run in zip(found, trajectories, strict=True)]


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
    """One update from a batch of groups. Logs the share of groups in which all were paid alike: they teach nothing."""
    batch = collate(trajectories, config.whole)
    extra, reference = kl_terms(model, optimisers, batch, config, temperature)
    advantage = turn_values(batch, advantages(trajectories, config, paid(batch, trajectories, extra))).float()
    log = descend(model, optimisers, batch, advantage, config, generator, reference=reference, temperature=temperature)
    log["flat_groups"] = flat_groups(trajectories, config.group_size)
    return log


def flat_groups(trajectories: Sequence[Trajectory], size: int) -> float:
    """Share of groups without any variance in their scores."""
    groups = members([group_of(run, size) for run in trajectories])
    return sum(len({round(trajectories[i].total_reward, 9) for i in group}) == 1 for group in groups) / len(groups)
