"""The update of PPO and its variants, which differ in the four rates of `estimators.gae`.

* Token level: every token is a step, and the reward of a turn is paid on its last token.
* Turn level: a turn is a step, and the advantage at its first token holds for all its tokens.

At level "turn", gamma_token = lambda_token = 1 makes the first token's advantage the turn-level one
exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from baselines.algorithms import kl
from baselines.algorithms.policy_step import Targets, learn
from baselines.algorithms.update import UpdateInput, proximal_pass
from baselines.batch import Batch, collate, episode_rows, token_rewards, turn_rewards, turn_values
from baselines.configs import PPO, Rates
from baselines.math.estimators import gae
from baselines.microbatch import evaluate
from harness.types import Trajectory

Values = Callable[[Tensor, Tensor, Tensor], Tensor]
"""`Model.values` or `Model.target_values`."""


def update(inputs: UpdateInput[PPO]) -> dict[str, float]:
    """Trains critic and actor on one batch of episodes."""
    model, config, trajectories = inputs.model, inputs.config, inputs.trajectories
    batch = collate(trajectories, config.whole)
    weights = proximal_pass(inputs, batch)
    reference = kl.reference_pass(inputs, batch)
    penalty = kl.penalty(inputs, batch, reference)
    values = critic_values(inputs, batch)
    advantages, returns = estimate(inputs, batch, values, model.values, penalty, config.rates())
    if config.trains_target_critic:
        target_values = evaluate(
            lambda rows: model.target_values(rows.ids, rows.valid, rows.sampled),
            batch,
            config.micro_rows,
            model.sharded,
        )
        _, returns = estimate(inputs, batch, target_values, model.target_values, penalty, config.one_step_rates())
    targets = Targets(advantages, reference, returns, values)
    log = learn(inputs, batch, targets, train_actor=inputs.step >= config.critic_warmup)
    if config.trains_target_critic:
        model.follow(config.target_share)
    log["explained_variance"] = explained_variance(returns, values)
    log["value"] = values.mean().item()
    return {**log, **weights}


@torch.no_grad()
def critic_values(inputs: UpdateInput[Any], batch: Batch) -> Tensor:
    """Returns the critic's values of the batch's sampled tokens. [N]"""
    model = inputs.model
    if batch.features is None or model.critic is None:
        return evaluate(
            lambda rows: model.values(rows.ids, rows.valid, rows.sampled),
            batch,
            inputs.config.micro_rows,
            model.sharded,
        )
    return model.critic.of_features(batch.features.to(model.device)).cpu()


def estimate(
    inputs: UpdateInput[Any], batch: Batch, values: Tensor, function: Values, penalty: Tensor, rates: Rates
) -> tuple[Tensor, Tensor]:
    """Returns advantages and value targets of the sampled tokens. [N], [N]

    `values` [N] come from `function`, which also values the final observations of truncated
    episodes.
    """
    final = [0.0] * len(inputs.trajectories)
    if inputs.config.bootstrap:
        final = final_values(inputs, function)
    return advantages(batch, inputs.trajectories, values, final, penalty, inputs.config, rates)


def advantages(
    batch: Batch,
    trajectories: Sequence[Trajectory],
    values: Tensor,
    final: Sequence[float],
    penalty: Tensor,
    config: PPO,
    rates: Rates,
) -> tuple[Tensor, Tensor]:
    """Returns advantages and value targets of the N sampled tokens from their values [N]. [N], [N]

    `final` [E] is the value after the end of each episode, 0 where the task ended; `penalty` [N] is
    added to the rewards.
    """
    rewards = token_rewards(batch, turn_rewards(trajectories)) + penalty
    rows = episode_rows(batch)
    episodes = batch.episode.unique(sorted=True).tolist()
    boot = torch.zeros(rows.cut.shape)
    boot[rows.cut] = torch.tensor([final[e] for e in episodes], dtype=torch.float32)
    gamma_step: float | Tensor = rates.gamma_step
    if config.smdp:
        steps = [[float(turn.info.get("primitive_steps", 1)) for turn in run.turns] for run in trajectories]
        gamma_step = rates.gamma_step ** rows.arrange(turn_values(batch, steps))
    estimates = gae(
        rows.arrange(rewards),
        rows.arrange(values),
        rows.ends_turn,
        rows.cut,
        boot,
        rows.mask,
        rates.gamma_token,
        rates.lambda_token,
        gamma_step,
        rates.lambda_step,
    )
    advantage = rows.flatten(estimates)
    if config.level == "turn":
        first = _first_of_turn(batch)
        return advantage[first], (advantage + values)[first]
    return advantage, advantage + values


def _first_of_turn(batch: Batch) -> Tensor:
    """Returns for each token the index of the first token of its turn. [N]"""
    starts = torch.cat([torch.tensor([True]), batch.ends_turn[:-1]])
    index = torch.arange(len(starts))
    return torch.where(starts, index, torch.zeros_like(index)).cummax(0).values


@torch.no_grad()
def final_values(inputs: UpdateInput[Any], function: Values) -> list[float]:
    """Returns the value of each truncated episode's final observation, and 0 for episodes that
    ended by themselves. [E]

    A value is read at the last token of the final prompt, a few prompts at a time.
    """
    prompts = inputs.final_prompts
    truncated = [
        e
        for e, run in enumerate(inputs.trajectories)
        if run.truncated and not run.terminated and e < len(prompts) and prompts[e]
    ]
    values = [0.0] * len(inputs.trajectories)
    size = inputs.config.micro_rows or max(1, len(truncated))
    truncated.sort(key=lambda e: len(prompts[e]))
    for start in range(0, len(truncated), size):
        part = truncated[start : start + size]
        width = max(len(prompts[e]) for e in part) + 1  # a value belongs to the token after the prompt
        ids = torch.zeros(len(part), width, dtype=torch.long)
        valid = torch.zeros(len(part), width, dtype=torch.bool)
        after = torch.zeros(len(part), width, dtype=torch.bool)
        for row, e in enumerate(part):
            length = len(prompts[e])
            ids[row, :length] = torch.tensor(list(prompts[e]))
            valid[row, : length + 1] = True
            after[row, length] = True
        result = function(ids, valid, after)
        for row, e in enumerate(part):
            values[e] = result[row, len(prompts[e])].item()
    return values


def explained_variance(returns: Tensor, values: Tensor) -> float:
    """Returns 1 - Var(returns - values) / Var(returns); 0 for constant returns."""
    variance = returns.var(unbiased=False)
    return (1 - (returns - values).var(unbiased=False) / variance).item() if variance > 1e-12 else 0.0
