"""The optimiser steps that all token-level algorithms share.

`learn` takes advantages per sampled token and steps critic and actor over epochs and minibatches of
rows, with a clipped surrogate per token and optional entropy and KL terms. Micro-batches accumulate
gradients to the sum of the whole minibatch.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from baselines.algorithms.optimisers import Optimiser
from baselines.algorithms.update import UpdateInput
from baselines.batch import Batch
from baselines.configs import SDAR, UpdateConfig
from baselines.distributed import collectives
from baselines.math.estimators import standardise
from baselines.math.finite import check_finite
from baselines.math.losses import (
    aggregate,
    clipped_surrogate,
    clipped_value_loss,
    distillation_loss,
    early_stop_kl,
    kl_estimate,
    truncated_importance,
    turn_means,
)
from baselines.microbatch import crop, split

POLICY_NUMBERS = ("policy_loss", "entropy", "kl", "clip_share")


@dataclass
class Targets:
    """Training targets of a batch's N sampled tokens; each field is [N]."""

    advantages: Tensor
    reference: Tensor | None = None
    """Log-probs of the reference, for a KL term in the loss."""
    returns: Tensor | None = None
    """Targets of the critic; None trains no critic."""
    old_values: Tensor | None = None
    """The critic's values at the time of the rollout."""
    teacher: Tensor | None = None
    """Log-probs of a teacher, NaN where it is not asked; None without one."""


@dataclass
class _Step:
    """One batch on its way through `learn`, with its targets as [B, L]."""

    inputs: UpdateInput[Any]
    batch: Batch
    advantages: Tensor
    reference: Tensor | None
    returns: Tensor | None
    old_values: Tensor | None
    teacher: Tensor | None
    numbers: Tensor
    turns: Tensor
    value_weights: Tensor | None = None
    log: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def config(self) -> UpdateConfig:
        return self.inputs.config


def learn(inputs: UpdateInput[Any], batch: Batch, targets: Targets, train_actor: bool = True) -> dict[str, float]:
    """Trains on one batch and returns numbers to log. Raises NonFiniteLoss before a bad step is
    taken."""
    config = inputs.config
    advantages = targets.advantages
    if config.normalise == "batch":
        advantages = standardise(advantages, torch.ones_like(advantages, dtype=torch.bool), config.deviation)
    step = _Step(
        inputs,
        batch,
        batch.spread(advantages),
        _spread(batch, targets.reference),
        _spread(batch, targets.returns),
        _spread(batch, targets.old_values),
        _spread(batch, targets.teacher),
        batch.numbers(),
        batch.turn_numbers(),
        _value_weights(batch, config.highlight_first),
    )
    count = len(batch.ids)
    for _ in range(config.epochs):
        order = torch.randperm(count, generator=inputs.generator)[: max(1, round(count * inputs.share))]
        for rows in order.chunk(max(1, min(config.minibatches, len(order)))):
            _minibatch(step, rows, train_actor)
    if config.kl_coef:
        step.log["kl_coef"] = [inputs.optimisers.kl_coef]
        inputs.optimisers.kl_coef = inputs.optimisers.next_kl_coef
    return with_steps(step.log)


def _value_weights(batch: Batch, first: float) -> Tensor | None:
    """Returns the weight of each token's value loss [B, L]: `first` at the first token of a reply, else 1.

    None if all are 1.
    """
    if first == 1.0:
        return None
    starts = torch.cat([torch.tensor([True]), batch.ends_turn[:-1]])
    return batch.spread(torch.where(starts, first, 1.0))


def _spread(batch: Batch, x: Tensor | None) -> Tensor | None:
    return None if x is None else batch.spread(x)


def means(log: dict[str, list[float]]) -> dict[str, float]:
    """Returns the mean of each list of numbers."""
    return {name: sum(numbers) / len(numbers) for name, numbers in log.items()}


def with_steps(log: dict[str, list[float]]) -> dict[str, float]:
    """Returns the means, and as `policy_steps` the number of the actor's steps that were taken."""
    return {**means(log), "policy_steps": len(log["skipped"]) - sum(log["skipped"])} if "skipped" in log else means(log)


def _minibatch(step: _Step, rows: Tensor, train_actor: bool) -> None:
    """Takes one step of the critic, then one of the actor."""
    parts = split(step.batch, rows, step.config.micro_rows)
    critic = step.inputs.optimisers.critic
    if critic is not None and step.returns is not None:
        _critic_step(step, critic, rows, parts)
    if train_actor:
        _actor_step(step, rows, parts)


