"""Messages between the agents of a team: `COMMAND; say: MESSAGE`, and who has not read what yet."""

from __future__ import annotations

import re
from typing import Any

MOST_CHARACTERS = 120
"""longest message where a family sets no other limit"""
_MESSAGE = re.compile(r"(?:^|[\s;,.|(])say\s*:(.*)$", re.IGNORECASE | re.DOTALL)


def split_message(command: str, most: int = MOST_CHARACTERS) -> tuple[str, str]:
    """Splits `COMMAND; say: MESSAGE` into the command and the cleaned message ("" without one).

    A clean message is one line of at most `most` characters. It has no double quotes, because the observation puts it
    in double quotes.
    """
    match = _MESSAGE.search(command)
    if match is None:
        return command, ""
    message = " ".join(match.group(1).replace('"', "'").split())
    message = "".join(character for character in message if character.isprintable())
    return command[: match.start()].rstrip(" ;,.|("), message[:most].strip()


class Mailbox:
    """Unread messages of one episode; agents are numbered from 0, and `title` names them in observations."""

    def __init__(self, agents: int, title: str) -> None:
        self.title = title
        self._unread: list[tuple[tuple[int, str], ...]] = [()] * agents

    def tell(self, speaker: int, message: str) -> None:
        """Queues a message for every other agent; does nothing for ""."""
        for agent in range(len(self._unread)):
            if message and agent != speaker:
                self._unread[agent] += ((speaker, message),)

    def hear(self, agent: int) -> str:
        """Returns an agent's unread messages as the beginning of its observation, and marks them as read."""
        messages, self._unread[agent] = self._unread[agent], ()
        return "".join(f'{self.title} {speaker + 1} says: "{message}" ' for speaker, message in messages)

    def save(self) -> Any:
        """Returns the unread messages for `load`."""
        return tuple(self._unread)

    def load(self, unread: Any) -> None:
        """Restores what `save` returned."""
        self._unread = list(unread)
