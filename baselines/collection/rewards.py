"""The rewards that an update learns from: the environment's, scaled and reduced by penalties."""

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
    result.turns = [replace(turn, reward=_reward(turn, rewards)) for turn in run.turns]
    return result


def _reward(turn: Turn, rewards: RewardSettings) -> float:
    penalty = 0.0
    if turn.fault == "invalid":
        penalty = rewards.invalid_penalty
    elif turn.fault:  # no command in the reply, or the reply was cut off
        penalty = rewards.format_penalty
    return rewards.scale * turn.reward - penalty
