"""Dual-discount PPO over turns as data points (Verlog).

Tokens inside a turn and turns inside an episode have discounts of their own. A row is one turn in its own window of
history; advantages are whitened over the batch; a small KL to the first weights is part of the reward; the critic learns
alone for the first updates. Unlike the published code, a truncated episode bootstraps inside the batch too
(`bootstrap = false` gives the published behaviour), and the critic's extra position past a reply is not there.
"""

from dataclasses import dataclass

from baselines import ppo
from baselines.ppo import Rates, update

NEEDS_CRITIC = True

__all__ = ["NEEDS_CRITIC", "Config", "update"]


@dataclass(frozen=True)
class Config(ppo.Config):
    gamma_token: float = 1.0
    lambda_token: float = 1.0
    whole: bool = False
    kl_coef: float = 0.001
    kl_in: str = "reward"
    dual_clip: float = 3.0
    value_clip: float = 0.5
    entropy_coef: float = 0.001
    max_grad_norm: float = 1.0
    critic_warmup: int = 5

    def rates(self) -> Rates:
        return Rates(self.gamma_token, self.lambda_token, self.gamma, self.lam)
