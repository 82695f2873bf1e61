"""The update of algorithms that compare episodes of the same game, a group, with each other.

`update_groups` takes a function from rewards and groups to advantages per turn. If all but one
episode of a group broke, the last one is dropped too: it has no baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from baselines.algorithms.policy_step import Targets, learn
from baselines.algorithms.update import UpdateConfig, UpdateInput, kl_penalty, proximal_pass, reference_pass
from baselines.batch import Batch, collate, turn_rewards, turn_values
from baselines.math.advantages import members
from baselines.ranges import AdvantageScope, Count, Natural, NonNegative, Share
from envsuite.errors import UsageError
from harness.types import Trajectory


@dataclass(frozen=True)
class GroupConfig(UpdateConfig):
    """Settings common to algorithms that compare the episodes of one game with each other."""

    group_size: Count = 8
    """Episodes per task and seed."""
    gamma: Share = 1.0
    """Discount of the return-to-go."""
    normalise: AdvantageScope = "none"
    kl_coef: NonNegative = 0.001
    resample: Natural = 0
    """Extra rollouts per update in which groups whose episodes all earned the same are replaced by
    other games (DAPO's dynamic sampling); 0: such groups stay."""

    @property
    def episodes_per_group(self) -> int:
        return self.group_size

    @property
    def resampling_rounds(self) -> int:
        return self.resample

    def validate(self, recipe: Any) -> None:
        super().validate(recipe)
        if recipe.episodes % self.group_size:
            raise UsageError(f"episodes = {recipe.episodes} is not a whole number of groups of {self.group_size}.")
        if self.resample and self.group_size == 1:
            raise UsageError(
                f"config.resample = {self.resample} replaces groups that earned the same, and config.group_size = 1 "
                "compares nothing: set group_size to 2 or more, or leave resample out."
            )
        if recipe.turns:
            raise UsageError(
                f"{recipe.algorithm} compares whole episodes, and turns = {recipe.turns} cuts them: leave turns out."
            )


Advantages = Callable[[Sequence[Trajectory], list[list[float]], list[Hashable]], list[list[float]]]
"""From trajectories, the reward of each of their turns [E][T_e] and their groups [E] to an
advantage per turn [E][T_e]."""


Teacher = Callable[[Batch, Sequence[Trajectory]], tuple[Tensor, Callable[[Tensor, Tensor], Tensor]]]
"""From a batch and its trajectories to `Targets.teacher` and `Targets.distillation`."""


def update_groups(
    inputs: UpdateInput[Any], advantages: Advantages, train_actor: bool = True, teacher: Teacher | None = None
) -> dict[str, float]:
    """Trains the actor on one batch of groups. Logs the share of groups with equal scores, which
    teach nothing but what a teacher says."""
    config = inputs.config
    trajectories = without_lone_survivors(inputs.trajectories, config.group_size)
    batch = collate(trajectories, config.whole)
    weights = proximal_pass(inputs, batch)
    reference = reference_pass(inputs, batch)
    rewards = penalised_rewards(batch, trajectories, kl_penalty(inputs, batch, reference))
    groups: list[Hashable] = [group_of(run, config.group_size) for run in trajectories]
    per_turn = advantages(trajectories, rewards, groups)
    targets = Targets(turn_values(batch, per_turn).float(), reference)
    if teacher is not None:
        targets.teacher, targets.distillation = teacher(batch, trajectories)
    log = learn(inputs, batch, targets, train_actor)
    log["flat_groups"] = flat_groups(trajectories, config.group_size)
    return {**log, **weights}


def group_of(run: Trajectory, size: int) -> tuple[str, str, int, int]:
    """Returns the group of an episode: task, knobs, seed, and the draw of this game.

    The loop numbers attempts consecutively, so that a game drawn twice for one update makes two
    groups of `size`.
    """
    episode = run.episode
    return episode.task.id, episode.knobs, episode.seed, episode.attempt // size


def without_lone_survivors(trajectories: Sequence[Trajectory], size: int) -> list[Trajectory]:
    """Drops groups with one episode, unless `size` is 1. Raises UsageError if nothing remains."""
    groups = members([group_of(run, size) for run in trajectories])
    usable = {index for group in groups if len(group) > 1 or size == 1 for index in group}
    remaining = [run for index, run in enumerate(trajectories) if index in usable]
    if not remaining:
        raise UsageError("no group has two episodes: raise config.group_size, or find out why episodes break.")
    return remaining


def penalised_rewards(batch: Batch, trajectories: Sequence[Trajectory], penalty: Tensor) -> list[list[float]]:
    """Returns the reward of each turn plus the penalty [N] of its tokens. [E][T_e]"""
    rewards = turn_rewards(trajectories)
    for e, t, value in zip(batch.episode.tolist(), batch.turn.tolist(), penalty.tolist(), strict=True):
        rewards[e][t] += value
    return rewards


def flat_groups(trajectories: Sequence[Trajectory], size: int) -> float:
    """Returns the share of groups whose episodes all have the same score."""
    groups = members([group_of(run, size) for run in trajectories])
    flat = [len({round(trajectories[i].total_reward, 9) for i in group}) == 1 for group in groups]
    return sum(flat) / len(flat)
