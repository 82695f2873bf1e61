"""Policies that know nothing themselves: the environment's random player, its expert, and one that does nothing."""

from __future__ import annotations

from collections.abc import Sequence

from harness.types import Prompt, Reply


class AdvisedPolicy:
    """Says what the environment advises: the floor ("random") and the ceiling ("expert") of every table."""

    deterministic = True

    def __init__(self, name: str) -> None:
        self.name = self.advice_kind = name

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        # An expert that knows no further command ends as an invalid one, and so is seen.
        return [Reply(prompt.advice or "", commands=(prompt.advice,) if prompt.advice else ()) for prompt in prompts]

    def close(self) -> None:
        pass


class IdlePolicy:
    """Never says anything: whoever wins by this has found a fault in the environment."""

    name, advice_kind, deterministic = "idle", "", True

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        return [Reply("", commands=()) for _ in prompts]

    def close(self) -> None:
        pass
