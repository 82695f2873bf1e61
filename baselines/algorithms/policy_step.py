"""The clipped policy step that all token-level algorithms share.

`learn` takes advantages per sampled token and steps the actor over epochs and minibatches of rows,
with a clipped surrogate per token and optional entropy, KL and distillation terms. Micro-batches
accumulate gradients to the sum of the whole minibatch.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from baselines.algorithms.update import UpdateConfig, UpdateInput
from baselines.batch import Batch, crop, split
from baselines.math.advantages import standardise
from baselines.math.losses import (
    aggregate,
    check_finite,
    clipped_surrogate,
    early_stop_kl,
    kl_estimate,
    truncated_importance,
    turn_means,
)

POLICY_NUMBERS = ("policy_loss", "entropy", "kl", "clip_share")

StepBefore = Callable[[Tensor, Sequence[Tensor]], dict[str, float]]
"""A step before the actor's on a minibatch: from its rows, and these in micro-batches, to numbers to log."""


@dataclass
class Targets:
    """Training targets of a batch's N sampled tokens; each tensor is [N]."""

    advantages: Tensor
    reference: Tensor | None = None
    """Log-probs of the reference, for a KL term in the loss."""
    teacher: Tensor | None = None
    """Log-probs of a teacher, for `distillation`."""
    distillation: Callable[[Tensor, Tensor], Tensor] | None = None
    """From the log-probs of the actor and of the teacher to a loss per token [b, l]."""


@dataclass
class _Step:
    """One batch on its way through `learn`, with its targets as [B, L]."""

    inputs: UpdateInput[Any]
    batch: Batch
    targets: Targets
    turns: Tensor
    log: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def config(self) -> UpdateConfig:
        return self.inputs.config


def learn(
    inputs: UpdateInput[Any],
    batch: Batch,
    targets: Targets,
    train_actor: bool = True,
    before: StepBefore | None = None,
) -> dict[str, float]:
    """Trains on one batch and returns numbers to log. Raises NonFiniteLoss before a bad step is
    taken."""
    config = inputs.config
    advantages = targets.advantages
    if config.normalise == "batch":
        advantages = standardise(advantages, torch.ones_like(advantages, dtype=torch.bool), config.deviation)
    reference, teacher = _spread(batch, targets.reference), _spread(batch, targets.teacher)
    spread = Targets(batch.spread(advantages), reference, teacher, targets.distillation)
    step = _Step(inputs, batch, spread, batch.turn_numbers())
    count = len(batch.ids)
    for _ in range(config.epochs):
        order = torch.randperm(count, generator=inputs.generator)[: max(1, round(count * inputs.share))]
        for rows in order.chunk(max(1, min(config.minibatches, len(order)))):
            parts = split(inputs.model, batch, rows, config.micro_rows)
            for name, value in (before(rows, parts) if before else {}).items():
                step.log[name].append(value)
            if train_actor:
                _actor_step(step, rows, parts)
    if config.kl_coef:
        step.log["kl_coef"] = [inputs.optimisers.kl_coef]
        inputs.optimisers.kl_coef = inputs.optimisers.next_kl_coef
    return with_steps(step.log)


def _spread(batch: Batch, x: Tensor | None) -> Tensor | None:
    return None if x is None else batch.spread(x)


def means(log: dict[str, list[float]]) -> dict[str, float]:
    """Returns the mean of each list of numbers."""
    return {name: sum(numbers) / len(numbers) for name, numbers in log.items()}


def with_steps(log: dict[str, list[float]]) -> dict[str, float]:
    """Returns the means, and as `policy_steps` the number of the actor's steps that were taken."""
    return {**means(log), "policy_steps": len(log["skipped"]) - sum(log["skipped"])} if "skipped" in log else means(log)


def _actor_step(step: _Step, rows: Tensor, parts: Sequence[Tensor]) -> None:
    """Takes a step on the minibatch `rows`, divided into `parts`, unless its KL is above `target_kl`."""
    inputs, config, batch, targets, log = step.inputs, step.config, step.batch, step.targets, step.log
    model = inputs.model
    advantages = targets.advantages
    if config.normalise == "minibatch":
        mask = torch.zeros_like(batch.sampled)
        mask[rows] = batch.sampled[rows]
        advantages = standardise(advantages, mask, config.deviation)
    total_tokens = batch.sampled[rows].sum()
    shares = _loss_shares(batch, parts, config)
    inputs.optimisers.actor.zero_grad()
    sums: dict[str, float] = defaultdict(float)
    for (part, share), weight in inputs.model.processes.rounds(
        list(zip(parts, shares, strict=True)), inputs.model.sharded
    ):
        ids, valid, sampled, allowed = crop(batch, part)
        width = ids.shape[1]
        new, entropy = model.logprobs(ids, valid, inputs.temperature, sampled, config.entropy_coef > 0, allowed)
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
            assert targets.reference is not None
            kl = kl_estimate(new, targets.reference[part, :width], config.kl_kind)
            losses = losses + inputs.optimisers.kl_coef * kl
        if targets.distillation is not None and targets.teacher is not None:
            losses = losses + targets.distillation(new, targets.teacher[part, :width])
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
    model.processes.add_numbers(sums, POLICY_NUMBERS)
    check_finite(sums["policy_loss"], "policy loss")
    for name, value in sums.items():
        log[name].append(value)
    skipped = bool(config.target_kl and sums["kl"] > config.target_kl)
    log["skipped"].append(float(skipped))
    if not skipped:
        norm = inputs.optimisers.actor.step()
        if not math.isnan(norm):  # Tinker may not report it
            log["grad_norm"].append(norm)


def _loss_shares(batch: Batch, parts: Sequence[Tensor], config: UpdateConfig) -> list[float]:
    """The weight of each micro-batch, such that their sum is the minibatch's aggregate and not a
    mean of means."""
    tokens = [int(batch.sampled[part].sum()) for part in parts]
    rows = [int((batch.sampled[part].sum(1) > 0).sum()) for part in parts]
    weights = tokens if config.aggregation == "token-mean" else rows
    return [weight / max(1, sum(weights)) for weight in weights]
