"""What the cooks of a team know apart from the kitchen: unread messages, their own mistakes, and whose turn it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from envsuite.core import TextEnv

MOST_CHARACTERS = 120  # of a message
_MESSAGE = re.compile(r"(?:^|[\s;,.|(])say\s*:(.*)$", re.IGNORECASE | re.DOTALL)


def split_message(command: str) -> tuple[str, str]:
    """Splits `COMMAND; say: MESSAGE` into the command and the cleaned message; "" if there is no message.

    A clean message is one line of at most `MOST_CHARACTERS` characters without double quotes, which enclose it where
    it is read.
    """
    match = _MESSAGE.search(command)
    if match is None:
        return command, ""
    message = " ".join(match.group(1).replace('"', "'").split())
    message = "".join(character for character in message if character.isprintable())
    return command[: match.start()].rstrip(" ;,.|("), message[:MOST_CHARACTERS].strip()


class Team:
    """Bookkeeping of one episode, by cook, counted from 0."""

    def __init__(self, cooks: int) -> None:
        self.refusals: dict[int, str] = {}
        """answers to invalid commands that their cooks have not read yet"""
        self.given = [0] * cooks
        """number of commands that each cook has begun, in real time or with players of their own"""
        self.due: set[int] = set()
        """cooks that are asked before the next primitive step although they are busy"""
        self._unread: list[tuple[tuple[int, str], ...]] = [()] * cooks

    def tell(self, speaker: int, message: str) -> None:
        """Hands a message to every other cook; "" is no message."""
        for cook in range(len(self._unread)):
            if message and cook != speaker:
                self._unread[cook] += ((speaker, message),)

    def hear(self, cook: int) -> str:
        """Returns the messages that a cook has not read as text that precedes its observation, and marks them read."""
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
    """Returns the commands of each cook, in order, from pairs of cook and command."""
    scripts: list[list[str]] = [[] for _ in range(cooks)]
    for cook, command in commands:
        scripts[cook].append(command)
    return list(scripts)


def expert_commands(env: TextEnv) -> Iterable[tuple[int, str]]:
    """Yields cook and command of the game that the team of experts plays from the start of the current episode.

    In real time, a command that goes on is not yielded again.
    """
    twin: Any = type(env)(**vars(env.settings))
    twin.reset(seed=env.episode_seed)
    over = False
    while not over and (command := twin.expert()) is not None:
        if twin.sim.macro[twin.active_cook] is None:
            yield twin.active_cook, command
        *_, terminated, truncated, _ = twin.step(command)
        over = terminated or truncated