def _critic_step(step: _Step, critic: Optimiser, rows: Tensor, parts: Sequence[Tensor]) -> None:
    assert step.returns is not None and step.old_values is not None
    config, total_tokens = step.config, step.batch.sampled[rows].sum()
    critic.zero_grad()
    total = 0.0
    for part, weight in collectives.rounds(parts, step.inputs.model.sharded):
        sampled = crop(step.batch, part).sampled
        width = sampled.shape[1]
        values = _values(step, part)
        old_values, returns = step.old_values[part, :width], step.returns[part, :width]
        losses = 0.5 * clipped_value_loss(values, old_values, returns, config.value_clip or None)
        if step.value_weights is not None:
            losses = losses * step.value_weights[part, :width]
        # The mean is over tokens, whatever the weights and the actor's aggregation.
        loss = weight * config.value_coef * aggregate(losses, sampled) * sampled.sum() / total_tokens
        loss.backward()
        total += loss.item()
    total = collectives.add_number(total)
    check_finite(total, "value loss")
    step.log["critic_grad_norm"].append(critic.step())
    step.log["value_loss"].append(total)


def _values(step: _Step, part: Tensor) -> Tensor:
    """The critic's values of some rows, from the batch's cached features if it has them. [b, l]"""
    model = step.inputs.model
    ids, valid, sampled, _ = crop(step.batch, part)
    if step.batch.features is None or model.critic is None:
        return model.values(ids, valid, sampled)
    numbers = step.numbers[part, : ids.shape[1]][sampled]
    values = model.critic.of_features(step.batch.features[numbers].to(model.device)).cpu()
    return torch.zeros(ids.shape).masked_scatter(sampled, values)


def _actor_step(step: _Step, rows: Tensor, parts: Sequence[Tensor]) -> None:
    inputs, config, batch, log = step.inputs, step.config, step.batch, step.log
    advantages = step.advantages
    if config.normalise == "minibatch":
        mask = torch.zeros_like(batch.sampled)
        mask[rows] = batch.sampled[rows]
        advantages = standardise(advantages, mask, config.deviation)
    total_tokens = batch.sampled[rows].sum()
    shares = _loss_shares(batch, parts, config)
    inputs.optimisers.actor.zero_grad()
    sums: dict[str, float] = defaultdict(float)
    for (part, share), weight in collectives.rounds(list(zip(parts, shares, strict=True)), inputs.model.sharded):
        ids, valid, sampled, allowed = crop(batch, part)
        width = ids.shape[1]
        new, entropy = inputs.model.logprobs(ids, valid, inputs.temperature, sampled, config.entropy_coef > 0, allowed)
        old = batch.logprobs[part, :width]
        compared = new
        if config.ratio == "turn":
            compared = old + turn_means(new - old, step.turns[part, :width], sampled)
        losses, clipped = clipped_surrogate(
            compared, old, advantages[part, :width], config.clip_low, config.clip_high, config.dual_clip or None
        )
        if batch.behaviour is not None:  # older weights played: the decoupled objective
            losses = losses * truncated_importance(old, batch.behaviour[part, :width], config.importance_cap)[0]
        if config.kl_coef and config.kl_in == "loss":
            assert step.reference is not None
            kl = kl_estimate(new, step.reference[part, :width], config.kl_kind)
            losses = losses + inputs.optimisers.kl_coef * kl
        if step.teacher is not None:
            losses = losses + _distillation(config, new, step.teacher[part, :width])
        if config.entropy_coef:
            losses = losses - config.entropy_coef * entropy
        loss = weight * aggregate(losses, sampled, config.aggregation, config.constant or None) * share
        loss.backward()
        sums["policy_loss"] += loss.item()
        tokens_share = weight * (sampled.sum() / total_tokens).item()
        with torch.no_grad():
            sums["entropy"] += aggregate(entropy, sampled).item() * tokens_share
            sums["kl"] += aggregate(early_stop_kl(new, old), sampled).item() * tokens_share
            sums["clip_share"] += aggregate(clipped.float(), sampled).item() * tokens_share
    collectives.add_numbers(sums, POLICY_NUMBERS)
    check_finite(sums["policy_loss"], "policy loss")
    for name, value in sums.items():
        log[name].append(value)
    skipped = bool(config.target_kl and sums["kl"] > config.target_kl)
    log["skipped"].append(float(skipped))
    if not skipped:
        norm = inputs.optimisers.actor.step()
        if not math.isnan(norm):  # Tinker may not report it
            log["grad_norm"].append(norm)


def _distillation(config: UpdateConfig, new: Tensor, teacher: Tensor) -> Tensor:
    """Returns the weighted distillation of each token, 0 where the teacher is not asked. [b, l]"""
    assert isinstance(config, SDAR)
    asked = ~teacher.isnan()
    losses = distillation_loss(new, torch.where(asked, teacher, new.detach()), config.distillation, config.gate)
    return config.distil_coef * torch.where(asked, losses, 0.0)


def _loss_shares(batch: Batch, parts: Sequence[Tensor], config: UpdateConfig) -> list[float]:
    """The weight of each micro-batch, such that their sum is the minibatch's aggregate and not a
    mean of means."""
    tokens = [int(batch.sampled[part].sum()) for part in parts]
    rows = [int((batch.sampled[part].sum(1) > 0).sum()) for part in parts]
    weights = tokens if config.aggregation == "token-mean" else rows
    return [weight / max(1, sum(weights)) for weight in weights]
