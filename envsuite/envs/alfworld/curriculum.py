"""A curriculum of generated games whose difficulty follows the player's success rate.

It keeps the success rate between two bounds by moving up and down a ladder of settings:

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

from envsuite.envs.alfworld.games.floorplans import TASK_TYPES
from envsuite.errors import UsageError

_LOOK, _PICK, _CLEAN, _COOL, _HEAT, _TWO = TASK_TYPES

LADDER: tuple[dict[str, Any], ...] = (
    {"task_types": (_PICK,), "receptacles": 4, "objects": 3, "hidden": 0.0},
    {"task_types": (_PICK, _LOOK), "receptacles": 6, "objects": 6, "hidden": 0.0},
    {"task_types": (_PICK, _LOOK, _CLEAN), "receptacles": 8, "objects": 10, "hidden": 0.0},
    {"task_types": (_PICK, _LOOK, _CLEAN, _HEAT, _COOL), "receptacles": 10, "objects": 14, "hidden": 0.25},
    {"receptacles": 14, "objects": 20},
    {},  # like the official games
    {"task_types": (_CLEAN, _HEAT, _COOL, _TWO), "hidden": 0.5},
    {"task_types": (_CLEAN, _HEAT, _COOL, _TWO), "hidden": 1.0},
)
"""Settings from the easiest to the hardest; each is harder than the one before."""


class Lesson(NamedTuple):
    """One game to play: its seed, its level and the settings of that level."""

    seed: int
    level: int
    knobs: dict[str, Any]


class Curriculum(Iterator[Lesson]):
    """Iterator over endless lessons that adapts the level to the results reported.

    After `window` games at the current level, it moves up if more than `high` of them were won and
    down if fewer than `low` were. Games drawn at another level are ignored. Pass `seed` and `level`
    of an interrupted curriculum to continue it.
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
            raise UsageError(f"A curriculum needs bounds 0 <= low < high <= 1, not low={low} and high={high}.")
        if not 0 <= level < len(ladder):
            raise UsageError(f"Level {level} does not exist: the ladder has levels 0 to {len(ladder) - 1}.")
        self.low = low
        self.high = high
        self.ladder = tuple(ladder)
        self.seed = seed
        self.level = level
        self._recent: deque[bool] = deque(maxlen=window)

    def __next__(self) -> Lesson:
        lesson = Lesson(self.seed, self.level, dict(self.ladder[self.level]))
        self.seed += 1
        return lesson

    @property
    def success(self) -> float | None:
        """Share of the latest games at this level that were won; None before the first report."""
        return sum(self._recent) / len(self._recent) if self._recent else None

    def report(self, lesson: Lesson, success: bool) -> None:
        """Records the outcome of a lesson; lessons may end in any order."""
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
