"""Chat templates: convert messages to prompt tokens and reuse the tokens of sampled replies.

Later prompts contain a sampled reply with its original tokens if the template shows the reply
unchanged. Templates that rewrite history (Qwen3 drops old reasoning) are followed, and rewritten
replies are counted. docs/reference/templates.md shows this for the templates of known models.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from envsuite.errors import UsageError
from envsuite.tools import ACT
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
DATE = datetime.date(2024, 7, 26)
"""The date in prompts of templates that ask for today's: a prompt does not depend on the day."""

_MARK = re.compile("\ue000(\\d+)\ue001")  # private-use characters, which neither templates nor texts contain
_OPENING = re.compile(r"<think>\s*\Z")
_REASONING = re.compile(r"\A<think>.*?(?:</think>|\Z)", re.DOTALL)
_CHANNEL = re.compile(
    r"<\|channel\|>(\w+)[^<]*<\|message\|>(.*?)(?=<\|(?:end|return|call|start|channel)\|>|\Z)", re.DOTALL
)


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

    `end_ids` are the tokens that end a reply. A system message that the template refuses, drops or
    alters is moved to the start of the first user message.
    """

    def __init__(self, tokenizer: Any, end_ids: Collection[int], thinking: bool = True) -> None:
        self.tokenizer = tokenizer
        self.end_ids = frozenset(end_ids)
        source = tokenizer.chat_template
        self.plain = not source
        texts = source.values() if isinstance(source, dict) else [source or ""]
        self._options: dict[str, Any] = {"chat_template": PLAIN} if self.plain else {}
        if any("enable_thinking" in text for text in texts):
            self._options["enable_thinking"] = thinking
        self._dated = any("strftime_now" in text for text in texts)
        self.channels = any("<|channel|>" in text for text in texts)
        """replies have the channels of gpt-oss"""
        # Chat templates contain the first token; plain text gets the tokens that the tokenizer
        # adds.
        self._start: list[int] = list(tokenizer("")["input_ids"])
        self.tokens = lru_cache(maxsize=4096)(self._tokenise)
        self._texts = lru_cache(maxsize=4096)(self._text_in_context)

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = (), asks: bool = True) -> str:
        """Returns the prompt as text: a prompt without roles unchanged, others by the template, which declares
        `tools`. With `asks`, a reply follows. Raises UsageError.
        """
        if (text := plain_text(messages)) is not None:
            return text
        if self.channels:
            messages = [_without_reasoning(message) for message in messages]
        options = {"tokenize": False, "add_generation_prompt": asks, **self._options}
        if tools:
            if not self.declares_tools:
                raise UsageError(
                    f"The chat template of {self.tokenizer.name_or_path or 'this model'} does not declare tools: use "
                    "--action-grammar tool, whose calls are text, or another model."
                )
            options["tools"] = list(tools)
        if self._dated:
            options["chat_template"] = with_date(self.tokenizer.get_chat_template(tools=options.get("tools")), DATE)
        messages = for_template(messages)
        text, error = self._apply(messages, options)
        if len(messages) > 1 and messages[0]["role"] == "system":
            rules = messages[0]["content"].strip()
            if text is None or rules not in text:
                folded, again = self._apply(_folded(messages), options)
                if folded is not None and (text is None or rules in folded):
                    return folded
                error = again or error
        if text is None:
            raise UsageError(
                f"The chat template of {self.tokenizer.name_or_path} cannot render this: {error}"
            ) from error
        return text

    def _apply(self, messages: Sequence[Message], options: dict[str, Any]) -> tuple[str | None, Exception | None]:
        """Returns the rendered text, or None and the error."""
        try:
            with time_limit(MOST_SECONDS, "chat template"):
                return self.tokenizer.apply_chat_template(list(messages), **options), None
        except Exception as error:  # jinja errors, which templates raise for unsupported messages
            return None, error

    @cached_property
    def end_id(self) -> int:
        """The token that ends a reply: the tokenizer's own if it is one. Raises UsageError."""
        if not self.end_ids:
            name = self.tokenizer.name_or_path or "this model"
            raise UsageError(f"{name} names no token that ends a reply: set eos_token in its tokenizer_config.json.")
        eos = self.tokenizer.eos_token_id
        return int(eos) if eos in self.end_ids else min(self.end_ids)

    @cached_property
    def declares_tools(self) -> bool:
        """True if a prompt changes with the tools that the template gets; some only read tools from elsewhere."""
        talk = [{"role": "system", "content": "x"}, {"role": "user", "content": "y"}]
        options = {"tokenize": False, **self._options}
        return any(
            self._apply(messages, options)[0] != self._apply(messages, {**options, "tools": [ACT.schema()]})[0]
            for messages in (talk, talk[1:])
        )

    @cached_property
    def opening(self) -> str:
        """The start of every reply that the prompt already contains: `<think>` for some reasoning models."""
        match = _OPENING.search(self._example("x"))
        return match[0] if match else ""

    @cached_property
    def first_spaces(self) -> str:
        """Spaces at the start of every reply, which the template writes before the message."""
        prompt, history = self._example("x"), self._example("x", "y", "z")
        match = re.match(r"(\s*)y", history[len(prompt) :]) if history.startswith(prompt) else None
        return match[1] if match and prompt else ""

    def _example(self, *contents: str) -> str:
        """Renders a conversation of user and assistant; returns "" if the template refuses it."""
        roles = ("user", "assistant")
        try:
            return self.render([{"role": roles[index % 2], "content": text} for index, text in enumerate(contents)])
        except UsageError:
            return ""

    def message_text(self, ids: Sequence[int]) -> str:
        """Returns a sampled reply as the text of its message: with the opening of its reasoning, and with
        the channels of gpt-oss as `<think>` and answer.
        """
        if self.channels:
            messages = _CHANNEL.findall(self._decode(ids))
            thoughts = "\n".join(text for channel, text in messages if channel == "analysis")
            answers = [text for channel, text in messages if channel != "analysis"]
            if messages:
                end = "</think>" if answers else ""
                return (f"<think>{thoughts}{end}" if thoughts else "") + "\n".join(answers)
        text = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return self.opening + str(text).removeprefix(self.first_spaces)

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
            return Encoded(lead + list(self.tokens(self.render(messages, tools))), lost)
        try:
            text = self.render(_with_replies(messages, known), tools)
            fragments = _MARK.split(self.render(_with_replies(messages, known, "\ue000{}\ue001"), tools))
        except UsageError:
            if not any(message.get("tool_calls") for message in messages):
                raise
            return Encoded(lead + list(self.tokens(self.render(messages, tools))), lost + len(known))
        gaps = fragments[0::2]
        indices = [int(index) for index in fragments[1::2]]
        replies = [(known[index], self._texts(known[index].ids)) for index in indices if index in known]
        pieces = _splice(text, gaps, replies) if indices == sorted(known) else None
        if pieces is None:
            return Encoded(lead + list(self.tokens(text)), lost + len(known))
        ids, replaced = self._joined(pieces)
        return Encoded(lead + ids, lost + replaced)

    def _joined(self, pieces: Sequence[str | SampledReply | None]) -> tuple[list[int], int]:
        """Returns the tokens of `_splice`'s pieces, and the number of replies whose tokens the template replaces."""
        ids: list[int] = []
        replaced = 0
        pending = ""  # text that is not tokenised yet
        after: int | None = None  # sampled end token just before it
        end: int | None = None  # sampled end token that the template has not shown yet
        for piece in pieces:
            if isinstance(piece, SampledReply):
                ids += self.tokens(pending, after)
                ids += piece.ids
                pending, after = "", None
                end = piece.ids[-1] if piece.ids[-1] in self.end_ids else None
            elif piece is None:
                replaced += 1
            else:
                if end is not None:
                    word = self._decode([end])
                    if piece.startswith(word):
                        piece = piece[len(word) :]  # already among the sampled tokens
                        after = end
                    else:  # the template ends replies with another token
                        ids.pop()
                        replaced += 1
                    end = None
                pending += piece
        return ids + list(self.tokens(pending, after)), replaced

    def open_end(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> tuple[list[int], int, str]:
        """Returns (ids, head, tail): `tail` is the prompt's last text, and its tokens ids[head:]
        may merge with a reply.

        Tokens do not merge across special tokens: the tail begins after the last special token, if
        there is one.
        """
        text = self.render(messages, tools)
        lead = self._lead(messages)
        ids = lead + list(self.tokens(text))
        special = {token.content for token in self.tokenizer.added_tokens_decoder.values() if token.special}
        start = max((text.rfind(word) + len(word) for word in special if word in text), default=0)
        tail = list(self.tokens(text[start:]))
        if start and ids[len(ids) - len(tail) :] == tail:
            return ids, len(ids) - len(tail), text[start:]
        return ids, len(lead), text

    def _lead(self, messages: Sequence[Message]) -> list[int]:
        """Returns the tokens that the tokenizer adds before plain text; chat templates contain their own."""
        return self._start if self.plain or plain_text(messages) is not None else []

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _tokenise(self, text: str, after: int | None = None) -> tuple[int, ...]:
        """Tokenises `text` as it is tokenised after the special token `after`: some tokenizers mark the start of
        a text, and some special tokens take the spaces after them.
        """
        if not text:
            return ()
        if after is not None:
            ids = self.tokenizer(self._decode([after]) + text, add_special_tokens=False)["input_ids"]
            if ids[0] == after:
                return tuple(ids[1:])
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _text_in_context(self, ids: tuple[int, ...]) -> str:
        """Decodes a reply as it reads within a prompt: decoded alone, some tokenizers drop its first space."""
        first = min(self.end_ids, default=None)
        words = [token for token in ids if token not in self._special]
        if first is None:
            return self._decode(words)
        return self._decode([first, *words]).removeprefix(self._decode([first]))

    @cached_property
    def _special(self) -> frozenset[int]:
        return frozenset(number for number, token in self.tokenizer.added_tokens_decoder.items() if token.special)


@lru_cache(maxsize=16)
def with_date(source: str, day: datetime.date) -> str:
    """Returns a template in which `strftime_now` gives the day, for all formats of dates."""
    codes = ("-d", *"aAbBdejmuwyY")
    replaced = " ".join(f"| replace('%{code}', '{day.strftime('%' + code)}')" for code in codes)
    return f"{{%- macro strftime_now(format) -%}}{{{{ format {replaced} }}}}{{%- endmacro -%}}{source}"


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
    changed = list(messages)
    for index, reply in replies.items():
        message = {name: value for name, value in messages[index].items() if name != "tool_calls"}
        ending = "" if "tool_calls" in messages[index] else message["content"][len(reply.text) :]
        changed[index] = {**message, "content": (mark.format(index) if mark else reply.text) + ending}
    return changed


def _splice(
    text: str, gaps: Sequence[str], replies: Sequence[tuple[SampledReply, str]]
) -> list[str | SampledReply | None] | None:
    """Splits `text` into gaps and replies. A reply has the text that its tokens have within a prompt.

    None in the list precedes text that replaces a reply. Returns None if the positions of the
    replies are ambiguous.
    """
    if not text.startswith(gaps[0]):
        return None
    pieces: list[str | SampledReply | None] = [gaps[0]]
    position = len(gaps[0])
    before = gaps[0]
    for (reply, sampled_text), gap in zip(replies, gaps[1:], strict=True):
        for start, shown in _candidates(position, reply.text, sampled_text):
            if start >= position - len(before) and text.startswith(shown + gap, start):
                pieces[-1] = before[: start - position] if start < position else before + text[position:start]
                pieces += [reply, gap]
                position = start + len(shown) + len(gap)
                break
        else:
            end = text.find(gap, position) if gap else len(text)
            if end < 0:
                return None
            pieces += [None, text[position:end], gap]
            position = end + len(gap)
        before = gap
    return pieces if position == len(text) else None


def _candidates(position: int, content: str, sampled_text: str) -> Iterator[tuple[int, str]]:
    """Yields the positions at which a reply's tokens may begin if its message begins at `position`, and their text."""
    if content.endswith(sampled_text):  # the message may begin with an opening that the prompt contained
        yield position + len(content) - len(sampled_text), sampled_text
    if spaces := len(sampled_text) - len(sampled_text.lstrip()):  # the template writes these spaces itself
        yield position - spaces, sampled_text
    if content.strip() == sampled_text.strip():
        yield position, content


def _without_reasoning(message: Message) -> Message:
    """Returns a message of the assistant without the reasoning at its start."""
    if message["role"] != "assistant":
        return message
    return {**message, "content": _REASONING.sub("", message["content"])}


def _folded(messages: Sequence[Message]) -> list[Message]:
    """Moves the system message to the start of the first user message."""
    system, first, *following = messages
    return [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *following]
