"""Adapter of any task to SkyRL: an environment of `skyrl_gym`.

    from harness.interop import skyrl
    skyrl.register()                     # in the process that generates

The dataset consists of `harness.interop.chat_game.rows(...)`, whose column `env_class` names this environment. SkyRL's
`generator.max_turns` limits the turns of a game.
"""

from __future__ import annotations

from typing import Any

from envsuite.errors import UsageError
from harness.interop.chat_game import open_row
from harness.types import Message


class SkyRLGame:
    """Game in the interface of SkyRL's `BaseTextEnv`, which `register` adds as a base class."""

    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
        super().__init__()
        extras = extras or {}
        if "game" not in extras:
            raise UsageError("The dataset has no column 'game': make its rows with harness.interop.chat_game.rows.")
        self.turns = 0
        self._game, self._seed = open_row("skyrl", extras["game"], extras.get("max_turns"))

    def init(self, prompt: list[Message]) -> tuple[list[Message], dict[str, Any]]:
        """Starts the game and returns its first prompt, which replaces that of the dataset."""
        return self._game.begin(self._seed), {}

    def step(self, action: str) -> dict[str, Any]:
        """Carries out a reply. Raises EngineFailure if the environment breaks, because SkyRL has no other way to
        leave an episode out.
        """
        reward = self._game.reply(action)
        self.turns += 1
        done = self._game.done
        return {
            "observations": [] if done else [self._game.messages[-1]],
            "reward": reward,
            "done": done,
            "metadata": {},
            "postprocessed_action": None,
        }

    def get_metrics(self) -> dict[str, float]:
        return self._game.metrics()

    @staticmethod
    def aggregate_metrics(metrics: list[dict[str, Any]]) -> dict[str, float]:
        """Returns the mean of each metric over the episodes that have it."""
        values: dict[str, list[float]] = {}
        for episode in metrics:
            for name, value in episode.items():
                values.setdefault(name, []).append(float(value))
        return {name: sum(numbers) / len(numbers) for name, numbers in values.items()}

    def close(self) -> None:
        self._game.close()


def register(name: str = "envsuite") -> None:
    """Adds the environment to SkyRL's registry, unless it is there."""
    import skyrl_gym
    from skyrl_gym.envs.base_text_env import BaseTextEnv
    from skyrl_gym.envs.registration import registry

    if name not in registry:
        skyrl_gym.register(name, type("SkyRLGame", (SkyRLGame, BaseTextEnv), {}))
