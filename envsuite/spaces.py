"""`Prose`, the Gymnasium space of all strings."""

from __future__ import annotations

import string
from typing import Any

import gymnasium as gym


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
