"""Generated games whose difficulty follows the player: success is held between two bounds by moving the knobs.

curriculum = Curriculum(low=0.4, high=0.7)
for lesson in curriculum:
    env = envsuite.make("ALFWorld-generated-v0", **lesson.knobs)
    ...  # play env.reset(seed=lesson.seed)
    curriculum.report(lesson, success)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from envsuite.envs.alfworld.scenery import TASK_TYPES
from envsuite.errors import UsageError

_LOOK, _PICK, _CLEAN, _COOL, _HEAT, _TWO = TASK_TYPES

LADDER: tuple[dict[str, Any], ...] = (
    {"task_types": (_PICK,), "receptacles": 4, "objects": 3, "hidden": 0.0},
    {"task_types": (_PICK, _LOOK), "receptacles": 6, "objects": 6, "hidden": 0.0},
    {"task_types": (_PICK, _LOOK, _CLEAN), "receptacles": 8, "objects": 10, "hidden": 0.0},
    {"task_types": (_PICK, _LOOK, _CLEAN, _HEAT, _COOL), "receptacles": 10, "objects": 14, "hidden": 0.25},
    {"receptacles": 14, "objects": 20},
    {},  # as the official games are
    {"task_types": (_CLEAN, _HEAT, _COOL, _TWO), "hidden": 0.5},
    {"task_types": (_CLEAN, _HEAT, _COOL, _TWO), "hidden": 1.0},
)
"""Knob settings from the easiest to the hardest; each asks for more than the one before."""


class Lesson(NamedTuple):
    """One game to play."""

    seed: int
    level: int
    knobs: dict[str, Any]


class Curriculum(Iterator[Lesson]):
    """Endless lessons. After `window` games of the present level it moves up where more than `high` of them were won,
    down where fewer than `low` were; games drawn at another level no longer count.

    Give `seed` and `level` of a curriculum that was interrupted to go on with it.
    """

    def __init__(
        self,
        low: float = 0.4,
        high: float = 0.7,
        window: int = 32,
        ladder: Sequence[dict[str, Any]] = LADDER,
        seed: int = 0,
        level: int = 0,
    ) -> None:
        if not 0.0 <= low < high <= 1.0:
            raise UsageError(
                f"A curriculum holds success between two bounds, 0 <= low < high <= 1, not {low} and {high}."
            )
        if not 0 <= level < len(ladder):
            raise UsageError(f"Level {level} is none of the {len(ladder)} of the ladder, 0 to {len(ladder) - 1}.")
        self.low, self.high, self.ladder = low, high, tuple(ladder)
        self.seed, self.level = seed, level
        self._recent: deque[bool] = deque(maxlen=window)

    def __next__(self) -> Lesson:
        lesson = Lesson(self.seed, self.level, dict(self.ladder[self.level]))
        self.seed += 1
        return lesson

    @property
    def success(self) -> float | None:
        """Share won of the latest games at this level, None before there are any."""
        return sum(self._recent) / len(self._recent) if self._recent else None

    def report(self, lesson: Lesson, success: bool) -> None:
        """Takes in how a lesson went, in whatever order lessons end."""
        if lesson.level != self.level:
            return
        self._recent.append(success)
        if len(self._recent) < (self._recent.maxlen or 1):
            return
        share = sum(self._recent) / len(self._recent)
        step = (share > self.high) - (share < self.low)
        if 0 <= self.level + step < len(self.ladder) and step:
            self.level += step
            self._recent.clear()
