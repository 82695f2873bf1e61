"""OpenAI's chat completions over HTTP: addresses, and reading what servers answer."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from envsuite.errors import UsageError
from harness.types import Reply


@dataclass(frozen=True)
class Price:
    """USD per million tokens."""

    input: float = 0.0
    output: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Price:
        """'0.15,0.60' as on the command line."""
        try:
            first, second = (float(part) for part in text.split(","))
        except ValueError:
            raise UsageError(f"--price takes IN,OUT in USD per million tokens, not {text!r}.") from None
        return cls(first, second)


def address(url: str) -> str:
    url = url.strip().rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--base-url {url!r} is no address: it looks like http://localhost:8000/v1.")
    return url if parts.path else f"{url}/v1"


def shown(url: str) -> str:
    """An address without the name and password it may hold."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def read(answer: httpx.Response, stop: Sequence[str], price: Price) -> Reply | None:
    """The reply in a server's answer; None where it is no chat completion."""
    try:
        found = answer.json()
        first = found["choices"][0]
        text = _text(first["message"])
        length = first.get("finish_reason") == "length"
        usage = found.get("usage") or {}
        sent, cached, written = counts(usage)
        cost = usage.get("cost")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None
    if not isinstance(cost, int | float):
        cost = (sent * price.input + written * price.output) / 1e6
    return Reply(
        text if length else _closed(text, stop),
        finish_reason="length" if length else "stop",
        input_tokens=sent,
        cached_tokens=cached,
        output_tokens=written,
        cost=float(cost),
    )


def counts(usage: dict[str, Any]) -> tuple[int, int, int]:
    """Tokens read, those of them that were cached, and tokens written; 0 where a server does not say."""
    cached = _count(usage.get("prompt_tokens_details") or {}, "cached_tokens")
    return _count(usage, "prompt_tokens"), cached, _count(usage, "completion_tokens")


def refusal(answer: httpx.Response) -> str:
    """What a server says of its refusal, in one line."""
    try:
        found = answer.json()
        error = found.get("error", found.get("detail", found))
        said = error.get("message", error) if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        said = answer.text
    said = said if isinstance(said, str) else json.dumps(said)
    return " ".join(said.split()) or answer.reason_phrase


def retry_after(answer: httpx.Response) -> float | None:
    """Seconds, as most servers give them; dates are not understood and the growing pause serves."""
    with contextlib.suppress(ValueError):
        return float(answer.headers.get("retry-after-ms", "")) / 1000
    try:
        return float(answer.headers.get("retry-after", ""))
    except ValueError:
        return None


def _text(message: dict[str, Any]) -> str:
    """Reasoning, content and tool calls as one text, as a model that writes them itself would."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    said = (f"<think>{reasoning}</think>" if reasoning else "") + content
    for call in calls:
        arguments = call["arguments"]
        with contextlib.suppress(ValueError):  # shown as it is: the parser says what is wrong with it
            arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        said += (
            f"<tool_call>{json.dumps({'name': call['name'], 'arguments': arguments}, ensure_ascii=False)}</tool_call>"
        )
    return said


def _closed(text: str, stop: Sequence[str]) -> str:
    """Servers cut the stop string off: a closing tag is put back, so that history shows the form that is asked for."""
    for word in stop:
        if word.startswith("</") and text.count(f"<{word[2:]}") > text.count(word):
            return text + word
    return text


def _count(usage: dict[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) else 0
