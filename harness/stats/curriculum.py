"""A curriculum whose difficulty follows the player's success rate.

It keeps the success rate between two bounds by moving up and down a ladder. A rung is a task, or settings of one:

    curriculum = Curriculum(task_ladder("textworld"), low=0.4, high=0.7)
    for lesson in curriculum:
        env = envsuite.make(lesson.task, **lesson.knobs)
        ...  # play env.reset(seed=lesson.seed)
        curriculum.report(lesson, success)

Training does the same with `tasks` as the ladder and `success_between = [0.4, 0.7]` in a recipe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envsuite import registry
from envsuite.errors import UsageError
from envsuite.types import Task

Rung = str | Mapping[str, Any]
"""A task id, or knobs for a task that the player names itself."""

LEVELS = ("easy", "medium", "hard")


def task_ladder(name: str) -> list[str]:
    """Returns the newest version of the easy, medium and hard task with this name.

    Raises UnknownTask if there is none.

    Examples:
        >>> task_ladder("textworld")
        ['TextWorld-easy-v0', 'TextWorld-medium-v0', 'TextWorld-hard-v0']
    """
    return [registry.tasks(f"{name}-{level}")[0].id for level in LEVELS]


def by_difficulty(results: Iterable[tuple[str, bool]], levels: int = 4) -> list[dict[str, Any]]:
    """Returns `levels` settings, from the instances that are solved most often to those solved least.

    `results`: (instance, success) of each episode, of one player or several. The share of an instance is
    estimated as (wins + 1) / (episodes + 2), so that few episodes do not make it extreme; equal
    shares are ordered by name. The levels differ by at most one in size. Raises UsageError if there
    are fewer instances than levels.
    """
    counts: dict[str, list[int]] = {}
    for instance, success in results:
        count = counts.setdefault(instance, [0, 0])
        count[0] += bool(success)
        count[1] += 1
    if not 1 <= levels <= len(counts):
        raise UsageError(f"{levels} levels need at least as many instances: the results have {len(counts)}.")
    share = {instance: (wins + 1) / (episodes + 2) for instance, (wins, episodes) in counts.items()}
    ordered = sorted(share, key=lambda instance: (-share[instance], instance))
    bounds = [len(ordered) * level // levels for level in range(levels + 1)]
    return [{"instances": tuple(ordered[bounds[level] : bounds[level + 1]])} for level in range(levels)]


def training_task(name: str) -> Task:
    """Returns the task that holds the training games of a rung, which is another one in SWE-Gym.

    Raises UsageError if there are none.
    """
    task = registry.tasks(name)[0]
    task = registry.TASKS[task.split_ids.get("train", task.id)]
    if "train" not in task.splits:
        raise UsageError(f"{task.id} has no training games, only {', '.join(task.splits)}: name another task.")
    return task


class Lesson(NamedTuple):
    """One game to play: its seed, its level, and the task or the knobs of that level."""

    seed: int
    level: int
    knobs: dict[str, Any]
    task: str = ""
    """Empty on a ladder of knobs."""


class Curriculum(Iterator[Lesson]):
    """Iterator over endless lessons that adapts the level to the results reported.

    After `window` games at the current level, it moves up if more than `high` of them were won and
    down if fewer than `low` were. Games drawn at another level are ignored. The games of a task are its training
    split's, one after the other; with a ladder of knobs the seeds are 0, 1 and so on. Pass `seed`, the number
    of the next lesson, and `level` of an interrupted curriculum to continue it.
    """

    def __init__(
        self,
        ladder: Sequence[Rung],
        low: float = 0.4,
        high: float = 0.7,
        window: int = 32,
        seed: int = 0,
        level: int = 0,
    ) -> None:
        if not 0.0 <= low < high <= 1.0:
            raise UsageError(f"A curriculum needs bounds 0 <= low < high <= 1, not low={low} and high={high}.")
        if not ladder or window < 1:
            raise UsageError(f"A curriculum needs levels and window >= 1, not {len(ladder)} levels and {window=}.")
        if not 0 <= level < len(ladder):
            raise UsageError(f"Level {level} does not exist: the ladder has levels 0 to {len(ladder) - 1}.")
        self.low = low
        self.high = high
        self.ladder = tuple(training_task(rung) if isinstance(rung, str) else rung for rung in ladder)
        self.seed = seed
        self.level = level
        self._recent: deque[bool] = deque(maxlen=window)

    def __next__(self) -> Lesson:
        rung, number = self.ladder[self.level], self.seed
        self.seed += 1
        if isinstance(rung, Task):
            games = rung.splits["train"]
            return Lesson(games[number % len(games)], self.level, {}, rung.id)
        return Lesson(number, self.level, dict(rung))

    @property
    def success(self) -> float | None:
        """Share of the latest games at this level that were won; None before the first report."""
        return sum(self._recent) / len(self._recent) if self._recent else None

    def report(self, lesson: Lesson, success: bool) -> None:
        """Records the outcome of a lesson; lessons may end in any order."""
        if lesson.level != self.level:
            return
        self._recent.append(success)
        if len(self._recent) != self._recent.maxlen:
            return
        share = sum(self._recent) / len(self._recent)
        step = (share > self.high) - (share < self.low)
        if 0 <= self.level + step < len(self.ladder) and step:
            self.level += step
            self._recent.clear()
