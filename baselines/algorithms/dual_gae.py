"""PPO with separate discounts for tokens and turns, and a turn as data point (Verlog).

A row is one turn in its own window of history; advantages are whitened over the batch; a small KL
to the first weights is part of the reward; the critic learns alone in the first updates. Two
differences from the published code: a truncated episode bootstraps inside the batch too (`bootstrap
= false` gives the published behaviour), and the critic has no extra position after a reply.
"""

from baselines.algorithms.actor_critic import update
from baselines.configs import DualGAE as Config

__all__ = ["Config", "update"]
