"""NTPO: naive token-level policy optimisation, the baseline POAD argues against (arXiv 2405.15821, eqs. 9-12).

Every token is a step of its own, discounted like any other: an action's value shrinks by gamma for each token that is
still to come, so with positive values short commands are preferred to good ones. `gamma_token` gives the ablation of
the paper's Figure 5; equal to `gamma` (its default here) it is NTPO, at 1 it is POAD.
"""

from baselines.algorithms.ppo import update
from baselines.configs import NTPO as Config

NEEDS_CRITIC = True

__all__ = ["NEEDS_CRITIC", "Config", "update"]
