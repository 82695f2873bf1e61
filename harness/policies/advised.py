"""Policies without a model: the environment's random and blind players, its expert, and one that does nothing."""

from __future__ import annotations

from collections.abc import Sequence

from harness.types import Prompt, Reply


class AdvisedPolicy:
    """Follows the environment's advice.

    "random" is the floor of a table and "expert" its ceiling. "blind" plays a fixed script that reads only the
    objective: a task that it wins does not test whether a player reads observations.
    """

    deterministic = True

    def __init__(self, name: str) -> None:
        self.name = self.advice_kind = name

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        # If the expert has no further command, the empty command is invalid and shows up as a fault.
        return [Reply(prompt.advice or "", commands=(prompt.advice,) if prompt.advice else ()) for prompt in prompts]

    def close(self) -> None:
        pass


class IdlePolicy:
    """Never gives a command. An environment that it solves has a defect."""

    advice_kind = ""
    deterministic = True

    def __init__(self, name: str = "idle") -> None:
        self.name = name

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        return [Reply("", commands=()) for _ in prompts]

    def close(self) -> None:
        pass
