"""Reasoning in replies: text between <think> and </think> before the answer."""

from __future__ import annotations

import re

OPEN, CLOSE = "<think>", "</think>"
PATTERN = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)


def is_open(text: str) -> bool:
    """Returns True if a reply ends before its reasoning does."""
    return text.rfind(OPEN) > text.rfind(CLOSE)


def is_thinking(text: str) -> bool:
    """Returns True if a reply has reasoning and no answer."""
    return is_open(text) or (CLOSE in text and not text[end_of_reasoning(text) :].strip())


def end_of_reasoning(text: str) -> int:
    """Returns the position at which the answer of a reply begins: its length if the reasoning does not end."""
    if is_open(text):
        return len(text)
    last = text.rfind(CLOSE)
    return 0 if last < 0 else last + len(CLOSE)


def closed(text: str) -> str:
    """Returns a reply with its reasoning closed, as conversations show it."""
    return text + CLOSE if is_open(text) else text


def without(text: str) -> str:
    """Returns a reply without its reasoning."""
    return PATTERN.sub("", text).strip() if OPEN in text else text


def joined(reasoning: str, answer: str) -> str:
    """Returns a reply of which a server returned the reasoning apart from the answer."""
    return f"{OPEN}{reasoning}{CLOSE}{answer}" if reasoning else answer


def parts(text: str) -> tuple[str, str] | None:
    """Returns reasoning and answer of a reply that `joined` gives again; None for others."""
    if not text.startswith(OPEN):
        return None
    reasoning, close, answer = text.removeprefix(OPEN).partition(CLOSE)
    return (reasoning, answer) if close and reasoning else None
