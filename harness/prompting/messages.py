"""Operations on conversations, which are lists of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.types import Message

COMPLETION = "completion"
"""role of a message that is a whole prompt: plain text that the model continues, without a chat template"""


def plain_text(messages: Sequence[Message]) -> str | None:
    """Returns the text of a prompt without roles; None if the prompt is a conversation."""
    return messages[0]["content"] if messages and messages[0]["role"] == COMPLETION else None


def shared_prefix(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Returns the length of the longest common prefix of two sequences of messages or tokens."""
    for index, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return index
    return min(len(first), len(second))


def without_oldest_turn(messages: Sequence[Message]) -> list[Message] | None:
    """Removes the first exchange after the system message; returns None if only the last message
    would be left.
    """
    first = 1 if messages and messages[0]["role"] == "system" else 0
    following = next((i for i in range(first + 1, len(messages)) if messages[i]["role"] == "user"), None)
    return None if following is None else [*messages[:first], *messages[following:]]
