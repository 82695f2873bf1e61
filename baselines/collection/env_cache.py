"""Environments that stay open from one batch to the next."""

from __future__ import annotations

from typing import Any

from envsuite.types import knobs_json
from harness.evaluate import Execution, RunConfig, open_slots
from harness.rollout.executors import Executor


class EnvCache:
    """Those of a run, kept from one batch to the next: starting TextWorld's engine takes longer than playing a game."""

    def __init__(self) -> None:
        self._open: dict[tuple[Any, ...], tuple[str, int, Executor]] = {}

    def slots(
        self, config: RunConfig, execution: Execution, episodes: int, advice_kind: str, shaping_gamma: float
    ) -> Executor:
        """Environments for so many episodes, asked for `advice_kind`; those asked for something else before are closed."""
        key = config.task.id, knobs_json(config.knobs), config.reward_mode, shaping_gamma
        wanted = min(episodes, execution.max_concurrent)
        told, room, slots = self._open.get(key, ("", 0, None))
        if slots is None or told != advice_kind or room < wanted:
            if slots is not None:
                slots.close()
            slots = open_slots(config, execution, episodes, advice_kind, shaping_gamma)
            self._open[key] = advice_kind, wanted, slots
        return slots

    def close(self) -> None:
        for _, _, slots in self._open.values():
            slots.close()
        self._open.clear()
