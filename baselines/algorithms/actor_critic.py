"""The update of PPO and its variants, which differ in the four rates of `estimators.gae`.

Every token is a step, and the reward of a turn is paid on its last token. If turns are compared, a
turn is a step: gamma_token = lambda_token = 1 makes the first token's advantage the turn's exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from baselines.algorithms.critic_step import CriticStep
from baselines.algorithms.policy_step import Targets, learn
from baselines.algorithms.update import UpdateConfig, UpdateInput, kl_penalty, proximal_pass, reference_pass
from baselines.batch import Batch, collate, evaluate, turn_rewards, turn_values
from baselines.episode_rows import episode_rows, token_rewards
from baselines.math.estimators import gae
from baselines.ranges import Count, Natural, PositiveShare, Share
from envsuite.errors import UsageError
from envsuite.types import Shaping, ShapingUnit
from harness.types import Trajectory

Values = Callable[[Tensor, Tensor, Tensor], Tensor]
"""`Model.values` or `Model.target_values`."""


class Rates(NamedTuple):
    """Discounts and trace decays of `estimators.gae`."""

    gamma_token: float
    lambda_token: float
    gamma_step: float
    lambda_step: float


@dataclass(frozen=True)
class ActorCriticConfig(UpdateConfig):
    """Settings common to PPO and its variants, which change the four rates of `estimators.gae`."""

    needs_critic: ClassVar[bool] = True

    gamma: Share = 0.99
    lam: Share = 0.95
    bootstrap: bool = True
    """A truncated episode ends in the value of its final observation; False: in 0, as in TWOSOME
    and ADRL."""
    smdp: bool = False
    """Discount a command that took k primitive steps by gamma**k."""
    critic_warmup: Natural = 0
    """First updates, in which only the critic learns."""
    critic_warmup_batch: Count = 1
    """Above 1: these updates are passes over one batch of this many ordinary ones (Verlog: 40). They
    are one line of the log."""
    critic_warmup_share: PositiveShare = 1.0
    """Share of that batch's rows that each pass draws (Verlog: 0.25)."""

    @property
    def compares_turns(self) -> bool:
        """True if a turn is a step, and the advantage at its first token holds for all its tokens."""
        return False

    def rates(self) -> Rates:
        return Rates(self.gamma, self.lam, self.gamma, self.lam)

    def shaping(self) -> Shaping | None:
        rates = self.rates()
        if rates.gamma_token < 1:  # the discount of a command would depend on its number of tokens
            return None
        return Shaping(rates.gamma_step, ShapingUnit.STEP if self.smdp else ShapingUnit.COMMAND)

    def one_step_rates(self) -> Rates:
        """The rates at lambda 0, where GAE's advantage plus value is the one-step target."""
        rates = self.rates()
        return rates._replace(lambda_token=0.0, lambda_step=0.0)

    @property
    def target_share(self) -> float:
        """Share of the way that the target critic moves towards the critic after each batch; 0: no
        target critic."""
        return 0.0

    @property
    def trains_target_critic(self) -> bool:
        return self.target_share > 0

    def validate(self, recipe: Any) -> None:
        super().validate(recipe)
        if self.critic_warmup_batch > 1 and not self.critic_warmup:
            raise UsageError(
                f"config.critic_warmup_batch = {self.critic_warmup_batch} needs passes over this batch: set "
                "config.critic_warmup (5)."
            )
        if recipe.turns and not self.bootstrap:
            raise UsageError(
                f"turns = {recipe.turns} cuts episodes at the end of a batch, and config.bootstrap = false takes what "
                "follows for nothing: leave one of them out."
            )


def update(inputs: UpdateInput[ActorCriticConfig]) -> dict[str, float]:
    """Trains critic and actor on one batch of episodes."""
    model, config, trajectories = inputs.model, inputs.config, inputs.trajectories
    batch = collate(trajectories, config.whole)
    weights = proximal_pass(inputs, batch)
    reference = reference_pass(inputs, batch)
    penalty = kl_penalty(inputs, batch, reference)
    values = critic_values(inputs, batch)
    advantages, returns = estimate(inputs, batch, values, model.values, penalty, config.rates())
    if config.trains_target_critic:
        target_values = evaluate(
            model, lambda rows: model.target_values(rows.ids, rows.valid, rows.sampled), batch, config.micro_rows
        )
        _, returns = estimate(inputs, batch, target_values, model.target_values, penalty, config.one_step_rates())
    critic = CriticStep(inputs, batch, returns, values)
    log = learn(inputs, batch, Targets(advantages, reference), inputs.step >= config.critic_warmup, critic)
    if config.trains_target_critic:
        model.follow(config.target_share)
    log["explained_variance"] = explained_variance(returns, values)
    log["value"] = values.mean().item()
    return {**log, **weights}


def critic_values(inputs: UpdateInput[Any], batch: Batch) -> Tensor:
    """Returns the critic's values of the batch's sampled tokens. [N]"""
    model = inputs.model
    return evaluate(
        model, lambda rows: model.values(rows.ids, rows.valid, rows.sampled), batch, inputs.config.micro_rows
    )


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
    config: ActorCriticConfig,
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
    if config.compares_turns:
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
