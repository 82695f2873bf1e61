"""POAD: policy optimisation with action decomposition (Wen et al., NeurIPS 2024, arXiv 2405.15821,
eqs. 13-16).

Credit passes undiscounted through an action and is discounted by gamma between actions, so that the
optimum over tokens is the optimum over actions. As in the published code, the trace still decays by
lambda at each token (`lambda_token` = lam), and the critic regresses on lambda-returns;
`lambda_token = 1` removes the decay. With `target_tau` the critic regresses on the one-step targets
of eq. 15 from a target critic.
"""

from dataclasses import dataclass

from baselines.algorithms.actor_critic import ActorCriticConfig, Rates, update
from baselines.ranges import AdvantageScope, Deviation, NonNegative, Share


@dataclass(frozen=True)
class POAD(ActorCriticConfig):
    """Policy optimisation with action decomposition: no discount inside an action."""

    target_kl: NonNegative = 0.02
    normalise: AdvantageScope = "minibatch"
    deviation: Deviation = "population"
    lambda_token: Share = -1.0
    """Trace decay inside an action; -1: lam, as in the published code; 1: no decay."""
    target_tau: Share = 0.0
    """Share of the way that a target critic moves towards the critic after each batch (1: a copy).
    The critic then regresses on the one-step targets of eq. 15; 0: no target critic and
    lambda-returns, as in the published code."""

    def rates(self) -> Rates:
        lambda_token = self.lam if self.lambda_token < 0 else self.lambda_token
        return Rates(1.0, lambda_token, self.gamma, self.lam)

    @property
    def target_share(self) -> float:
        return self.target_tau


Config = POAD

__all__ = ["POAD", "Config", "update"]
