"""Chat templates: convert messages to prompt tokens and reuse the tokens of sampled replies.

Later prompts contain a sampled reply with its original tokens if the template shows the reply
unchanged. Templates that rewrite history (Qwen3 drops old reasoning) are followed, and rewritten
replies are counted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from envsuite.errors import UsageError
from harness.lm.time_limit import time_limit
from harness.prompting.messages import plain_text
from harness.prompting.tool_calls import calls_of, for_template, read_text, well_formed
from harness.reasoning import closed
from harness.types import Message, ToolSchema

PLAIN = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] + '\\n\\n' }}"
    "{% else %}{{ message['role'].capitalize() + (': ' if message['role'] == 'user' else ':')"
    " + message['content'] + '\\n' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
"""Template for base models, which have none; their replies start with a space and should stop at
PLAIN_STOP.
"""
MOST_SECONDS = 20.0
"""Time limit for rendering a conversation in seconds, in case the template never ends."""
PLAIN_STOP = "\nUser:"

_MARK = re.compile("\ue000(\\d+)\ue001")  # private-use characters, which neither templates nor texts contain


@dataclass(frozen=True)
class SampledReply:
    """Text and sampled tokens of a reply."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Encoded:
    """Tokens of a prompt."""

    ids: list[int]
    rewritten: int = 0  # number of sampled replies whose tokens the prompt does not contain


class Template:
    """A tokenizer's chat template. For models without one, it is PLAIN, and `plain` is True.

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
        # Chat templates contain the first token; plain text gets the tokens that the tokenizer
        # adds.
        self._start: list[int] = list(tokenizer("")["input_ids"])
        self._tokens = lru_cache(maxsize=4096)(self._tokenise)

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = (), asks: bool = True) -> str:
        """Returns the prompt as text: a prompt without roles unchanged, others by the template, which declares
        `tools`. With `asks`, a reply follows. Raises UsageError.
        """
        if (text := plain_text(messages)) is not None:
            return text
        options = {"tokenize": False, "add_generation_prompt": asks, **self._options}
        if tools:
            if not self.takes_tools:
                raise UsageError(
                    f"The chat template of {self.tokenizer.name_or_path or 'this model'} does not declare tools: use "
                    "--action-grammar tool, whose calls are text, or another model."
                )
            options["tools"] = list(tools)
        messages = for_template(messages)
        try:
            with time_limit(MOST_SECONDS, "chat template"):
                return self.tokenizer.apply_chat_template(messages, **options)
        except Exception:  # jinja errors, which templates raise for unsupported messages
            if messages and messages[0]["role"] == "system" and len(messages) > 1:
                try:  # Gemma and others have no system message
                    with time_limit(MOST_SECONDS, "chat template"):
                        return self.tokenizer.apply_chat_template(_folded(messages), **options)
                except Exception as again:
                    error = again
            raise UsageError(
                f"The chat template of {self.tokenizer.name_or_path} cannot render this: {error}"
            ) from error

    def encode(
        self, messages: Sequence[Message], sampled: Sequence[SampledReply] = (), tools: Sequence[ToolSchema] = ()
    ) -> Encoded:
        """Encodes `messages`; `sampled` are the conversation's replies, the latest last.

        Assistant messages are matched with `sampled` from the end. A message whose text differs
        (history without reasoning) is tokenised from its text like any other message. A reply with
        tool calls is shown as the model wrote it; a template that only accepts its own spelling of
        calls rewrites it.
        """
        lead = self._lead(messages)
        known = _matches(messages, sampled)
        lost = min(len(sampled), sum(message["role"] == "assistant" for message in messages)) - len(known)
        if not known:
            return Encoded(lead + list(self._tokens(self.render(messages, tools))), lost)
        try:
            text = self.render(_with_replies(messages, known), tools)
            parts = _MARK.split(self.render(_with_replies(messages, known, "\ue000{}\ue001"), tools))
        except UsageError:
            if not any(message.get("tool_calls") for message in messages):
                raise
            return Encoded(lead + list(self._tokens(self.render(messages, tools))), lost + len(known))
        gaps = parts[0::2]
        indices = [int(index) for index in parts[1::2]]
        pieces = _splice(text, gaps, [known[index] for index in indices]) if indices == sorted(known) else None
        if pieces is None:
            return Encoded(lead + list(self._tokens(text)), lost + len(known))
        ids = list(lead)
        pending = ""  # text that is not tokenised yet
        end: int | None = None  # sampled end token of the reply before it
        for piece in pieces:
            if isinstance(piece, SampledReply):
                ids += self._tokens(pending)
                ids += piece.ids
                pending = ""
                end = piece.ids[-1] if piece.ids[-1] in self.end_ids else None
            elif piece is None:
                lost += 1
            else:
                if end is not None:
                    word = self.tokenizer.decode([end], skip_special_tokens=False)
                    if piece.startswith(word):
                        piece = piece[len(word) :]  # already among the sampled tokens
                    else:  # the template ends replies with another token
                        ids.pop()
                        lost += 1
                    end = None
                pending += piece
        return Encoded(ids + list(self._tokens(pending)), lost)

    def completion(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> str:
        """Returns the text with which a model says the last message, as the template spells it.

        A message without tool calls is its content. Raises UsageError if the template does not show the
        prompt unchanged before the message.
        """
        if not messages[-1].get("tool_calls"):
            return str(messages[-1]["content"])
        prompt = self.render(messages[:-1], tools)
        whole = self.render(messages, tools, asks=False)
        if not whole.startswith(prompt):
            raise UsageError(
                f"The chat template of {self.tokenizer.name_or_path or 'this model'} does not show a tool call after "
                "its prompt: demonstrations with tool calls need another template."
            )
        text = whole[len(prompt) :]
        ends = [self.tokenizer.decode([end], skip_special_tokens=False) for end in self.end_ids]
        return text[: min((text.index(end) for end in ends if end in text), default=len(text))]

    def open_end(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> tuple[list[int], int, str]:
        """Returns (ids, head, tail): `tail` is the prompt's last text, and its tokens ids[head:]
        may merge with a reply.

        Tokens do not merge across special tokens: the tail begins after the last special token, if
        there is one.
        """
        text = self.render(messages, tools)
        lead = self._lead(messages)
        ids = lead + list(self._tokens(text))
        special = {token.content for token in self.tokenizer.added_tokens_decoder.values() if token.special}
        start = max((text.rfind(word) + len(word) for word in special if word in text), default=0)
        tail = list(self._tokens(text[start:]))
        if start and ids[len(ids) - len(tail) :] == tail:
            return ids, len(ids) - len(tail), text[start:]
        return ids, len(lead), text

    def _lead(self, messages: Sequence[Message]) -> list[int]:
        """Returns the tokens that the tokenizer adds before plain text; chat templates contain their own."""
        return self._start if self.plain or plain_text(messages) is not None else []

    def _tokenise(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"]) if text else ()


def _matches(messages: Sequence[Message], sampled: Sequence[SampledReply]) -> dict[int, SampledReply]:
    """Returns the sampled replies that messages show unchanged, by index of the message."""
    indices = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    pairs = zip(reversed(indices), reversed(sampled), strict=False)
    return {index: reply for index, reply in pairs if reply.ids and _shows(messages[index], reply.text)}


def _shows(message: Message, text: str) -> bool:
    """Returns True if a message is that of a reply, also if it closes the reply's reasoning."""
    if not message.get("tool_calls"):
        return bool(message["content"] in (text, closed(text)))
    content, calls = read_text(text)
    return bool(message["content"] == content and calls_of(message) == list(map(well_formed, calls)))


