"""Adapter of any task to TRL's `environment_factory`.

Usage: `GRPOTrainer(..., environment_factory=factory(task), train_dataset=Dataset.from_list(games(task)))`. TRL builds a
pool of environments, calls `reset(**row)` with a row of the dataset, offers the public methods to the model as tools,
and calls `get_reward()` when the model has finished. The `seed` of the row selects the game, so that a group of
generations plays the same game. TRL documents this interface under `environment_factory`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from envsuite import registry
from envsuite.core import TextEnv
from envsuite.errors import UsageError
from envsuite.types import RewardMode, Task
from harness.evaluate import RunConfig, resolve_split


class TRLGame:
    """Environment in the interface of TRL; `act` is the only tool that the model sees."""

    def __init__(self, env: TextEnv, show_admissible: bool) -> None:
        self._env, self._show_admissible = env, show_admissible
        self._total: float | None = 0.0
        self._over = True

    def reset(self, seed: int | None = None, **row: Any) -> str:
        """Starts the game `seed` and returns the rules, the objective and the first observation."""
        if seed is None:
            raise UsageError("The dataset has no column 'seed': make its rows with harness.interop.trl.games(task).")
        text, info = self._env.reset(seed=int(seed))
        self._total, self._over = 0.0, False
        parts = (self._env.instructions.strip(), f"Objective: {self._env.objective}", self._observation(text, info))
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
            self._total, self._over = None, True  # broken, not failed: TRL ignores this generation
            raise
        assert self._total is not None
        self._total += reward
        self._over = terminated or truncated
        return f"{text}\nThe episode is over." if self._over else self._observation(text, info)

    def get_reward(self) -> float | None:
        """Returns the undiscounted return so far, or None if the environment broke."""
        return self._total

    def _observation(self, text: str, info: dict[str, Any]) -> str:
        commands = info["admissible_commands"] if self._show_admissible else ()
        return f"{text}\nAdmissible commands: {', '.join(commands)}" if commands else text


def factory(
    task: str | Task, reward_mode: RewardMode | str = RewardMode.SPARSE, show_admissible: bool = True, **knobs: Any
) -> Callable[[], TRLGame]:
    """Returns a function that creates environments of `task`; checks knobs and reward mode immediately."""
    registry.build(task, reward_mode, **knobs).close()
    return lambda: TRLGame(registry.build(task, reward_mode, **knobs), show_admissible)


def games(task: str, split: str = "train", count: int = 100, first: int = 0, **knobs: Any) -> list[dict[str, Any]]:
    """Returns rows for `datasets.Dataset.from_list`: `count` games of a split, starting at number `first`."""
    (selected, *more) = registry.tasks(task)
    if more:
        raise UsageError(f"{task!r} matches {len(more) + 1} tasks: a dataset needs exactly one.")
    name = split
    holder, split = resolve_split(selected, split)
    if holder is not selected:
        raise UsageError(
            f"The split {name!r} of {selected.id} is the separate task {holder.id}: use that id here and in `factory`."
        )
    config = RunConfig(selected, "trl", registry.overrides(selected, knobs), split, count, seed=first)
    seeds: Sequence[int] = config.seeds
    # TRL appends the result of `reset` to the last user message, which can therefore be empty.
    return [{"prompt": [{"role": "user", "content": ""}], "seed": seed} for seed in seeds]
