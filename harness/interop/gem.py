"""Adapter of any task to GEM's registry.

    from harness.interop.gem import register
    register("BabyAI-*")
    env = gem.make("envsuite:BabyAI-goto-v0")

Actions are whole replies of a model, and the rules are part of the first observation.
"""

from __future__ import annotations

import random
from typing import Any

from envsuite import registry
from harness.interop.chat_game import ChatGame, chat_config
from harness.prompting.grammars import GRAMMARS

COPIED = ("success", "is_action_valid", "progression", "stop_reason", "admissible_commands")
"""fields of the environment's `info` that are passed on"""


class GEMGame:
    """Game in the interface of `gem.Env`."""

    def __init__(self, env: str, seed: int = 0, split: str = "train", **flags: Any) -> None:
        self._settings = {"env": env, "split": split, **flags}
        self._config = chat_config("gem", env, split, **flags)
        self._game = ChatGame(self._config)
        self._number = seed
        self._replies: list[str] = []

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Starts game number `seed` of the split, or the next one. Raises EngineFailure."""
        number = self._number if seed is None else seed
        self._number = number + 1
        seeds = self._config.seeds
        self._replies = []
        messages = self._game.begin(seeds[number % len(seeds)])
        return "\n\n".join(message["content"] for message in messages), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carries out a reply. Raises EngineFailure."""
        reward = self._game.reply(action)
        self._replies.append(action)
        run = self._game.run
        text = run.final_observation if self._game.done else self._game.messages[-1]["content"]
        return text, reward, run.terminated, run.truncated, self._info()

    def sample_random_action(self) -> str:
        """Returns a reply with a random admissible command. Raises NotImplementedError if the task lists none."""
        commands = self._game.info["admissible_commands"]
        if not commands:
            raise NotImplementedError(f"{self._config.task.id} lists no admissible commands.")
        return GRAMMARS[self._config.prompting.grammar].spell(random.choice(commands), "")

    @property
    def unwrapped(self) -> GEMGame:
        return self

    def spawn(self, same_state: bool = False, **changes: Any) -> GEMGame:
        """Returns another environment of the same settings; with `same_state`, in the same turn of the same game."""
        settings = {**self._settings, **changes}
        copy = GEMGame(settings.pop("env"), seed=settings.pop("seed", self._number), **settings)
        if same_state:
            copy.reset(seed=self._number - 1)
            for reply in self._replies:
                copy.step(reply)
        return copy

    def close(self) -> None:
        self._game.close()

    def _info(self) -> dict[str, Any]:
        info = self._game.info
        return {name: info[name] for name in COPIED}


def register(pattern: str, **flags: Any) -> list[str]:
    """Adds the tasks that a pattern names to GEM's registry; returns their names there. Raises UnknownTask."""
    import gem
    from gem.envs.registration import ENV_REGISTRY

    gem.Env.register(GEMGame)
    names = []
    for task in registry.tasks(pattern):
        name = f"envsuite:{task.id}"
        if name not in ENV_REGISTRY:
            gem.register(name, GEMGame, env=task.id, **flags)
        names.append(name)
    return names
