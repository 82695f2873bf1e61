"""SPA: stepwise progress attribution (Wang et al., 2025, arXiv 2505.20732), which redistributes the
outcome of an episode over its turns.

    c_t = E(everything up to the end of reply t)            contribution of turn t
    estimator:  mean over episodes of (sum_t c_t - R)^2     R: the episode's reward
    r_t = contribution * c_t + grounding * g_t              g_t = 1 if the environment executed turn t
    A_t: return-to-go of r against the group's at the same turn

The estimator E is the model's critic: with `model.critic = "own"` a copy of the actor with a linear
head, which reads the last token of each reply.

In the paper the estimator is trained once, on episodes of the fine-tuned model, and PPO learns from
the redistributed rewards with another critic. Here the estimator keeps learning from the
episodes of every update; `estimator_warmup` updates train it alone. It judges the episodes of an
update before it learns their outcome. The single critic is the estimator, so that turns are compared
within groups in place of PPO's advantages. The published code has a grounding reward of 0.5. A turn
that the harness or the environment refused is not grounded. A KL penalty in the reward is added to
r_t and not redistributed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from baselines.algorithms.groups import GroupConfig, update_groups
from baselines.algorithms.update import UpdateInput
from baselines.batch import Batch, MicroBatch, collate, crop, evaluate, split
from baselines.math.advantages import per_turn
from baselines.math.losses import check_finite
from baselines.ranges import Count, Natural, NonNegative
from harness.types import Trajectory


@dataclass(frozen=True)
class SPA(GroupConfig):
    """Stepwise progress attribution: the outcome is redistributed over turns by an estimator, the
    model's critic."""

    needs_critic: ClassVar[bool] = True
    contribution: NonNegative = 1.0
    """Weight of the estimated contribution in a turn's reward."""
    grounding: NonNegative = 0.5
    """Reward of a turn that the environment executed."""
    estimator_epochs: Count = 1
    """Steps of the estimator per update."""
    estimator_warmup: Natural = 0
    """First updates, in which only the estimator learns."""
    std: bool = True
    """Divide by the standard deviation of the group's returns at the same turn."""


Config = SPA


def update(inputs: UpdateInput[Config]) -> dict[str, float]:
    """Trains the actor on redistributed rewards, and the estimator on the outcomes. Logs the mean
    squared error of the predicted outcomes (`progress_loss`)."""
    config = inputs.config
    logged: dict[str, float] = {}

    def compare(
        trajectories: Sequence[Trajectory], rewards: list[list[float]], groups: list[Hashable]
    ) -> list[list[float]]:
        ends = reply_ends(collate(trajectories, config.whole))
        contributions = evaluate(inputs.model, _values(inputs), ends, config.micro_rows)
        redistributed = redistribute(trajectories, rewards, ends, contributions, config)
        outcomes = torch.tensor([run.total_reward for run in trajectories])
        logged.update(fit(inputs, ends, outcomes))
        return per_turn(redistributed, groups, config.gamma, "grpo_std" if config.std else "grpo_mean")

    log = update_groups(inputs, compare, train_actor=inputs.step >= config.estimator_warmup)
    return {**log, **logged}


def reply_ends(batch: Batch) -> Batch:
    """Returns a batch whose only "sampled" position of a turn is the one after its reply: a critic's
    value there has read the whole reply."""
    where = batch.where[batch.ends_turn] + torch.tensor([0, 1])
    after = torch.zeros(len(batch.ids), batch.ids.shape[1] + 1, dtype=torch.bool)
    after[where[:, 0], where[:, 1]] = True
    return replace(
        batch,
        ids=pad(batch.ids, (0, 1)),
        valid=pad(batch.valid, (0, 1)) | after,
        sampled=after,
        logprobs=pad(batch.logprobs, (0, 1)),
        where=where,
        episode=batch.episode[batch.ends_turn],
        turn=batch.turn[batch.ends_turn],
        ends_turn=batch.ends_turn[batch.ends_turn],
        allowed=None,
        behaviour=None,
    )


def redistribute(
    trajectories: Sequence[Trajectory],
    rewards: Sequence[Sequence[float]],
    ends: Batch,
    contributions: Tensor,
    config: Config,
) -> list[list[float]]:
    """Returns the reward of each turn from the contributions [turns with a reply] of the estimator.
    [E][T_e]

    `rewards` are the turns' own and any KL penalty, which is kept.
    """
    result = []
    for run, row in zip(trajectories, rewards, strict=True):
        pairs = zip(run.turns, row, strict=True)
        result.append([config.grounding * (not turn.fault) + reward - turn.reward for turn, reward in pairs])
    for e, t, value in zip(ends.episode.tolist(), ends.turn.tolist(), contributions.tolist(), strict=True):
        result[e][t] += config.contribution * value
    return result


def fit(inputs: UpdateInput[Config], ends: Batch, outcomes: Tensor) -> dict[str, float]:
    """Trains the estimator so that the contributions of each episode sum to its outcome [E]."""
    model, config, critic = inputs.model, inputs.config, inputs.optimisers.critic
    assert critic is not None
    losses, norm = [], 0.0
    for _ in range(config.estimator_epochs):
        contributions = evaluate(model, _values(inputs), ends, config.micro_rows)
        errors = torch.zeros(len(outcomes)).index_add(0, ends.episode, contributions) - outcomes
        losses.append(errors.square().mean().item())
        check_finite(losses[-1], "progress loss")
        slopes = ends.spread(2 * errors[ends.episode] / len(outcomes))  # derivative of the loss by each contribution
        critic.zero_grad()
        parts = split(model, ends, torch.arange(len(ends.ids)), config.micro_rows)
        for part, weight in model.processes.rounds(parts, model.sharded):
            rows = crop(ends, part)
            slope = slopes[part, : rows.ids.shape[1]]
            (weight * (_values(inputs)(rows) * slope)[rows.sampled].sum()).backward()
        norm = critic.step()
    return {"progress_loss": losses[0], "progress_grad_norm": norm}


def _values(inputs: UpdateInput[Any]) -> Any:
    def values(rows: MicroBatch) -> Tensor:
        return inputs.model.values(rows.ids, rows.valid, rows.sampled)

    return values
