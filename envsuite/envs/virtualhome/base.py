"""`HomeEnv`, the common base of published and drawn homes: an environment around a game in a home."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from envsuite.core import TextEnv
from envsuite.envs.virtualhome.published.tasks import GAMMA
from envsuite.types import Outcome


class HomeEnv(TextEnv):
    """A home in which the player does one household task. Rules: docs/envs/virtualhome.md."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 2}
    game: Any
    """the game of the current episode"""
    _game_seed: int | None = None

    @abstractmethod
    def _game_of(self, seed: int) -> Any:
        """Returns the game of a seed."""

    def _reset(self, seed: int) -> str:
        self._enter(seed)
        text: str = self.game.begin()
        return text

    def _enter(self, seed: int) -> None:
        """Sets the game of a seed; repeated attempts at one seed keep the game with its plans."""
        if seed != self._game_seed:
            self.game, self._game_seed = self._game_of(seed), seed
        self.objective = self.game.objective

    def _act(self, command: str) -> Outcome:
        outcome: Outcome = self.game.act(command)
        return outcome

    def admissible(self) -> list[str]:
        commands: list[str] = self.game.admissible()
        return commands

    def remaining(self) -> int | None:
        commands: int | None = self.game.plan()[0]
        return commands

    def metrics(self) -> dict[str, float]:
        return {"discounted_return": GAMMA ** (self.turn - 1) if self.success else 0.0}

    def get_state(self) -> Any:
        """Returns a snapshot: the seed of the home and the state of its game."""
        return self.episode_seed, self.game.save()

    def set_state(self, state: Any) -> None:
        seed, saved = state
        self._enter(seed)
        self.game.load(saved)

    def render(self) -> Any:
        """Renders the home: `rgb_array` [height, width, 3] uint8 or `ansi` text; None without a render mode."""
        if self.render_mode is None:
            return None
        from envsuite.envs.virtualhome import picture  # pillow, on first use

        draw_or_write = picture.draw if self.render_mode == "rgb_array" else picture.write
        return draw_or_write(self.game.home, self.game.state, self.objective)
