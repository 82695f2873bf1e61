"""PPO (Schulman et al., 2017) with a critic over tokens or over turns (`level`)."""

from baselines.algorithms.actor_critic import update
from baselines.configs import PPO as Config

__all__ = ["Config", "update"]
