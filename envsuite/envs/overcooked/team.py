"""State of a team beside the kitchen: unread messages, replies to invalid commands, and the cooks that must act."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from envsuite.core import TextEnv
from envsuite.messages import Mailbox


class Team(Mailbox):
    """Messages and turns of the cooks in one episode; cooks are numbered from 0."""

    def __init__(self, cooks: int) -> None:
        super().__init__(cooks, "Cook")
        self.refusals: dict[int, str] = {}
        """cook -> reply to its invalid command, until the cook has read it"""
        self.given = [0] * cooks
        """commands begun by each cook, in real time and with `partner=team`"""
        self.due: set[int] = set()
        """busy cooks that still get a turn before the next primitive step"""

    def save(self) -> Any:
        """Returns the state for `load`; equal values mean equal states."""
        return tuple(sorted(self.refusals.items())), tuple(self.given), tuple(sorted(self.due)), super().save()

    def load(self, state: Any) -> None:
        """Restores a state that `save` returned."""
        refusals, given, due, unread = state
        self.refusals, self.given, self.due = dict(refusals), list(given), set(due)
        super().load(unread)


def scripts_of(commands: Iterable[tuple[int, str]], cooks: int) -> list[Sequence[str]]:
    """Groups pairs of cook and command by cook, in order."""
    scripts: list[list[str]] = [[] for _ in range(cooks)]
    for cook, command in commands:
        scripts[cook].append(command)
    return list(scripts)


def expert_commands(env: TextEnv) -> Iterable[tuple[int, str]]:
    """Plays the current episode with experts from its start, in a second environment. Yields cook and command.

    In real time, a repeated command that only continues is skipped.
    """
    twin: Any = type(env)(**vars(env.settings))
    twin.reset(seed=env.episode_seed)
    over = False
    while not over and (command := twin.expert()) is not None:
        if twin.sim.macro[twin.active_cook] is None:
            yield twin.active_cook, command
        *_, terminated, truncated, _ = twin.step(command)
        over = terminated or truncated
