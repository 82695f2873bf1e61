"""PPO (Schulman et al., 2017) with a critic over tokens or over turns (`level`)."""

from baselines.algorithms.actor_critic import ActorCriticConfig as PPO
from baselines.algorithms.actor_critic import update

Config = PPO

__all__ = ["PPO", "Config", "update"]
