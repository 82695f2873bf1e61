"""Gymnasium classes adapted to text: `Prose`, the space of all strings, and an environment that is seeded lazily."""

from __future__ import annotations

import string
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding


class Prose(gym.Space[str]):
    """Space of all strings. Samples are short printable gibberish, useful for fuzzing.

    It is not a subclass of `gymnasium.spaces.Text`: the default charset of that class rejects
    spaces, and AsyncVectorEnv puts it into shared memory, where it silently becomes a constant.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(shape=None, dtype=None, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        length = int(self.np_random.integers(1, 24))
        return "".join(self.np_random.choice(list(string.printable[:95]), length))

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "Prose()"

    def __eq__(self, space: Any) -> bool:
        return isinstance(space, Prose)


class LazilySeededEnv(gym.Env[str, str]):
    """A Gymnasium environment whose `np_random` is built from the seed of the latest reset on first use.

    Building one takes about 15 microseconds, and most families never use it.
    """

    _built_np_random: np.random.Generator | None = None  # a name that no family uses for a generator of its own

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Sets the seed. Raises Gymnasium's error for a seed that is not a non-negative integer."""
        if isinstance(seed, int) and seed >= 0:
            self._built_np_random, self._np_random_seed = None, seed
            return "", {}
        return super().reset(seed=seed, options=options)

    def _take_seed(self) -> int:
        """Draws the seed of an episode that begins without one from `np_random`."""
        return int(self.np_random.integers(2**31))

    @property
    def _np_random(self) -> np.random.Generator | None:
        """The generator that Gymnasium's properties read and write; a seed of -1 belongs to a generator set by hand."""
        if self._built_np_random is None and self._np_random_seed not in (None, -1):
            self._built_np_random = seeding.np_random(self._np_random_seed)[0]
        return self._built_np_random

    @_np_random.setter
    def _np_random(self, generator: np.random.Generator | None) -> None:
        self._built_np_random = generator
