"""Hosted models through inspect_ai's providers: `inspect:anthropic/NAME`, `inspect:google/NAME` and others.

inspect_ai translates messages and tools to each provider's interface, limits the connections, and repeats
requests. This module translates its outputs to replies, and its errors to one line with the cure.
"""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envsuite.errors import MissingExtra, UsageError, did_you_mean
from envsuite.escaping import one_line, public_url, sendable
from harness.policies.chat_completions import Price, closed, hidden
from harness.policies.connections.event_loop import RequestingPolicy
from harness.policies.connections.failures import api_key
from harness.policies.inspect_messages import ProviderMessages, as_json, calls_in, reasoning_of, tool_infos
from harness.policies.request_fields import FLAGS, TOO_LONG, parsed_headers
from harness.prompting.messages import plain_text, shortened
from harness.reasoning import joined
from harness.types import Message, Prompt, Reply, ToolCall

MOST_NOTES = 20
"""Warnings of a provider that config.json keeps."""
MOST_ERROR = 400
REFUSALS = (400, 413, 422)
_COMMAND = re.compile(r"[.:]? (Install|Upgrade) [^:]*with: .*")
_PREFIX = re.compile(r"\Aerror code: \d{3} - ", re.IGNORECASE)
_BODY = re.compile(r"(?:\d{3}\b[^{]*)?(\{.*\})\s*", re.DOTALL)
_STATUS = re.compile(r"\berror code: (\d{3})\b", re.IGNORECASE)
PROVIDERS = ("anthropic", "google", "openai", "mistral", "grok", "groq", "together", "openrouter", "bedrock", "azureai")
"""The providers of inspect_ai that its users name most; inspect_ai has more."""
INSTALL = {
    "anthropic": "pip install 'envsuite[hosted]'",
    "google": "pip install 'envsuite[hosted]'",
    "openai": "pip install 'openai>=3.4', in an environment without verifiers",  # which needs openai 2
}
"""Commands that replace inspect's own for a provider's package."""
EXAMPLE = "inspect:anthropic/claude-sonnet-4-5"


