"""PPO (Schulman et al., 2017) with a critic over tokens or over turns (`level`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from baselines.algorithms.actor_critic import ActorCriticConfig, Rates, update


@dataclass(frozen=True)
class PPO(ActorCriticConfig):
    """PPO with a critic."""

    level: Literal["token", "turn"] = "token"
    """token: every token is a step | turn: a turn is a step."""

    @property
    def compares_turns(self) -> bool:
        return self.level == "turn"

    def rates(self) -> Rates:
        if self.compares_turns:
            return Rates(1.0, 1.0, self.gamma, self.lam)
        return super().rates()


Config = PPO

__all__ = ["PPO", "Config", "update"]
