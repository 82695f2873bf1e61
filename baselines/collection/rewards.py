"""The rewards that an update learns from: the environment's, scaled, reduced by penalties, and gated.

Gated rewards are G-RA (Sun et al., 2025, arXiv 2508.10548): the rewards of single steps count only
if the outcome of the episode reaches a threshold.

    r_t = scale * reward_t - penalty_t            if the episode reached the gate
    r_t = scale * reward_t at the last turn, 0 before    else

The paper's outcomes are levels of a submitted patch. Here the outcome is the episode's progression
(1 for a success), the reward of the last turn is paid always, and penalties are rewards of steps.
"""

from __future__ import annotations

import copy
from dataclasses import replace

from baselines.recipe import RewardSettings
from harness.types import Trajectory, Turn


def adjusted(run: Trajectory, rewards: RewardSettings) -> Trajectory:
    """Returns the episode with adjusted rewards; the episode itself if nothing is to adjust."""
    if rewards == RewardSettings():
        return run
    result = copy.copy(run)
    if run.success or run.progression >= rewards.gate:
        values = [_reward(turn, rewards) for turn in run.turns]
    else:
        values = [0.0] * (len(run.turns) - 1) + [rewards.scale * turn.reward for turn in run.turns[-1:]]
    result.turns = [replace(turn, reward=value) for turn, value in zip(run.turns, values, strict=True)]
    return result


def _reward(turn: Turn, rewards: RewardSettings) -> float:
    penalty = 0.0
    if turn.fault == "invalid":
        penalty = rewards.invalid_penalty
    elif turn.fault:  # no command in the reply, or the reply was cut off
        penalty = rewards.format_penalty
    return rewards.scale * turn.reward - penalty
