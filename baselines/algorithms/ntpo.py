"""NTPO: naive token-level policy optimisation, the baseline that POAD improves on (arXiv
2405.15821, eqs. 9-12).

Every token is a step and is discounted, so that an action's value shrinks by gamma for each token
still to come: with positive values short commands are preferred to good ones. `gamma_token` gives
the ablation of the paper's Figure 5; equal to `gamma` (the default) it is NTPO, at 1 it is POAD.
"""

from dataclasses import dataclass

from baselines.algorithms.actor_critic import ActorCriticConfig, Rates, update
from baselines.ranges import AdvantageScope, Deviation, NonNegative, Share


@dataclass(frozen=True)
class NTPO(ActorCriticConfig):
    """Naive token-level policy optimisation: every token is discounted."""

    target_kl: NonNegative = 0.02
    normalise: AdvantageScope = "minibatch"
    deviation: Deviation = "population"
    gamma_token: Share = -1.0
    """Discount inside an action; -1: gamma."""

    def rates(self) -> Rates:
        gamma_token = self.gamma if self.gamma_token < 0 else self.gamma_token
        return Rates(gamma_token, self.lam, self.gamma, self.lam)


Config = NTPO

__all__ = ["NTPO", "Config", "update"]
