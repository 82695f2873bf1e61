"""OpenAI's chat-completions protocol: server addresses, and parsing of answers."""

from __future__ import annotations

import base64
import contextlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx

from envsuite.errors import UsageError
from envsuite.escaping import one_line, public_url, sendable
from harness.policies.connections.http_answers import body_of, text_of
from harness.prompting.tool_calls import read_message
from harness.reasoning import joined
from harness.types import Message, Reply, ToolCall, ToolSchema

OPENAI = "https://api.openai.com/v1"
BYTES_PER_TOKEN = 4
"""Average length of a token in English text, to estimate counts that a server does not send."""
TOKENS_PER_MESSAGE = 4
"""Tokens that a chat template adds per message, for the same estimate."""


MOST_MESSAGE = 10_000
"""Characters of an error message that are used."""
MOST_TOKENS = 10**8
"""Tokens of one request above which a server's count is not believed."""
MOST_COST = 10**4
"""USD of one request above which a server's cost is not believed."""
MOST_REPLY = 4 * 2**20
"""Characters of a reply above which an answer is invalid."""


@dataclass(frozen=True)
class Price:
    """Price of a model in USD per million tokens."""

    input: float = 0.0
    output: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Price:
        """Parses a command-line value such as '0.15,0.60'. Raises UsageError."""
        try:
            first, second = (float(word) for word in text.split(","))
        except ValueError:
            raise UsageError(f"--price takes IN,OUT in USD per million tokens, not {text!r}.") from None
        return cls(first, second)

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Returns the cost of a request in USD."""
        return (prompt_tokens * self.input + completion_tokens * self.output) / 1e6


def address(url: str) -> str:
    """Checks and completes a server's base URL. Raises UsageError."""
    url = url.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, or an unclosed bracket
        valid = False
    if not valid:
        raise UsageError(
            f"--base-url {public_url(url)!r} is not a valid address: use a URL such as http://localhost:8000/v1."
        )
    return url if parts.path else f"{url}/v1"


def secrets_of(url: str) -> list[str]:
    """Returns the password in a URL: as written, decoded, and as the HTTP header sends it."""
    parts = urlsplit(url)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if len(password) < 4:
        return []
    header = base64.b64encode(f"{user}:{password}".encode()).decode()
    return list(dict.fromkeys([header, parts.password or "", password]))


def hidden(text: str, secrets: Iterable[str]) -> str:
    """Replaces keys and passwords in text that is printed or stored."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def read(
    answer: httpx.Response,
    stop: Sequence[str],
    price: Price,
    messages: Sequence[Message] = (),
    tools: Sequence[ToolSchema] = (),
) -> Reply | None:
    """Parses a chat completion; returns None if the answer is not a valid one.

    If the server sends no usage, the reply has counts estimated from the texts of `messages`, of the declared `tools`
    and of the answer.
    """
    try:
        body = body_of(answer)
        first = body["choices"][0]
        message = first["message"] if "message" in first else {"content": first["text"]}
        text, calls = _text(message), _calls(message)
        if first.get("error") or first.get("finish_reason") in ("error", "abort"):
            return None  # the server failed while it generated: a fault, not a reply
        length = first.get("finish_reason") == "length"
        usage = body.get("usage") or {}
        sent, cached, written = counts(usage)
        cost = _cost(usage)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None
    if cost is None:
        cost = price.of(sent, written)
    estimated = None
    if not sent and not written:
        prompt = sum(map(_estimate, messages)) + sum(_estimate({"content": json.dumps(tool)}) for tool in tools)
        completion = _estimate({"content": text, "tool_calls": calls})
        estimated = prompt, completion, price.of(prompt, completion)
    return Reply(
        text if length else closed(text, stop),
        calls=calls,
        finish_reason="length" if length else "stop",
        input_tokens=sent,
        cached_tokens=cached,
        output_tokens=written,
        reasoning_tokens=_count(usage.get("completion_tokens_details") or {}, "reasoning_tokens"),
        cost=cost,
        estimated=estimated,
    )


def _estimate(message: Message) -> int:
    """Estimates the tokens of a message from the length of its text."""
    text = str(message.get("content") or "") + str(message.get("tool_calls") or "")
    return TOKENS_PER_MESSAGE + -(-len(text.encode()) // BYTES_PER_TOKEN)


def counts(usage: dict[str, Any]) -> tuple[int, int, int]:
    """Returns prompt tokens, cached prompt tokens and completion tokens; 0 for counts that the
    server omits.
    """
    cached = _count(usage.get("prompt_tokens_details") or {}, "cached_tokens")
    return _count(usage, "prompt_tokens"), cached, _count(usage, "completion_tokens")


def refusal(answer: httpx.Response) -> str:
    """Returns the error message of an answer as one line."""
    try:
        body = body_of(answer)
        error = body.get("error", body.get("detail", body))
        message = error.get("message", error) if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        message = text_of(answer)
    message = message if isinstance(message, str) else json.dumps(message)
    return one_line(message[:MOST_MESSAGE]) or answer.reason_phrase


def retry_after(answer: httpx.Response) -> float | None:
    """Returns the pause that a server requests, in seconds; None if the header is missing or a
    date.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        with contextlib.suppress(ValueError):
            seconds = float(answer.headers.get(name, "")) / unit
            if math.isfinite(seconds) and seconds >= 0:
                return seconds
    return None


def _text(message: dict[str, Any]) -> str:
    """Returns the text of a message with its reasoning. Raises ValueError if it is too long."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(block.get("text", "") for block in content)
    text = joined(message.get("reasoning_content") or message.get("reasoning") or "", content)
    if len(text) > MOST_REPLY:
        raise ValueError(f"a reply of {len(text):,} characters")
    return sendable(text)


def _calls(message: dict[str, Any]) -> tuple[ToolCall, ...]:
    """Returns the tool calls of a message. Raises ValueError if they are too long."""
    calls = read_message(message)
    if sum(len(field) for call in calls for field in call) > MOST_REPLY:
        raise ValueError("tool calls that are too long")
    return tuple(ToolCall(*map(sendable, call)) for call in calls)


def closed(text: str, stop: Sequence[str]) -> str:
    """Restores a closing tag that the server removed as a stop string, so that history shows the
    requested format.
    """
    for word in stop:
        if word.startswith("</") and text.count(f"<{word[2:]}") > text.count(word):
            return text + word
    return text


def _count(usage: dict[str, Any], name: str) -> int:
    """Returns a count of tokens; 0 if the server reports none, or one that cannot be true."""
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS else 0


def _cost(usage: dict[str, Any]) -> float | None:
    """Returns the cost in USD that a server reports; None if it reports none, or one that cannot be
    true.
    """
    cost = usage.get("cost")
    if not isinstance(cost, int | float) or isinstance(cost, bool) or not 0 <= cost <= MOST_COST:
        return None
    return float(cost)
