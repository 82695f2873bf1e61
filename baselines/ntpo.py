"""NTPO: naive token-level policy optimisation, the baseline POAD argues against (arXiv 2405.15821, eqs. 9-12).

Every token is a step of its own, discounted like any other: an action's value shrinks by gamma for each token that is
still to come, so with positive values short commands are preferred to good ones. `gamma_token` gives the ablation of
the paper's Figure 5; equal to `gamma` (its default here) it is NTPO, at 1 it is POAD.
"""

from dataclasses import dataclass

from baselines import ppo
from baselines.ppo import Rates, update

NEEDS_CRITIC = True

__all__ = ["NEEDS_CRITIC", "Config", "update"]


@dataclass(frozen=True)
class Config(ppo.Config):
    gamma_token: float = -1.0
    """discount inside an action; -1: gamma"""

    def rates(self) -> Rates:
        inside = self.gamma if self.gamma_token < 0 else self.gamma_token
        return Rates(inside, self.lam, self.gamma, self.lam)
