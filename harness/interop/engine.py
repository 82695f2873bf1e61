"""An environment for adapters that run in an event loop: it starts and steps episodes without blocking it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from envsuite.errors import EngineFailure
from harness.evaluate import Execution, RunConfig, open_slots
from harness.rollout.executors import StepResult
from harness.types import Episode


class AsyncEngine:
    """Environment, in its own process if needed, with a thread that waits for its answers."""

    def __init__(self, config: RunConfig) -> None:
        self._executor = open_slots(config, Execution(max_concurrent=1), 1, "")
        self._thread = ThreadPoolExecutor(1, "envsuite")

    async def start(self, episode: Episode) -> StepResult:
        """Resets the environment to an episode. Raises EngineFailure."""
        return await self._call(self._executor.start, episode)

    async def step(self, commands: tuple[str, ...], turn: int) -> StepResult:
        """Carries out the commands of a turn. Raises EngineFailure."""
        return await self._call(self._executor.step, commands, turn)

    async def _call(self, call: Any, *arguments: Any) -> StepResult:
        def answer() -> StepResult:
            call(0, *arguments)
            ((_, result),) = self._executor.poll()
            return result

        result = await asyncio.get_running_loop().run_in_executor(self._thread, answer)
        if result.fatal:
            raise result.fatal
        if result.error:
            raise EngineFailure(result.error)
        return result

    def close(self) -> None:
        """Closes the environment after its current operation."""
        self._thread.submit(self._executor.close)
        self._thread.shutdown(wait=False)
