"""Operations on conversations, which are lists of messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def shortened(messages: Sequence[Message]) -> Iterator[tuple[Sequence[Message], int]]:
    """Yields a prompt, then the prompt without its oldest turn, and so on, each with the number of turns dropped."""
    dropped = 0
    shorter: Sequence[Message] | None = messages
    while shorter is not None:
        yield shorter, dropped
        shorter, dropped = without_oldest_turn(shorter), dropped + 1


def without_oldest_turn(messages: Sequence[Message]) -> list[Message] | None:
    """Removes the first exchange after the system message; returns None if only the last message
    would be left. The result of a tool call that is removed becomes a user message.
    """
    first = 1 if messages and messages[0]["role"] == "system" else 0
    following = next(
        (
            index
            for index in range(first + 1, len(messages))
            if messages[index]["role"] == "user"
            or (messages[index]["role"] == "tool" and messages[index - 1]["role"] == "assistant")
        ),
        None,
    )
    if following is None:
        return None
    kept = list(messages[following:])
    if kept[0]["role"] == "tool":  # the call that it answers is removed
        results = next((index for index, message in enumerate(kept) if message["role"] != "tool"), len(kept))
        kept[:results] = [{"role": "user", "content": kept[0]["content"]}]
    return [*messages[:first], *kept]
