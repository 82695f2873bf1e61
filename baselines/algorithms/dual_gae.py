"""PPO with separate discounts for tokens and turns, and a turn as data point (Verlog).

A row is one turn in its own window of history; advantages are whitened over the batch; a small KL
to the first weights is part of the reward; the critic learns alone in the first updates. Two
differences from the published code: a truncated episode bootstraps inside the batch too (`bootstrap
= false` gives the published behaviour), and the critic has no extra position after a reply.
"""

from dataclasses import dataclass
from typing import Literal

from baselines.algorithms.actor_critic import ActorCriticConfig, Rates, update
from baselines.ranges import Natural, NonNegative, Positive, Share


@dataclass(frozen=True)
class DualGAE(ActorCriticConfig):
    """PPO with separate discounts for tokens and turns (Verlog)."""

    gamma_token: Share = 1.0
    lambda_token: Share = 1.0
    whole: bool = False
    kl_coef: NonNegative = 0.001
    kl_in: Literal["loss", "reward"] = "reward"
    dual_clip: NonNegative = 3.0
    value_clip: NonNegative = 0.5
    entropy_coef: NonNegative = 0.001
    max_grad_norm: Positive = 1.0
    critic_warmup: Natural = 5

    def rates(self) -> Rates:
        return Rates(self.gamma_token, self.lambda_token, self.gamma, self.lam)


Config = DualGAE

__all__ = ["Config", "DualGAE", "update"]
