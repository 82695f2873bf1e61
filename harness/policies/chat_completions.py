"""OpenAI's chat-completions protocol: server addresses, and parsing of answers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from envsuite.errors import UsageError
from harness.types import Message, Reply

BYTES_PER_TOKEN = 4
"""Average length of a token in English text, to estimate counts that a server does not send."""
TOKENS_PER_MESSAGE = 4
"""Tokens that a chat template adds per message, for the same estimate."""


@dataclass(frozen=True)
class Price:
    """Price of a model in USD per million tokens."""

    input: float = 0.0
    output: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Price:
        """Parses a command-line value such as '0.15,0.60'. Raises UsageError."""
        try:
            first, second = (float(part) for part in text.split(","))
        except ValueError:
            raise UsageError(f"--price takes IN,OUT in USD per million tokens, not {text!r}.") from None
        return cls(first, second)

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Returns the cost of a request in USD."""
        return (prompt_tokens * self.input + completion_tokens * self.output) / 1e6


def address(url: str) -> str:
    """Checks and completes a server's base URL. Raises UsageError."""
    url = url.strip().rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--base-url {url!r} is not a valid address: use a URL such as http://localhost:8000/v1.")
    return url if parts.path else f"{url}/v1"


def shown(url: str) -> str:
    """Returns a URL without user name and password, for messages."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def read(answer: httpx.Response, stop: Sequence[str], price: Price, messages: Sequence[Message] = ()) -> Reply | None:
    """Parses a chat completion; returns None if the answer is not a valid one.

    If the server sends no usage, the reply has counts estimated from the texts of `messages` and the answer.
    """
    try:
        body = answer.json()
        first = body["choices"][0]
        text = _text(first["message"])
        length = first.get("finish_reason") == "length"
        usage = body.get("usage") or {}
        sent, cached, written = counts(usage)
        cost = usage.get("cost")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None
    if not isinstance(cost, int | float):
        cost = price.of(sent, written)
    estimated = None
    if not sent and not written:
        prompt, completion = sum(map(_estimate, messages)), _estimate({"content": text})
        estimated = prompt, completion, price.of(prompt, completion)
    return Reply(
        text if length else _closed(text, stop),
        finish_reason="length" if length else "stop",
        input_tokens=sent,
        cached_tokens=cached,
        output_tokens=written,
        cost=float(cost),
        estimated=estimated,
    )


def _estimate(message: Message) -> int:
    """Estimates the tokens of a message from the length of its text."""
    return TOKENS_PER_MESSAGE + -(-len(str(message.get("content") or "").encode()) // BYTES_PER_TOKEN)


def counts(usage: dict[str, Any]) -> tuple[int, int, int]:
    """Returns prompt tokens, cached prompt tokens and completion tokens; 0 for counts that the server omits."""
    cached = _count(usage.get("prompt_tokens_details") or {}, "cached_tokens")
    return _count(usage, "prompt_tokens"), cached, _count(usage, "completion_tokens")


def refusal(answer: httpx.Response) -> str:
    """Returns the error message of an answer as one line."""
    try:
        body = answer.json()
        error = body.get("error", body.get("detail", body))
        message = error.get("message", error) if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        message = answer.text
    message = message if isinstance(message, str) else json.dumps(message)
    return " ".join(message.split()) or answer.reason_phrase


def retry_after(answer: httpx.Response) -> float | None:
    """Returns the pause that a server requests, in seconds; None if the header is missing or a date."""
    with contextlib.suppress(ValueError):
        return float(answer.headers.get("retry-after-ms", "")) / 1000
    try:
        return float(answer.headers.get("retry-after", ""))
    except ValueError:
        return None


def _text(message: dict[str, Any]) -> str:
    """Joins reasoning, content and tool calls to one text, in the format of models that write them as text."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    text = (f"<think>{reasoning}</think>" if reasoning else "") + content
    for call in calls:
        arguments = call["arguments"]
        with contextlib.suppress(ValueError):  # keeps invalid JSON for the grammar to report
            arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        text += (
            f"<tool_call>{json.dumps({'name': call['name'], 'arguments': arguments}, ensure_ascii=False)}</tool_call>"
        )
    return text


def _closed(text: str, stop: Sequence[str]) -> str:
    """Restores a closing tag that the server removed as a stop string, so that history shows the requested format."""
    for word in stop:
        if word.startswith("</") and text.count(f"<{word[2:]}") > text.count(word):
            return text + word
    return text


def _count(usage: dict[str, Any], name: str) -> int:
    """Returns an integer field, or 0."""
    value = usage.get(name)
    return value if isinstance(value, int) else 0
