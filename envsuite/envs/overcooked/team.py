"""State of a team beside the kitchen: unread messages, replies to invalid commands, and the cooks that must act."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from envsuite.core import TextEnv

MOST_CHARACTERS = 120  # of a message
_MESSAGE = re.compile(r"(?:^|[\s;,.|(])say\s*:(.*)$", re.IGNORECASE | re.DOTALL)


def split_message(command: str) -> tuple[str, str]:
    """Splits `COMMAND; say: MESSAGE` into the command and the cleaned message ("" without one).

    A clean message is one line of at most `MOST_CHARACTERS` characters. It has no double quotes, because the
    observation puts it in double quotes.
    """
    match = _MESSAGE.search(command)
    if match is None:
        return command, ""
    message = " ".join(match.group(1).replace('"', "'").split())
    message = "".join(character for character in message if character.isprintable())
    return command[: match.start()].rstrip(" ;,.|("), message[:MOST_CHARACTERS].strip()


class Team:
    """Messages and turns of the cooks in one episode; cooks are numbered from 0."""

    def __init__(self, cooks: int) -> None:
        self.refusals: dict[int, str] = {}
        """cook -> reply to its invalid command, until the cook has read it"""
        self.given = [0] * cooks
        """commands begun by each cook, in real time and with `partner=team`"""
        self.due: set[int] = set()
        """busy cooks that still get a turn before the next primitive step"""
        self._unread: list[tuple[tuple[int, str], ...]] = [()] * cooks

    def tell(self, speaker: int, message: str) -> None:
        """Queues a message for every other cook; does nothing for ""."""
        for cook in range(len(self._unread)):
            if message and cook != speaker:
                self._unread[cook] += ((speaker, message),)

    def hear(self, cook: int) -> str:
        """Returns a cook's unread messages as the beginning of its observation, and marks them as read."""
        messages, self._unread[cook] = self._unread[cook], ()
        return "".join(f'Cook {speaker + 1} says: "{message}" ' for speaker, message in messages)

    def save(self) -> Any:
        """Returns the state for `load`; equal values mean equal states."""
        return tuple(sorted(self.refusals.items())), tuple(self.given), tuple(sorted(self.due)), tuple(self._unread)

    def load(self, state: Any) -> None:
        """Restores a state that `save` returned."""
        refusals, given, due, unread = state
        self.refusals, self.given, self.due, self._unread = dict(refusals), list(given), set(due), list(unread)


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
