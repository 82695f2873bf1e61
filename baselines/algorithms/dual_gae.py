"""Dual-discount PPO over turns as data points (Verlog).

Tokens inside a turn and turns inside an episode have discounts of their own. A row is one turn in its own window of
history; advantages are whitened over the batch; a small KL to the first weights is part of the reward; the critic learns
alone for the first updates. Unlike the published code, a truncated episode bootstraps inside the batch too
(`bootstrap = false` gives the published behaviour), and the critic's extra position past a reply is not there.
"""

from baselines.algorithms.ppo import update
from baselines.configs import DualGAE as Config

NEEDS_CRITIC = True

__all__ = ["NEEDS_CRITIC", "Config", "update"]
