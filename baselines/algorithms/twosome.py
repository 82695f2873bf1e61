"""TWOSOME: PPO over admissible commands, whose probability is their normalised likelihood (Tan et
al., ICLR 2024).

    log pi(a_k | o) = s_k - logsumexp(s),   s_k = log-likelihood of the command's tokens / its words (or tokens, or 1)
    one ratio per command, from that distribution; turn-level GAE; the critic reads the last token of the prompt

Gradients flow through all admissible commands, so that each turn's commands are scored again at
every step. GLAM is the same with `normalisation = "sum"`. Needs `acting.choose = "admissible"`.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from baselines.algorithms import actor_critic
from baselines.algorithms.actor_critic import ActorCriticConfig, Rates
from baselines.algorithms.critic_step import CriticStep
from baselines.algorithms.policy_step import POLICY_NUMBERS, Targets, learn, with_steps
from baselines.algorithms.update import UpdateInput
from baselines.batch import collate
from baselines.math.advantages import members, standardise
from baselines.math.losses import check_finite, clipped_surrogate, early_stop_kl
from baselines.networks.model import Model
from baselines.ranges import AdvantageScope, Count, Deviation, NonNegative, Normalisation
from envsuite.errors import UsageError
from harness.lm.likelihood import choice, token_logprobs, word_count
from harness.types import Trajectory, Turn


@dataclass(frozen=True)
class TWOSOME(ActorCriticConfig):
    """PPO over admissible commands."""

    normalisation: Normalisation = "word"
    """Must equal acting.normalisation."""
    entropy_coef: NonNegative = 0.01
    minibatches: Count = 4
    normalise: AdvantageScope = "minibatch"
    deviation: Deviation = "sample"
    whole: bool = False
    target_kl: NonNegative = 0.02

    def rates(self) -> Rates:
        return Rates(1.0, 1.0, self.gamma, self.lam)

    def validate(self, recipe: Any) -> None:
        if self.normalisation != recipe.acting.normalisation:
            raise UsageError(
                f"config.normalisation is {self.normalisation!r} and acting.normalisation "
                f"{recipe.acting.normalisation!r}: "
                "twosome learns the distribution that it draws from; set both alike."
            )
        if recipe.acting.choose != "admissible":
            raise UsageError(
                f"acting.choose cannot be {recipe.acting.choose!r}: twosome chooses among admissible "
                f"commands, 'admissible'."
            )
        for key, value, unused in (
            ("kl_coef", self.kl_coef, 0.0),
            ("aggregation", self.aggregation, "token-mean"),
            ("ratio", self.ratio, "token"),
        ):
            if value != unused:
                raise UsageError(
                    f"config.{key} cannot be {value!r}: twosome learns whole commands and does not use it; "
                    f"leave it at {unused!r}."
                )
        if recipe.fsdp:
            raise UsageError(
                "fsdp = true has all processes take the same passes, and twosome scores as many commands "
                "as a turn has: "
                "leave fsdp out."
            )
        super().validate(recipe)

    def _check_sampling(self, recipe: Any) -> None:
        """Accepts any temperature: the trainer computes the very distribution over commands that
        was drawn from."""


Config = TWOSOME


def update(inputs: UpdateInput[Config]) -> dict[str, float]:
    """Trains the critic, then the policy over minibatches of turns, in the order of the reference
    implementation."""
    config = inputs.config
    turns = [turn for run in inputs.trajectories for turn in run.turns if turn.reply.ids]
    if any("candidates" not in turn.reply.extra for turn in turns):
        raise UsageError("twosome chooses among admissible commands: set acting.choose = 'admissible'.")
    # With one token per turn, the value before a command's first token is the value of the
    # observation.
    first_tokens = [_first_tokens(run) for run in inputs.trajectories]
    inputs = replace(inputs, trajectories=first_tokens)
    batch = collate(first_tokens, whole=False)
    values = actor_critic.critic_values(inputs, batch)
    no_penalty = torch.zeros_like(values)
    advantage, returns = actor_critic.estimate(inputs, batch, values, inputs.model.values, no_penalty, config.rates())
    critic_only = replace(inputs, config=replace(config, epochs=1, normalise="none"))
    critic = CriticStep(critic_only, batch, returns, values)
    log = learn(critic_only, batch, Targets(advantage), train_actor=False, before=critic)
    if inputs.step >= config.critic_warmup:
        log.update(_policy_steps(inputs, turns, advantage))
    log["explained_variance"] = actor_critic.explained_variance(returns, values)
    return log


def _first_tokens(run: Trajectory) -> Trajectory:
    """Returns the episode with only the first token of each reply."""
    short = copy.copy(run)
    short.turns = []
    for turn in run.turns:
        reply = copy.copy(turn.reply)
        reply.ids, reply.logprobs = list(reply.ids)[:1], list(reply.logprobs)[:1]
        short.turns.append(replace(turn, reply=reply))
    return short


def _policy_steps(inputs: UpdateInput[Config], turns: Sequence[Turn], advantage: Tensor) -> dict[str, float]:
    """Steps the actor over epochs and minibatches of turns, until a KL above `target_kl` ends the
    update."""
    config = inputs.config
    log: dict[str, list[float]] = defaultdict(list)
    if config.normalise == "batch":
        advantage = _standardised(advantage, config)
    for _ in range(config.epochs):
        for rows in torch.randperm(len(turns), generator=inputs.generator).chunk(max(1, config.minibatches)):
            scaled = _standardised(advantage[rows], config) if config.normalise == "minibatch" else advantage[rows]
            sums = _backward(inputs, [turns[row] for row in rows.tolist()], scaled)
            check_finite(sums["policy_loss"], "policy loss")
            for name, value in sums.items():
                log[name].append(value)
            skipped = bool(config.target_kl and sums["kl"] > config.target_kl)
            log["skipped"].append(float(skipped))
            if skipped:  # TWOSOME drops the pending gradient and all further steps of the update
                return with_steps(log)
            log["grad_norm"].append(inputs.optimisers.actor.step())
    return with_steps(log)


def _standardised(advantage: Tensor, config: Config) -> Tensor:
    return standardise(advantage, torch.ones_like(advantage, dtype=torch.bool), config.deviation)


def _backward(inputs: UpdateInput[Config], turns: Sequence[Turn], advantage: Tensor) -> dict[str, float]:
    """Accumulates the gradient of one minibatch of turns with their advantages [n], and returns
    numbers to log."""
    config, count = inputs.config, len(turns)
    inputs.optimisers.actor.zero_grad()
    sums: dict[str, float] = defaultdict(float)
    for indices in inputs.model.processes.share(_equal_choices(turns)):
        equal = [turns[index] for index in indices]
        new, entropy = scores(inputs.model, equal, config.normalisation, inputs.temperature)
        old = torch.tensor([turn.reply.extra["logprob"] for turn in equal], dtype=new.dtype)
        losses, clipped = clipped_surrogate(
            new, old, advantage[indices].to(new.dtype), config.clip_low, config.clip_high, config.dual_clip or None
        )
        loss = (losses - config.entropy_coef * entropy).sum() / count
        loss.backward()
        sums["policy_loss"] += loss.item()
        sums["entropy"] += entropy.item() * len(equal) / count
        sums["kl"] += early_stop_kl(new.detach(), old).sum().item() / count
        sums["clip_share"] += clipped.sum().item() / count
    inputs.model.processes.add_numbers(sums, POLICY_NUMBERS)
    return sums


def _equal_choices(turns: Sequence[Turn]) -> list[list[int]]:
    """Groups turns with the same prompt and the same commands, which need scoring only once."""
    return members([(tuple(turn.reply.extra["prompt"]), tuple(turn.reply.extra["candidates"])) for turn in turns])


def scores(model: Model, turns: Sequence[Turn], normalisation: str, temperature: float) -> tuple[Tensor, Tensor]:
    """Returns the log-probs [n] of the commands chosen in n turns with equal choices, and the
    entropy [] over these.

    Both are differentiable.
    """
    extra = turns[0].reply.extra
    candidates = extra["candidates"]
    logprobs, _ = token_logprobs(model.lm, extra["prompt"], candidates)
    sums = torch.stack([tokens.sum() for tokens in logprobs])
    words = [word_count(command) for command in turns[0].admissible]
    lengths = [len(candidate.ids) for candidate in candidates]
    distribution = choice(sums, lengths, words, normalisation, temperature or 1.0)
    chosen = torch.tensor([turn.reply.extra["index"] for turn in turns])
    return distribution.logprobs.cpu()[chosen], distribution.entropy.cpu()
