"""PPO (Schulman et al., 2017) with a critic over tokens or over turns.

token level:  every token is a step; r is paid on a turn's last token; gamma and lambda apply at each token
turn level:   a turn is a step; A_t from V at the turn's first token, given to all its tokens

Both are settings of `estimators.gae`; so are NTPO, POAD and dual discounting, which differ from this file by `rates`.
At level "turn" gamma_token = lambda_token = 1 makes the first token's advantage the turn-level one exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from baselines import world
from baselines.batch import Batch, collate, streams, token_rewards, turn_values
from baselines.descent import Descent, Optimisers, descend
from baselines.estimators import gae
from baselines.losses import kl_estimate
from baselines.model import Model
from envsuite.errors import UsageError
from harness.types import Trajectory


class Rates(NamedTuple):
    """The four numbers of the kernel."""

    gamma_token: float
    lambda_token: float
    gamma_step: float
    lambda_step: float


@dataclass(frozen=True)
class Config(Descent):
    gamma: float = 0.99
    lam: float = 0.95
    level: str = "token"
    """token | turn"""
    bootstrap: bool = True
    """an episode cut by a time limit ends in the value of its final observation; False: in 0, as TWOSOME and ADRL do"""
    smdp: bool = False
    """gamma**k for a command that took k primitive steps"""
    whole: bool = True
    """a row is a conversation; False: a turn"""
    critic_warmup: int = 0
    """first updates in which the critic alone learns"""

    def rates(self) -> Rates:
        if self.level == "turn":
            return Rates(1.0, 1.0, self.gamma, self.lam)
        if self.level == "token":
            return Rates(self.gamma, self.lam, self.gamma, self.lam)
        raise UsageError(f"ppo: level cannot be {self.level!r}: it is token or turn.")


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
        values = batch.flat(in_parts(model.values, batch, config.micro_rows))
        boots = boot_values(model, trajectories, final_prompts) if config.bootstrap else [0.0] * len(trajectories)
    extra, reference = kl_terms(model, batch, config, temperature)
    advantage, returns = advantages(batch, trajectories, values, boots, extra, config)
    log = descend(
        model, optimisers, batch, advantage, config, generator, returns, values, reference, temperature,
        train_actor=step >= config.critic_warmup,
    )  # fmt: skip
    spread = returns.var(unbiased=False)
    log["explained_variance"] = (1 - (returns - values).var(unbiased=False) / spread).item() if spread > 1e-12 else 0.0
    log["value"] = values.mean().item()
    return log


def in_parts(evaluate, batch: Batch, micro_rows: int) -> Tensor:  # type: ignore[no-untyped-def]
    """`evaluate(ids, valid, sampled)` over the rows of a batch, a few at a time. [B, L]"""
    size = micro_rows or -(-len(batch.ids) // world.size())
    out = torch.zeros(batch.ids.shape)
    for part in world.share(torch.arange(len(batch.ids)).split(size)):
        width = int(batch.valid[part].sum(1).max())
        out[part, :width] = evaluate(batch.ids[part, :width], batch.valid[part, :width], batch.sampled[part, :width])
    return world.add(out)


def kl_terms(model: Model, batch: Batch, config: Descent, temperature: float) -> tuple[Tensor, Tensor | None]:
    """The KL penalty in the reward [N], and the reference's log-probs [N] where the loss will need them."""
    none = torch.zeros(len(batch.episode))
    if not config.kl_coef:
        return none, None
    if config.kl_in not in ("loss", "reward"):
        raise UsageError(f"kl_in cannot be {config.kl_in!r}: it is loss or reward.")
    evaluate = lambda ids, valid, mask: model.reference_logprobs(ids, valid, temperature, mask)
    reference = batch.flat(in_parts(evaluate, batch, config.micro_rows))
    if config.kl_in == "loss":
        return none, reference
    # A penalty in the reward is a constant, and k1 its unbiased form (Schulman's note; verl, Verlog).
    return -config.kl_coef * kl_estimate(batch.flat(batch.logprobs), reference, "k1"), None


def boot_values(model: Model, trajectories: Sequence[Trajectory], prompts: Sequence[Sequence[int]]) -> list[float]:
    """V of the final observation where an episode was cut, before its first token; 0 where the task ended itself."""
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
        values = model.values(ids, valid)
    for row, e in enumerate(wanted):
        found[e] = values[row, len(prompts[e])].item()
    return found
