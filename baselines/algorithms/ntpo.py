"""NTPO: naive token-level policy optimisation, the baseline that POAD improves on (arXiv
2405.15821, eqs. 9-12).

Every token is a step and is discounted, so that an action's value shrinks by gamma for each token
still to come: with positive values short commands are preferred to good ones. `gamma_token` gives
the ablation of the paper's Figure 5; equal to `gamma` (the default) it is NTPO, at 1 it is POAD.
"""

from baselines.algorithms.actor_critic import update
from baselines.configs import NTPO as Config

__all__ = ["Config", "update"]
