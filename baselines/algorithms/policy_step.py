"""The step all algorithms share: epochs over minibatches of rows, one clipped surrogate per token, optional critic and KL.

An algorithm decides who earned what (`advantages`); this decides how the weights follow.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from baselines.batch import Batch
from baselines.configs import Descent
from baselines.distributed import collectives, fsdp
from baselines.math.estimators import standardise
from baselines.math.losses import aggregate, clipped_surrogate, clipped_value_loss, early_stop_kl, kl_estimate
from baselines.model import Model
from envsuite.errors import EnvsuiteError


class NonFiniteLoss(EnvsuiteError):
    """A loss or a gradient became NaN or infinite: no step was taken with it, and the last checkpoint stands."""


class Optimisers:
    """AdamW for the actor, Adam for the critic, as ADRL and TWOSOME have them (eps 1e-5)."""

    def __init__(self, model: Model, config: Descent) -> None:
        self.config, self.kl_coef = config, config.kl_coef
        self.kl_next = config.kl_coef  # what `kl_target` makes of it for the batch after this one
        self.actor = torch.optim.AdamW(
            model.actor_parameters(), lr=config.learning_rate, eps=1e-5, weight_decay=config.weight_decay
        )
        found = model.critic_parameters()
        self.critic = torch.optim.Adam(found, lr=config.critic_learning_rate, eps=1e-5) if found else None

    def anneal(self, done: float) -> None:
        """Sets the learning rates for the share `done` of the run; past its end they are 0, never below."""
        left = max(0.0, 1.0 - done) if self.config.schedule == "linear" else 1.0
        self.actor.param_groups[0]["lr"] = self.config.learning_rate * left
        if self.critic is not None:
            self.critic.param_groups[0]["lr"] = self.config.critic_learning_rate * left

    def state(self) -> dict[str, Any]:
        """For a checkpoint. All processes must ask; the first gets it."""
        critic = fsdp.whole_moments(self.critic.state_dict()) if self.critic else None
        return {"actor": fsdp.whole_moments(self.actor.state_dict()), "critic": critic, "kl_coef": self.kl_coef}

    def load_state(self, state: dict[str, Any]) -> None:
        self.actor.load_state_dict(fsdp.cut_moments(state["actor"], self.actor))
        if self.critic is not None:
            self.critic.load_state_dict(fsdp.cut_moments(state["critic"], self.critic))
        self.kl_coef = self.kl_next = state["kl_coef"]


def descend(
    model: Model,
    optimisers: Optimisers,
    batch: Batch,
    advantages: Tensor,
    config: Descent,
    generator: torch.Generator,
    returns: Tensor | None = None,
    old_values: Tensor | None = None,
    reference: Tensor | None = None,
    temperature: float = 1.0,
    train_actor: bool = True,
) -> dict[str, float]:
    """Learns from one batch of episodes; `advantages`, `returns`, `old_values`, `reference` are [N], per sampled token.

    Returns what is worth logging. Raises NonFiniteLoss before a bad step is taken.
    """
    if config.normalise == "batch":
        advantages = standardise(advantages, torch.ones_like(advantages, dtype=torch.bool), config.deviation)
    columns = {"advantage": batch.spread(advantages)}
    for name, column in (("return", returns), ("old_value", old_values), ("reference", reference)):
        if column is not None:
            columns[name] = batch.spread(column)
    log: dict[str, list[float]] = defaultdict(list)
    count = len(batch.ids)
    for _ in range(config.epochs):
        order = torch.randperm(count, generator=generator)
        for chosen in order.chunk(max(1, min(config.minibatches, count))):
            _minibatch(model, optimisers, batch, columns, chosen, config, temperature, train_actor, log)
    if config.kl_coef:
        log["kl_coef"] = [optimisers.kl_coef]
        optimisers.kl_coef = optimisers.kl_next
    return {name: sum(found) / len(found) for name, found in log.items()}


def _minibatch(
    model: Model,
    optimisers: Optimisers,
    batch: Batch,
    columns: dict[str, Tensor],
    chosen: Tensor,
    config: Descent,
    temperature: float,
    train_actor: bool,
    log: dict[str, list[float]],
) -> None:
    """One step of the critic, then one of the actor, gradients accumulated over micro-batches to the very same sum."""
    advantage = columns["advantage"]
    if config.normalise == "minibatch":
        mask = torch.zeros_like(batch.sampled)
        mask[chosen] = batch.sampled[chosen]
        advantage = standardise(advantage, mask, config.deviation)
    parts = chosen.split(config.micro_rows or -(-len(chosen) // collectives.size()))
    mine = collectives.rounds(list(zip(parts, _shares(batch, parts, config), strict=True)), model.cut)
    if optimisers.critic is not None and "return" in columns:
        optimisers.critic.zero_grad(set_to_none=True)
        total = 0.0
        for (part, _), real in mine:
            ids, valid, mask = _cut(batch, part)
            width = ids.shape[1]
            values = model.values(ids, valid, mask)
            clip = config.value_clip or None
            old, target = columns["old_value"][part, :width], columns["return"][part, :width]
            per = 0.5 * clipped_value_loss(values, old, target, clip)
            # Every token counts the same in the critic, whatever the actor's aggregation.
            loss = real * config.value_coef * aggregate(per, mask) * mask.sum() / batch.sampled[chosen].sum()
            loss.backward()
            total += loss.item()
        total = collectives.add(torch.tensor(total, dtype=torch.float64)).item()
        finite(total, "value loss")
        collectives.add_gradients(model.critic_parameters())
        norm = collectives.clip_gradients(model.critic_parameters(), config.max_grad_norm)
        finite(norm, "norm of the critic's gradient")
        optimisers.critic.step()
        log["value_loss"].append(total)
        log["critic_grad_norm"].append(norm)
    if not train_actor:
        return
    optimisers.actor.zero_grad(set_to_none=True)
    sums: dict[str, float] = defaultdict(float)
    for (part, share), real in mine:
        ids, valid, mask = _cut(batch, part)
        width = ids.shape[1]
        new, spread = model.logprobs(ids, valid, temperature, mask)
        old = batch.logprobs[part, :width]
        per, active = clipped_surrogate(
            new, old, advantage[part, :width], config.clip_low, config.clip_high, config.dual_clip or None
        )
        if config.kl_coef and config.kl_in == "loss":
            per = per + optimisers.kl_coef * kl_estimate(new, columns["reference"][part, :width], config.kl_kind)
        per = per - config.entropy_coef * spread
        loss = real * aggregate(per, mask, config.aggregation, config.constant or None) * share
        loss.backward()
        sums["policy_loss"] += loss.item()
        weight = real * (mask.sum() / batch.sampled[chosen].sum()).item()
        with torch.no_grad():
            sums["entropy"] += aggregate(spread, mask).item() * weight
            sums["kl"] += aggregate(early_stop_kl(new, old), mask).item() * weight
            sums["clip_share"] += aggregate(active.float(), mask).item() * weight
    collectives.add_numbers(sums, ("policy_loss", "entropy", "kl", "clip_share"))
    finite(sums["policy_loss"], "policy loss")
    for name, value in sums.items():
        log[name].append(value)
    if config.target_kl and sums["kl"] > config.target_kl:
        log["skipped"].append(1.0)
        return
    log["skipped"].append(0.0)
    collectives.add_gradients(model.actor_parameters())
    norm = collectives.clip_gradients(model.actor_parameters(), config.max_grad_norm)
    finite(norm, "norm of the policy's gradient")
    optimisers.actor.step()
    log["grad_norm"].append(norm)


def _shares(batch: Batch, parts: tuple[Tensor, ...], config: Descent) -> list[float]:
    """What each micro-batch weighs, so that their sum is the whole minibatch's aggregate and not a mean of means."""
    tokens = [int(batch.sampled[part].sum()) for part in parts]
    rows = [int((batch.sampled[part].sum(1) > 0).sum()) for part in parts]
    weights = tokens if config.aggregation == "token-mean" else rows
    return [weight / max(1, sum(weights)) for weight in weights]


def _cut(batch: Batch, part: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The chosen rows without the columns in which all of them are padding."""
    width = int(batch.valid[part].sum(1).max())
    return batch.ids[part, :width], batch.valid[part, :width], batch.sampled[part, :width]


def finite(value: float, what: str) -> None:
    """Raises NonFiniteLoss before a step is taken with a loss or a gradient that is NaN or infinite."""
    if not math.isfinite(value):
        raise NonFiniteLoss(f"The {what} is {value}: lower the learning rate, or clip the gradient harder.")