class InspectPolicy(RequestingPolicy):
    """Asks `model`, written PROVIDER/NAME, through inspect_ai.

    `api_key_var` names the variable with the key, if it is not the provider's, such as ANTHROPIC_API_KEY.
    `base_url` replaces the provider's address. `max_concurrent` limits the connections, `timeout` is for one try of
    a request, and `max_retries` limits the tries. `thinking_budget` is the most tokens of reasoning, 0 the
    provider's own. `outputs` replaces the provider's server in tests of `mockllm`.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key_var: str | None = None,
        temperature: float | None = 0.0,
        top_p: float = 1.0,
        max_tokens: int = 512,
        stop: Sequence[str] = (),
        timeout: float = 300.0,
        max_retries: int = 6,
        max_concurrent: int = 16,
        price: Price | str | None = None,
        reasoning_effort: str = "",
        thinking_budget: int = 0,
        extra_body: str = "",
        headers: Sequence[str] = (),
        outputs: Any = None,
    ) -> None:
        super().__init__()
        from inspect_ai.model import GenerateConfig

        if "/" not in model:
            raise UsageError(f"inspect:{model} needs a provider and a model's name, as in {EXAMPLE}.")
        self.name = model
        self.price = (Price.parse(price) if isinstance(price, str) else price) or Price()
        self._key = api_key(api_key_var)
        headers_by_name = parsed_headers(headers)
        fields: dict[str, Any] = {
            "temperature": temperature,
            "top_p": top_p if top_p < 1 else None,
            "max_tokens": max_tokens,
            "stop_seqs": list(stop) or None,
            "reasoning_effort": reasoning_effort or None,
            "reasoning_tokens": thinking_budget or None,
            "extra_body": json.loads(extra_body) if extra_body else None,
            "extra_headers": headers_by_name or None,
            "attempt_timeout": max(1, round(timeout)),
            "max_retries": max_retries,
            "max_connections": max_concurrent,
        }
        self._fields = {name: value for name, value in fields.items() if value is not None}
        try:
            self._config = GenerateConfig(**self._fields)
        except ValueError as error:  # of pydantic, for example an unknown reasoning effort
            raise UsageError(f"inspect:{model}: {one_line(str(error))[:MOST_ERROR]}") from error
        self._defaulted = [] if temperature is not None else ["temperature"]
        self._messages = ProviderMessages()
        self._notes = _Notes()
        self._model = self._open(base_url, self._options(outputs))
        keys = (self._key, getattr(self._model.api, "api_key", None), *headers_by_name.values())
        self._secrets = [key for key in keys if isinstance(key, str) and len(key) >= 4]

    def _open(self, base_url: str | None, options: dict[str, Any]) -> Any:
        """Returns inspect's model. Raises MissingExtra for a missing package, UsageError for a name or key."""
        from inspect_ai._util.error import PrerequisiteError
        from inspect_ai.model import get_model

        try:
            return get_model(self.name, base_url=base_url, api_key=self._key or None, memoize=False, **options)
        except (PrerequisiteError, ValueError) as error:
            message = _plain(str(error)).rstrip(".")
            provider = self.name.partition("/")[0]
            if "not recognized" in message:
                raise UsageError(
                    f"inspect:{self.name}: inspect_ai has no provider {provider!r}. It has "
                    f"{', '.join(PROVIDERS)} and others.{did_you_mean(provider, PROVIDERS)}"
                ) from error
            if "install" in message:
                problem = _COMMAND.sub("", message)
                hint = INSTALL.get(provider)
                raise MissingExtra(f"inspect:{self.name}: {f'{problem}: {hint}' if hint else message}") from error
            raise UsageError(f"inspect:{self.name}: {message}. --api-key-var names another variable.") from error

    def _options(self, outputs: Any) -> dict[str, Any]:
        """Returns the provider's own options: for `mockllm`, its replies."""
        if outputs is None and self.name.startswith("mockllm/"):
            outputs = _mock_outputs()
        return {} if outputs is None else {"custom_outputs": outputs}

    def connection(self) -> dict[str, Any]:
        entries = {"defaulted": self._defaulted, "provider_warnings": self._notes.lines}
        entries = {name: value for name, value in entries.items() if value}
        return {"request_fields": entries} if entries else {}

    def close(self) -> None:
        super().close()
        self._notes.close()

    async def _disconnect(self) -> None:
        await self._model.api.aclose()

    async def _answer(self, prompt: Prompt, home: int) -> Reply:
        if plain_text(prompt.messages) is not None:
            raise UsageError(f"inspect:{self.name} reads conversations, and the protocol's prompt is plain text.")
        for messages, dropped in shortened(prompt.messages):
            reply = await self._ask(prompt, messages)
            if reply is not None:
                reply.dropped_turns = dropped
                self._messages.remember(prompt, reply, reply.extra.pop("message", {}))
                return reply
        return Reply("", finish_reason="context", dropped_turns=dropped)

    async def _ask(self, prompt: Prompt, messages: Sequence[Message]) -> Reply | None:
        """Returns the reply to a request; None if the prompt is too long. Raises UsageError."""
        fields = {"seed": prompt.seed % 2**31, **({"parallel_tool_calls": False} if prompt.tools else {})}
        config = self._config.model_copy(update=fields)
        try:
            output = await self._model.generate(
                self._messages.converted(prompt, messages), tool_infos(prompt.tools), config=config
            )
        except Exception as error:  # each provider raises other types
            return self._failed(error)
        if output.error:
            status = _STATUS.search(output.error)
            too_long = output.stop_reason == "model_length"
            return None if too_long else self._judged(int(status[1]) if status else None, output.error)
        if not output.choices:
            return self._judged(None, "the answer is empty")
        return self._reply(output)

    def _reply(self, output: Any) -> Reply:
        message, usage = output.message, output.usage
        length = output.stop_reason in ("max_tokens", "model_length")
        text = self._hidden(sendable(joined(reasoning_of(message), message.text)))
        if not length:
            text = closed(text, self._fields.get("stop_seqs", ()))
        calls = tuple(ToolCall(*map(self._hidden, call)) for call in calls_in(message))
        reply = Reply(text, finish_reason="length" if length else "stop", calls=calls)
        if usage is not None:
            cached = usage.input_tokens_cache_read or 0
            reply.input_tokens = usage.input_tokens + cached + (usage.input_tokens_cache_write or 0)
            reply.cached_tokens, reply.output_tokens = cached, usage.output_tokens
            reply.reasoning_tokens = usage.reasoning_tokens or 0
            cost = self.price.of(reply.input_tokens, reply.output_tokens)
            reply.cost = usage.total_cost if usage.total_cost is not None else cost
        if message_values := as_json(message, reply):
            reply.extra["message"] = message_values
        return reply

    def _failed(self, error: Exception) -> Reply | None:
        """Returns the reply for a request that failed; None if the prompt is too long. Raises UsageError."""
        error = _cause(error)
        return self._judged(_status(error), _words(error))

    def _judged(self, status: int | None, text: str) -> Reply | None:
        """Returns the reply for an error of a provider, as `_failed`; `status` is its HTTP status, if it is known."""
        message = self._hidden(one_line(_plain(_message(text)))[:MOST_ERROR])
        description = f"{self.name} answered {status}: {message}" if status else f"{self.name}: {message}"
        lower = message.lower()
        if status == 413 or (status == 400 and any(words in lower for words in TOO_LONG)):
            return None
        if status in (401, 403):
            raise UsageError(f"{description}; the key was refused: --api-key-var names another variable.")
        if status == 404:
            raise UsageError(f"{description}; is {self.name.partition('/')[2]!r} a model of this provider?")
        if status in REFUSALS:
            if "temperature" in lower and "temperature" in self._fields:
                raise UsageError(f"{description}. Use --temperature default.")
            for name, flag in FLAGS.items():
                if name in lower and name in self._fields:
                    raise UsageError(f"{description}. This model does not accept {name}: leave out {flag}.")
            return Reply("", finish_reason="refused", error=description)
        return Reply("", finish_reason="silent", error=description)

    def _hidden(self, text: str) -> str:
        return hidden(text, self._secrets)


