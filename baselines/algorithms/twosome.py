"""TWOSOME: PPO over admissible commands, whose probability is their normalised likelihood (Tan et al., ICLR 2024).

    log pi(a_k | o) = s_k - logsumexp(s),   s_k = log-likelihood of the command's tokens / its words (or tokens, or 1)
    one ratio per command, from that distribution; turn-level GAE; the critic reads the last token of the prompt

Gradients flow through all admissible commands, so that each turn's commands are scored again at every step. GLAM is the
same with `normalisation = "sum"`. Needs `acting.choose = "admissible"`.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import torch

from baselines.algorithms import ppo
from baselines.algorithms.policy_step import Optimisers, descend, finite
from baselines.algorithms.ppo import boot_values, in_parts
from baselines.batch import collate
from baselines.configs import TWOSOME as Config
from baselines.distributed import collectives
from baselines.math.estimators import members, standardise
from baselines.math.losses import clipped_surrogate, early_stop_kl
from baselines.model import Model
from envsuite.errors import UsageError
from harness.lm.likelihood import choice, token_logprobs, word_count
from harness.types import Trajectory, Turn

NEEDS_CRITIC = True


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
    """Critic first, then the policy over minibatches of turns, as the reference has it."""
    turns = [turn for run in trajectories for turn in run.turns if turn.reply.ids]
    if any("candidates" not in turn.reply.extra for turn in turns):
        raise UsageError("twosome chooses among admissible commands: set acting.choose = 'admissible'.")
    # One token per turn: the value before a command's first token is the value of the observation.
    batch = collate([_first_tokens(run) for run in trajectories], whole=False)
    with torch.no_grad():
        values = batch.flat(in_parts(model.values, batch, config.micro_rows))
        boots = boot_values(model, trajectories, final_prompts) if config.bootstrap else [0.0] * len(trajectories)
    advantage, returns = ppo.advantages(batch, trajectories, values, boots, torch.zeros_like(values), config)
    critic_only = replace(config, epochs=1, normalise="none")
    log = descend(
        model, optimisers, batch, advantage, critic_only, generator, returns, values, train_actor=False
    )  # fmt: skip
    if step >= config.critic_warmup:
        log.update(_policy_steps(model, optimisers, turns, advantage, config, generator, temperature))
    spread = returns.var(unbiased=False)
    log["explained_variance"] = (1 - (returns - values).var(unbiased=False) / spread).item() if spread > 1e-12 else 0.0
    return log


def _first_tokens(run: Trajectory) -> Trajectory:
    short = copy.copy(run)
    short.turns = []
    for turn in run.turns:
        reply = copy.copy(turn.reply)
        reply.ids, reply.logprobs = list(reply.ids)[:1], list(reply.logprobs)[:1]
        short.turns.append(replace(turn, reply=reply))
    return short


def _policy_steps(
    model: Model,
    optimisers: Optimisers,
    turns: Sequence[Turn],
    advantage: torch.Tensor,
    config: Config,
    generator: torch.Generator,
    temperature: float,
) -> dict[str, float]:
    log: dict[str, list[float]] = defaultdict(list)
    if config.normalise == "batch":
        advantage = standardise(advantage, torch.ones_like(advantage, dtype=torch.bool), config.deviation)
    for _ in range(config.epochs):
        for chosen in torch.randperm(len(turns), generator=generator).chunk(max(1, config.minibatches)):
            scaled = advantage[chosen]
            if config.normalise == "minibatch":
                scaled = standardise(scaled, torch.ones_like(scaled, dtype=torch.bool), config.deviation)
            optimisers.actor.zero_grad(set_to_none=True)
            sums: dict[str, float] = defaultdict(float)
            for places in collectives.share(_alike([turns[place] for place in chosen.tolist()])):
                some = [turns[place] for place in chosen[places].tolist()]
                new, spread = scores(model, some, config.normalisation, temperature)
                old = torch.tensor([turn.reply.extra["logprob"] for turn in some], dtype=new.dtype)
                per, active = clipped_surrogate(
                    new, old, scaled[places].to(new.dtype), config.clip_low, config.clip_high, config.dual_clip or None
                )
                loss = (per - config.entropy_coef * spread).sum() / len(chosen)
                loss.backward()
                sums["policy_loss"] += loss.item()
                sums["entropy"] += spread.item() * len(some) / len(chosen)
                sums["kl"] += early_stop_kl(new.detach(), old).sum().item() / len(chosen)
                sums["clip_share"] += active.sum().item() / len(chosen)
            collectives.add_numbers(sums, ("policy_loss", "entropy", "kl", "clip_share"))
            finite(sums["policy_loss"], "policy loss")
            for name, value in sums.items():
                log[name].append(value)
            stop = config.target_kl and sums["kl"] > config.target_kl
            log["skipped"].append(float(bool(stop)))
            if stop:  # the pending gradient is dropped, and all that would follow (TWOSOME's guard)
                return {name: sum(found) / len(found) for name, found in log.items()}
            collectives.add_gradients(model.actor_parameters())
            norm = collectives.clip_gradients(model.actor_parameters(), config.max_grad_norm)
            finite(norm, "norm of the policy's gradient")
            optimisers.actor.step()
            log["grad_norm"].append(norm)
    return {name: sum(found) / len(found) for name, found in log.items()}


def _alike(turns: Sequence[Turn]) -> list[list[int]]:
    """Turns that chose from the same commands after the same prompt: scored once for all of them."""
    return members([(tuple(turn.reply.extra["prompt"]), tuple(turn.reply.extra["candidates"])) for turn in turns])


def scores(
    model: Model, turns: Sequence[Turn], normalisation: str, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities [n] of what n turns alike chose, and the entropy [] over what they chose from; differentiable."""
    extra = turns[0].reply.extra
    found = extra["candidates"]
    each, _ = token_logprobs(model.lm, extra["prompt"], found)
    sums = torch.stack([one.sum() for one in each])
    words = [word_count(command) for command in turns[0].admissible]
    result = choice(sums, [len(one.ids) for one in found], words, normalisation, temperature or 1.0)
    chosen = torch.tensor([turn.reply.extra["index"] for turn in turns])
    return result.logprobs.cpu()[chosen], result.entropy.cpu()
