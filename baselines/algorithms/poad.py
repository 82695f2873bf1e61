"""POAD: policy optimisation with action decomposition (Wen et al., NeurIPS 2024, arXiv 2405.15821,
eqs. 13-16).

Credit passes undiscounted through an action and is discounted by gamma between actions, so that the
optimum over tokens is the optimum over actions. As in the published code, the trace still decays by
lambda at each token (`lambda_token` = lam), and the critic regresses on lambda-returns;
`lambda_token = 1` removes the decay. With `target_tau` the critic regresses on the one-step targets
of eq. 15 from a target critic.
"""

from baselines.algorithms.actor_critic import update
from baselines.configs import POAD as Config

__all__ = ["Config", "update"]