def _mock_outputs() -> Iterator[Any]:
    """Yields the replies of `mockllm` with their usage, 0 tokens. Without it, inspect counts tokens with a file from
    the internet.
    """
    from inspect_ai.model import ModelOutput, ModelUsage

    while True:
        output = ModelOutput.from_content("mockllm/model", "Default output from mockllm/model")
        output.usage = ModelUsage()
        yield output


class _Notes(logging.Handler):
    """Collects inspect's warnings, for example about settings that a provider ignores."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        logging.getLogger("inspect_ai").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        line = one_line(_plain(record.getMessage()))[:MOST_ERROR]
        if line not in self.lines and len(self.lines) < MOST_NOTES:
            self.lines.append(line)

    def close(self) -> None:
        logging.getLogger("inspect_ai").removeHandler(self)
        super().close()


def _plain(text: str) -> str:
    """Removes rich's markup, which inspect uses in its messages."""
    from rich.errors import MarkupError
    from rich.text import Text

    try:
        return " ".join(Text.from_markup(text).plain.removeprefix("ERROR: ").split())
    except MarkupError:
        return " ".join(text.split())


def _cause(error: Exception) -> Exception:
    """Returns the provider's own error, which inspect wraps: in its retries, and with the whole request."""
    attempt = getattr(error, "last_attempt", None)
    cause = attempt.exception() if attempt is not None else error.__cause__
    wraps = hasattr(error, "provider_message") or not _status(error)
    return _cause(cause) if isinstance(cause, Exception) and wraps else error


def _words(error: Exception) -> str:
    """Returns an error's message, without the request that inspect puts before it."""
    return str(getattr(error, "provider_message", None) or error or type(error).__name__)


def _message(text: str) -> str:
    """Returns the message in a provider's error: often "Error code: 401 - ", and a text or a Python dictionary."""
    text = _PREFIX.sub("", text)
    match = _BODY.fullmatch(text)
    try:
        body = ast.literal_eval(match[1]) if match else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
    error = body.get("error", body) if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) and message else text


def _status(error: Exception) -> int | None:
    """Returns the HTTP status of a provider's error, if it has one."""
    for name in ("status_code", "code"):
        if isinstance(status := getattr(error, name, None), int):
            return status
    return None


def identity_of(model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Identifies a hosted model by its name, its address and its price, which is part of a record."""
    return {
        "served": model,
        "servers": [public_url(options.get("base_url") or "the provider")],
        "price": str(options.get("price") or ""),
        "thinking_budget": options.get("thinking_budget", 0),
    }
