"""POAD: policy optimisation with action decomposition (Wen et al., NeurIPS 2024, arXiv 2405.15821, eqs. 13-16).

Credit passes through an action undiscounted and between actions at gamma: the token-level optimum is then the
action-level one. As published code has it, the trace still fades by lambda at each token (`lambda_token` = lam), and the
critic regresses on lambda-returns of the rollout's critic; `lambda_token = 1` takes the fading out. With `target_tau` it
regresses on the one-step targets of eq. 15, from a target critic that follows it.
"""

from baselines.algorithms.ppo import update
from baselines.configs import POAD as Config

NEEDS_CRITIC = True

__all__ = ["NEEDS_CRITIC", "Config", "update"]
