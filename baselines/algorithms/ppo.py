"""PPO (Schulman et al., 2017) with a critic over tokens or over turns.

token level:  every token is a step; r is paid on a turn's last token; gamma and lambda apply at each token
turn level:   a turn is a step; A_t from V at the turn's first token, given to all its tokens

Both are settings of `estimators.gae`; so are NTPO, POAD and dual discounting, which differ from this file by `rates`.
At level "turn" gamma_token = lambda_token = 1 makes the first token's advantage the turn-level one exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from baselines.algorithms.policy_step import Optimisers, descend
from baselines.batch import Batch, collate, streams, token_rewards, turn_values
from baselines.configs import PPO as Config
from baselines.configs import Descent
from baselines.distributed import collectives
from baselines.math.estimators import gae
from baselines.math.losses import adapted_kl_coef, kl_estimate
from baselines.model import Model
from harness.types import Trajectory

NEEDS_CRITIC = True


def advantages(
    batch: Batch,
    trajectories: Sequence[Trajectory],
    values: Tensor,
    boots: Sequence[float],
    extra: Tensor,
    config: Config,
) -> tuple[Tensor, Tensor]:
    """Advantages and value targets of the N sampled tokens. [N], [N]

    `values` [N]; `boots` [E]: the value after the end of each episode, 0 where the task ended; `extra` [N]: rewards per
    token, such as a KL penalty.
    """
    rates = config.rates()
    rewards = token_rewards(batch, [[turn.reward for turn in run.turns] for run in trajectories]) + extra
    laid = streams(batch)
    order = batch.episode.unique(sorted=True)
    boot = torch.zeros_like(laid.cut, dtype=torch.float32)
    boot[laid.cut] = torch.tensor([boots[e] for e in order.tolist()], dtype=torch.float32)
    gamma_step: float | Tensor = rates.gamma_step
    if config.smdp:
        steps = [[float(turn.info.get("primitive_steps", 1)) for turn in run.turns] for run in trajectories]
        gamma_step = rates.gamma_step ** laid.lay(turn_values(batch, steps))
    found = gae(
        laid.lay(rewards), laid.lay(values), laid.ends_turn, laid.cut, boot, laid.mask,
        rates.gamma_token, rates.lambda_token, gamma_step, rates.lambda_step,
    )  # fmt: skip
    advantage = laid.flat(found)
    if config.level == "turn":
        first = _first_of_turn(batch)
        return advantage[first], (advantage + values)[first]
    return advantage, advantage + values


def _first_of_turn(batch: Batch) -> Tensor:
    """For each token, the index of the first token of its turn. [N]"""
    starts = torch.cat([torch.tensor([True]), batch.ends_turn[:-1]])
    index = torch.arange(len(starts))
    return torch.where(starts, index, torch.zeros_like(index)).cummax(0).values


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
    """One update from a batch of episodes. `final_prompts[e]` is what would have been asked next, for cut episodes."""
    batch = collate(trajectories, config.whole)
    with torch.no_grad():
        values = batch.flat(in_parts(model.values, batch, config.micro_rows, model.cut))
        boots = boot_values(model, trajectories, final_prompts) if config.bootstrap else [0.0] * len(trajectories)
    extra, reference = kl_terms(model, optimisers, batch, config, temperature)
    advantage, returns = advantages(batch, trajectories, values, boots, extra, config)
    if tau := getattr(config, "target_tau", 0.0):
        returns = one_step_targets(model, batch, trajectories, final_prompts, extra, config)
    log = descend(
        model, optimisers, batch, advantage, config, generator, returns, values, reference, temperature,
        train_actor=step >= config.critic_warmup,
    )  # fmt: skip
    if tau:
        model.follow(tau)
    spread = returns.var(unbiased=False)
    log["explained_variance"] = (1 - (returns - values).var(unbiased=False) / spread).item() if spread > 1e-12 else 0.0
    log["value"] = values.mean().item()
    return log


@torch.no_grad()
def one_step_targets(
    model: Model,
    batch: Batch,
    trajectories: Sequence[Trajectory],
    final_prompts: Sequence[Sequence[int]],
    extra: Tensor,
    config: Config,
) -> Tensor:
    """What the critic regresses on with a target critic V' (POAD, eq. 15). [N]

    Before a token V' after it; before a turn's last token r + gamma V' of the next observation: GAE's V + A at lambda 0.
    """
    values = batch.flat(in_parts(model.target_values, batch, config.micro_rows, model.cut))
    boots = [0.0] * len(trajectories)
    if config.bootstrap:
        boots = boot_values(model, trajectories, final_prompts, model.target_values)
    rates: dict[str, Any] = {name: 0.0 for name in ("lam", "lambda_token") if hasattr(config, name)}
    return advantages(batch, trajectories, values, boots, extra, replace(config, **rates))[1]


def in_parts(evaluate, batch: Batch, micro_rows: int, even: bool = False) -> Tensor:  # type: ignore[no-untyped-def]
    """`evaluate(ids, valid, sampled)` over the rows of a batch, a few at a time; `even`: as in `world.rounds`. [B, L]"""
    size = micro_rows or -(-len(batch.ids) // collectives.size())
    out = torch.zeros(batch.ids.shape)
    for part, real in collectives.rounds(torch.arange(len(batch.ids)).split(size), even):
        width = int(batch.valid[part].sum(1).max())
        found = evaluate(batch.ids[part, :width], batch.valid[part, :width], batch.sampled[part, :width])
        if real:
            out[part, :width] = found
    return collectives.add(out)


def kl_terms(
    model: Model, optimisers: Optimisers, batch: Batch, config: Descent, temperature: float
) -> tuple[Tensor, Tensor | None]:
    """The KL penalty in the reward [N], and the reference's log-probs [N] where the loss will need them.

    With `kl_target` the coefficient of the next batch is moved: by the mean over episodes of their mean k1.
    """
    none = torch.zeros(len(batch.episode))
    if not config.kl_coef:
        return none, None
    evaluate = lambda ids, valid, mask: model.reference_logprobs(ids, valid, temperature, mask)
    reference = batch.flat(in_parts(evaluate, batch, config.micro_rows, model.cut))
    # A penalty in the reward is a constant, and k1 its unbiased form (Schulman's note; verl, Verlog).
    apart = kl_estimate(batch.flat(batch.logprobs), reference, "k1")
    penalty = -optimisers.kl_coef * apart
    if config.kl_target:
        each = [apart[batch.episode == episode].mean() for episode in batch.episode.unique()]
        mean = torch.stack(each).mean().item()
        optimisers.kl_next = adapted_kl_coef(optimisers.kl_coef, mean, config.kl_target, len(each), config.kl_horizon)
    return (none, reference) if config.kl_in == "loss" else (penalty, None)


def boot_values(
    model: Model,
    trajectories: Sequence[Trajectory],
    prompts: Sequence[Sequence[int]],
    evaluate: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> list[float]:
    """V (of `evaluate`, or the critic) of the final observation where an episode was cut, before its first token; 0 where the task ended itself."""
    wanted = [
        e
        for e, run in enumerate(trajectories)
        if run.truncated and not run.terminated and e < len(prompts) and prompts[e]
    ]
    found = [0.0] * len(trajectories)
    if not wanted:
        return found
    width = max(len(prompts[e]) for e in wanted) + 1  # one column more: a value belongs to the token that follows
    ids = torch.zeros(len(wanted), width, dtype=torch.long)
    valid = torch.zeros(len(wanted), width, dtype=torch.bool)
    for row, e in enumerate(wanted):
        ids[row, : len(prompts[e])] = torch.tensor(list(prompts[e]))
        valid[row, : len(prompts[e])] = True
    with torch.no_grad():
        values = (evaluate or model.values)(ids, valid)
    for row, e in enumerate(wanted):
        found[e] = values[row, len(prompts[e])].item()
    return found
