"""Reasoning in replies: blocks between <think> and </think>, which end at the first </think>.

Tags in a tool call belong to its arguments. A reply whose prompt ends with <think> may begin within a block: that block
ends at the first </think>.
"""

from __future__ import annotations

import re

OPEN, CLOSE = "<think>", "</think>"
_CALL, _CALL_END = "<tool_call>", "</tool_call>"
_PART = re.compile(rf"(?P<call>{_CALL}.*?(?:{_CALL_END}|\Z))|{OPEN}.*?(?:{CLOSE}|\Z)", re.DOTALL)
_JSON_CALL = re.compile(r"\s*(?:<\|python_tag\|>|\[TOOL_CALLS\]|\[?\s*\{)")


def blocks(text: str) -> list[tuple[int, int]]:
    """Returns start and end of each block of reasoning in a reply, tags included."""
    position = _end_of_first_block(text)
    spans = [(0, position)] if position else []
    while not _JSON_CALL.match(text, position) and (match := _PART.search(text, position)):
        position = match.end()
        if match["call"] is None:
            spans.append(match.span())
    return spans


def _end_of_first_block(text: str) -> int:
    """Returns the end of a block whose <think> is not in the reply; 0 if there is none."""
    before, close, _ = text.partition(CLOSE)
    in_call = before.rfind(_CALL) > before.rfind(_CALL_END) or _JSON_CALL.match(text)
    return 0 if not close or in_call or OPEN in before else len(before) + len(CLOSE)


def is_open(text: str) -> bool:
    """Returns True if a reply ends before its reasoning does."""
    spans = blocks(text)
    return bool(spans) and not text[slice(*spans[-1])].endswith(CLOSE)


def is_thinking(text: str) -> bool:
    """Returns True if a reply has reasoning and no answer after it."""
    end = end_of_reasoning(text)
    return end > 0 and not text[end:].strip()


def end_of_reasoning(text: str) -> int:
    """Returns the position at which the answer of a reply begins: its length if the reasoning does not end."""
    spans = blocks(text)
    return spans[-1][1] if spans else 0


def closed(text: str) -> str:
    """Returns a reply with its reasoning closed, as conversations show it."""
    return text + CLOSE if is_open(text) else text


def separate(text: str) -> tuple[str, str]:
    """Returns the reasoning of a reply, without its tags, and the answer of the reply."""
    thoughts, answer, position = [], "", 0
    for start, end in blocks(text):
        thoughts.append(text[start:end].removeprefix(OPEN).removesuffix(CLOSE).strip())
        answer += text[position:start]
        position = end
    return "\n".join(thoughts), answer + text[position:]


def without(text: str) -> str:
    """Returns a reply without its reasoning."""
    return separate(text)[1].strip() if blocks(text) else text


def joined(reasoning: str, answer: str) -> str:
    """Returns a reply of which a server returned the reasoning apart from the answer."""
    return f"{OPEN}{reasoning}{CLOSE}{answer}" if reasoning else answer


def split(text: str) -> tuple[str, str] | None:
    """Returns reasoning and answer of a reply that `joined` gives again; None for others."""
    if not text.startswith(OPEN):
        return None
    end = blocks(text)[0][1]
    reasoning, close, _ = text[len(OPEN) : end].partition(CLOSE)
    return (reasoning, text[end:]) if close and reasoning else None