def _with_replies(messages: Sequence[Message], replies: Mapping[int, SampledReply], mark: str = "") -> list[Message]:
    """Returns messages in which replies are texts, tool calls included; with `mark`, its format of their indices."""
    shown = list(messages)
    for index, reply in replies.items():
        message = {name: value for name, value in messages[index].items() if name != "tool_calls"}
        ending = "" if "tool_calls" in messages[index] else message["content"][len(reply.text) :]
        shown[index] = {**message, "content": (mark.format(index) if mark else reply.text) + ending}
    return shown


def _splice(text: str, gaps: Sequence[str], replies: Sequence[SampledReply]) -> list[str | SampledReply | None] | None:
    """Splits `text` into gaps and replies.

    None in the list precedes text that replaces a reply. Returns None if the positions of the
    replies are ambiguous.
    """
    if not text.startswith(gaps[0]):
        return None
    pieces: list[str | SampledReply | None] = [gaps[0]]
    position = len(gaps[0])
    for reply, gap in zip(replies, gaps[1:], strict=True):
        if text.startswith(reply.text + gap, position):
            pieces += [reply, gap]
            position += len(reply.text) + len(gap)
            continue
        end = text.find(gap, position) if gap else len(text)
        if end < 0:
            return None
        pieces += [None, text[position:end], gap]
        position = end + len(gap)
    return pieces if position == len(text) else None


def _folded(messages: Sequence[Message]) -> list[Message]:
    """Moves the system message to the start of the first user message."""
    system, first, *others = messages
    return [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *others]
