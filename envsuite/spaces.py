"""The one space envsuite needs: any text at all."""

from __future__ import annotations

import string
from typing import Any

import gymnasium as gym


class Prose(gym.Space[str]):
    """Every string. Sampling gives short printable gibberish, good for fuzzing.

    Not a subclass of `gymnasium.spaces.Text`, whose default charset refuses spaces and which
    AsyncVectorEnv puts into shared memory, where it silently becomes a constant.
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

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Prose)
