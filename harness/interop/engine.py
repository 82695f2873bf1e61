"""An environment for adapters: it plays one episode at a time, in its own process if its engine needs one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from envsuite.errors import EngineFailure
from harness.evaluate import Execution, RunConfig, open_slots
from harness.rollout.executors import StepResult
from harness.types import Episode


class Engine:
    """Environment of one episode at a time."""

    def __init__(self, config: RunConfig) -> None:
        self._executor = open_slots(config, Execution(max_concurrent=1), 1, "")

    def start(self, episode: Episode) -> StepResult:
        """Resets the environment to an episode. Raises EngineFailure."""
        return self._answer(self._executor.start, episode)

    def step(self, commands: tuple[str, ...], turn: int) -> StepResult:
        """Carries out the commands of a turn. Raises EngineFailure."""
        return self._answer(self._executor.step, commands, turn)

    def close(self) -> None:
        self._executor.close()

    def _answer(self, call: Callable[..., None], *arguments: Any) -> StepResult:
        call(0, *arguments)
        ((_, result),) = self._executor.poll()
        if result.fatal:
            raise result.fatal
        if result.error:
            raise EngineFailure(result.error)
        return result


class AsyncEngine:
    """Engine for adapters that run in an event loop: a thread waits for its answers."""

    def __init__(self, config: RunConfig) -> None:
        self._engine = Engine(config)
        self._thread = ThreadPoolExecutor(1, "envsuite")

    async def start(self, episode: Episode) -> StepResult:
        """Resets the environment to an episode. Raises EngineFailure."""
        return await self._call(self._engine.start, episode)

    async def step(self, commands: tuple[str, ...], turn: int) -> StepResult:
        """Carries out the commands of a turn. Raises EngineFailure."""
        return await self._call(self._engine.step, commands, turn)

    async def _call(self, call: Callable[..., StepResult], *arguments: Any) -> StepResult:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    def close(self) -> None:
        """Closes the environment after its current operation."""
        self._thread.submit(self._engine.close)
        self._thread.shutdown(wait=False)
