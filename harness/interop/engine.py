"""An environment for adapters: it plays one episode at a time, in its own process if its engine needs one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from envsuite.errors import EngineFailure
from harness.evaluate import Execution, RunConfig, open_slots
from harness.rollout.executors import StepResult
from harness.types import Episode


class Engine:
    """Environment of one episode at a time. Any thread may call it; `close` waits for the current operation."""

    def __init__(self, config: RunConfig) -> None:
        self._lock = threading.Lock()
        self._executor = open_slots(config, Execution(max_concurrent=1), 1, "")

    def start(self, episode: Episode) -> StepResult:
        """Resets the environment to an episode. Raises EngineFailure."""
        return self._answer(self._executor.start, episode)

    def step(self, commands: tuple[str, ...], turn: int) -> StepResult:
        """Carries out the commands of a turn. Raises EngineFailure."""
        return self._answer(self._executor.step, commands, turn)

    def close(self) -> None:
        with self._lock:
            self._executor.close()

    def _answer(self, call: Callable[..., None], *arguments: Any) -> StepResult:
        with self._lock:
            call(0, *arguments)
            ((_, result),) = self._executor.poll()
        if result.fatal:
            raise result.fatal
        if result.error:
            raise EngineFailure(result.error)
        return result
