"""A cache of open environments, so that batches do not start them again."""

from __future__ import annotations

from typing import Any, NamedTuple

from envsuite.types import Shaping, knobs_json
from harness.evaluate import Execution, RunConfig, open_slots
from harness.rollout.executors import Executor


class _OpenExecutor(NamedTuple):
    advice_kind: str
    capacity: int
    executor: Executor


class EnvCache:
    """Keeps the environments of a run open between batches: starting TextWorld's engine takes
    longer than a game."""

    def __init__(self) -> None:
        self._open: dict[tuple[Any, ...], _OpenExecutor] = {}

    def executor(
        self, config: RunConfig, execution: Execution, episodes: int, advice_kind: str, shaping: Shaping
    ) -> Executor:
        """Returns environments for that many episodes; reopens them if the kind of advice changed
        or more are needed."""
        key = config.task.id, knobs_json(config.knobs), config.reward_mode, shaping
        needed = min(episodes, execution.max_concurrent)
        cached = self._open.get(key)
        if cached is not None and cached.advice_kind == advice_kind and cached.capacity >= needed:
            return cached.executor
        if cached is not None:
            cached.executor.close()
        executor = open_slots(config, execution, episodes, advice_kind, shaping)
        self._open[key] = _OpenExecutor(advice_kind, needed, executor)
        return executor

    def close(self) -> None:
        """Closes all environments."""
        for cached in self._open.values():
            cached.executor.close()
        self._open.clear()
