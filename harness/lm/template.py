"""From messages to prompt tokens, by the model's chat template, without tokenising twice what the model said itself.

A reply that was sampled here stands in later prompts as the very tokens that were sampled, wherever the template shows
that reply as it was. Templates that rewrite history (Qwen3 drops old reasoning) are obeyed, and the rewriting counted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from envsuite.errors import UsageError
from harness.prompting.prompting import Tool
from harness.types import Message

PLAIN = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] + '\\n\\n' }}"
    "{% else %}{{ message['role'].capitalize() + (': ' if message['role'] == 'user' else ':')"
    " + message['content'] + '\\n' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
"""for models that have no chat template: base models, which begin with a blank and should stop at PLAIN_STOP"""
PLAIN_STOP = "\nUser:"

_MARK = re.compile("\ue000(\\d+)\ue001")  # private-use characters: no template and no text touches them


@dataclass(frozen=True)
class Said:
    """One reply as it was sampled."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Encoded:
    """A prompt in tokens."""

    ids: list[int]
    rewritten: int = 0  # sampled replies that do not stand in it as they were sampled


class Template:
    """A tokenizer's chat template. Models without one get PLAIN, and `plain` is True.

    `end_ids` are the tokens that end a reply.
    """

    def __init__(self, tokenizer: Any, end_ids: Collection[int], thinking: bool = True) -> None:
        self.tokenizer = tokenizer
        self.end_ids = frozenset(end_ids)
        source = tokenizer.chat_template
        self.plain = not source
        texts = source.values() if isinstance(source, dict) else [source or ""]
        self._options: dict[str, Any] = {"chat_template": PLAIN} if self.plain else {}
        self.takes_tools = any(re.search(r"\btools\b", text) for text in texts)
        if any("enable_thinking" in text for text in texts):
            self._options["enable_thinking"] = thinking
        # A chat template writes the first token itself, where there is one; plain text gets what the tokenizer adds.
        self._lead: list[int] = list(tokenizer("")["input_ids"]) if self.plain else []
        self._tokens = lru_cache(maxsize=4096)(self._tokenise)

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> str:
        """The prompt as text, ready for the model to go on; `tools` are declared where the template can."""
        options = {"tokenize": False, "add_generation_prompt": True, **self._options}
        if tools and self.takes_tools:
            options["tools"] = list(tools)
        try:
            return self.tokenizer.apply_chat_template(list(messages), **options)
        except Exception:  # jinja's errors, raised by templates for what they do not support
            if messages and messages[0]["role"] == "system" and len(messages) > 1:
                try:  # Gemma and others know no system message
                    return self.tokenizer.apply_chat_template(_folded(messages), **options)
                except Exception as again:
                    error = again
            raise UsageError(
                f"The chat template of {self.tokenizer.name_or_path} cannot render this: {error}"
            ) from error

    def encode(self, messages: Sequence[Message], said: Sequence[Said] = (), tools: Sequence[Tool] = ()) -> Encoded:
        """Tokens of `messages`; `said` are the conversation's replies so far, the latest last.

        The assistant's messages are matched with `said` from the end; one whose text differs (history without
        reasoning) was rewritten by the prompt itself and is tokenised from its text like any other message.
        """
        text = self.render(messages, tools)
        known = _matches(messages, said)
        lost = min(len(said), sum(message["role"] == "assistant" for message in messages)) - len(known)
        if not known:
            return Encoded(self._lead + list(self._tokens(text)), lost)
        marked = [
            {**message, "content": f"\ue000{place}\ue001"} if place in known else message
            for place, message in enumerate(messages)
        ]
        parts = _MARK.split(self.render(marked, tools))
        gaps, places = parts[0::2], [int(place) for place in parts[1::2]]
        pieces = _splice(text, gaps, [known[place] for place in places]) if places == sorted(known) else None
        if pieces is None:
            return Encoded(self._lead + list(self._tokens(text)), lost + len(known))
        ids = list(self._lead)
        pending, end = "", None  # text not tokenised yet; the end token of the reply before it, where it was sampled
        for piece in pieces:
            if isinstance(piece, Said):
                ids += self._tokens(pending)
                ids += piece.ids
                pending, end = "", piece.ids[-1] if piece.ids[-1] in self.end_ids else None
            elif piece is None:
                lost += 1
            else:
                if end is not None:
                    word = self.tokenizer.decode([end], skip_special_tokens=False)
                    if piece.startswith(word):
                        piece = piece[len(word) :]  # sampled already
                    else:  # the template ends replies by another token, and is obeyed
                        ids.pop()
                        lost += 1
                    end = None
                pending += piece
        return Encoded(ids + list(self._tokens(pending)), lost)

    def open_end(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> tuple[list[int], int, str]:
        """(ids, head, tail): `tail` is the prompt's last text, ids[head:] its tokens, which may merge with what follows.

        Tokens do not merge across special ones: where there is one, the tail begins after the last of them.
        """
        text = self.render(messages, tools)
        ids = self._lead + list(self._tokens(text))
        special = {token.content for token in self.tokenizer.added_tokens_decoder.values() if token.special}
        start = max((text.rfind(word) + len(word) for word in special if word in text), default=0)
        tail = list(self._tokens(text[start:]))
        if start and ids[len(ids) - len(tail) :] == tail:
            return ids, len(ids) - len(tail), text[start:]
        return ids, len(self._lead), text

    def _tokenise(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"]) if text else ()


def _matches(messages: Sequence[Message], said: Sequence[Said]) -> dict[int, Said]:
    places = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    pairs = zip(reversed(places), reversed(said), strict=False)
    return {place: reply for place, reply in pairs if messages[place]["content"] == reply.text and reply.ids}


def _splice(text: str, gaps: Sequence[str], replies: Sequence[Said]) -> list[str | Said | None] | None:
    """`text` as gaps and replies; None before text that stands where a reply was; None altogether where it is unclear."""
    if not text.startswith(gaps[0]):
        return None
    pieces: list[str | Said | None] = [gaps[0]]
    at = len(gaps[0])
    for reply, gap in zip(replies, gaps[1:], strict=True):
        if text.startswith(reply.text + gap, at):
            pieces += [reply, gap]
            at += len(reply.text) + len(gap)
            continue
        found = text.find(gap, at) if gap else len(text)
        if found < 0:
            return None
        pieces += [None, text[at:found], gap]
        at = found + len(gap)
    return pieces if at == len(text) else None


def _folded(messages: Sequence[Message]) -> list[Message]:
    """The system message as the head of the first user message."""
    head, first, *rest = messages
    return [{**first, "content": f"{head['content']}\n\n{first['content']}"}, *rest]
