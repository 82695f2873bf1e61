"""POAD: policy optimisation with action decomposition (Wen et al., NeurIPS 2024, arXiv 2405.15821, eqs. 13-16).

Credit passes through an action undiscounted and between actions at gamma: the token-level optimum is then the
action-level one. As published code has it, the trace still fades by lambda at each token (`lambda_token` = lam), and the
critic regresses on lambda-returns of the rollout's critic; `lambda_token = 1` takes the fading out.
"""

from dataclasses import dataclass

from baselines import ppo
from baselines.ppo import Rates, update

NEEDS_CRITIC = True

__all__ = ["NEEDS_CRITIC", "Config", "update"]


@dataclass(frozen=True)
class Config(ppo.Config):
    lambda_token: float = -1.0
    """trace inside an action; -1: lam, as the published code; 1: no fading"""

    def rates(self) -> Rates:
        inside = self.lam if self.lambda_token < 0 else self.lambda_token
        return Rates(1.0, inside, self.gamma, self.lam)
