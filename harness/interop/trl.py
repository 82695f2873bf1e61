"""Any task as TRL's `environment_factory`: `GRPOTrainer(..., environment_factory=factory(task), train_dataset=games(task))`.

TRL builds a pool of environments, calls `reset(**row)` with a row of the dataset, offers public methods to the model as
tools, and asks `get_reward()` when the model has finished. The row's `seed` names the game, so that a group of
generations plays one and the same game. Names and contract: TRL's documentation of `environment_factory`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from envsuite import registry
from envsuite.core import TextEnv
from envsuite.errors import UsageError
from envsuite.types import RewardMode, Task
from harness.evaluate import RunConfig, resolve_split


class Game:
    """One environment as TRL drives it. Its one tool is `act`; everything else is hidden from the model."""

    def __init__(self, env: TextEnv, show_admissible: bool) -> None:
        self._env, self._show_admissible = env, show_admissible
        self._total: float | None = 0.0
        self._over = True

    def reset(self, seed: int | None = None, **row: Any) -> str:
        """Starts the game `seed` and returns what is seen first, after the rules and the objective."""
        if seed is None:
            raise UsageError("The dataset has no column 'seed': make its rows with harness.interop.trl.games(task).")
        text, info = self._env.reset(seed=int(seed))
        self._total, self._over = 0.0, False
        parts = (self._env.instructions.strip(), f"Objective: {self._env.objective}", self._seen(text, info))
        return "\n\n".join(parts)

    def act(self, command: str) -> str:
        """
        Carry out one command and see what comes of it.

        Args:
            command: The command, spelled as the rules say.

        Returns:
            What is seen afterwards.
        """
        if self._over:
            return "The episode is over."
        try:
            text, reward, terminated, truncated, info = self._env.step(str(command))
        except Exception:
            self._total, self._over = None, True  # broken, not failed: TRL leaves this generation out
            raise
        assert self._total is not None
        self._total += reward
        self._over = terminated or truncated
        return f"{text}\nThe episode is over." if self._over else self._seen(text, info)

    def get_reward(self) -> float | None:
        """The return so far, undiscounted; None where the environment broke."""
        return self._total

    def _seen(self, text: str, info: dict[str, Any]) -> str:
        listed = info["admissible_commands"] if self._show_admissible else ()
        return f"{text}\nAdmissible commands: {', '.join(listed)}" if listed else text


def factory(
    task: str | Task, reward_mode: RewardMode | str = RewardMode.SPARSE, show_admissible: bool = True, **knobs: Any
) -> Callable[[], Game]:
    """What TRL calls to make one more environment of `task`. Knobs and mode are checked at once."""
    registry.build(task, reward_mode, **knobs).close()
    return lambda: Game(registry.build(task, reward_mode, **knobs), show_admissible)


def games(task: str, split: str = "train", count: int = 100, first: int = 0, **knobs: Any) -> list[dict[str, Any]]:
    """Rows for `datasets.Dataset.from_list`: `count` games of a split from its number `first` on."""
    (found, *others) = registry.tasks(task)
    if others:
        raise UsageError(f"{task!r} names {len(others) + 1} tasks: a dataset is made one task at a time.")
    name = split
    holder, split = resolve_split(found, split)
    if holder is not found:
        raise UsageError(
            f"The split {name!r} of {found.id} is a task of its own, {holder.id}: name that one here and in `factory`."
        )
    config = RunConfig(found, "trl", registry.overrides(found, knobs), split, count, seed=first)
    seeds: Sequence[int] = config.seeds
    # TRL appends what `reset` returns to the last user message, so the row's own may be empty.
    return [{"prompt": [{"role": "user", "content": ""}], "seed": seed} for seed in seeds]
