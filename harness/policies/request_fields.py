"""Fields of requests to chat servers: which are sent, which a server refused, and the flag that cures it.

A field on which the result does not depend is dropped when a server refuses it. For other fields the run
ends with the flag to change. `RequestFields.changes` is what the run's config.json stores.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Sequence
from typing import Any

from envsuite.errors import UsageError
from harness.policies.connections.failures import TooLong

OPTIONAL = ("seed", "chat_template_kwargs", "stop", "parallel_tool_calls")
"""Request fields that a server may refuse, because results do not depend on them."""
FLAGS = {
    "top_p": "--top-p",
    "reasoning_effort": "--reasoning-effort",
    "thinking_token_budget": "--thinking-budget",
    "thinking_budget_tokens": "--thinking-budget",
}
"""Request fields that a server may refuse, and the flag that the user then leaves out."""
TOO_LONG = ("context length", "context_length", "context size", "too long", "too many tokens")
"""Words of servers that refuse a prompt because of its length."""
_TOOLS = re.compile(r"\btools\b|\btool[ _](choice|use|calling)\b|\bfunction[ _]calling\b", re.IGNORECASE)
_UNABLE = re.compile("requir|support|permit|allow|recogni[sz]|unknown|unexpected", re.IGNORECASE)
MOST_STOPS = 4
"""Stop strings that the protocol allows."""


class RequestFields:
    """The fields that every request of a policy has, changed by what its servers refuse.

    `temperature` None leaves the value to the server, and `extra_body` is a JSON object whose fields are
    added. `switches_thinking` sends `thinking` False to chat templates that support it (vLLM, SGLang).
    """

    def __init__(
        self,
        *,
        max_tokens: int,
        temperature: float | None = 0.0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        thinking: bool = True,
        switches_thinking: bool = False,
        reasoning_effort: str = "",
        extra_body: str = "",
    ) -> None:
        self.values: dict[str, Any] = {"max_tokens": max_tokens, **(json.loads(extra_body) if extra_body else {})}
        self._dropped: set[str] = set()
        self._defaulted = [] if temperature is not None else ["temperature"]
        if temperature is not None:
            self.values["temperature"] = temperature
        if reasoning_effort:
            self.values["reasoning_effort"] = reasoning_effort
        if top_p < 1:
            self.values["top_p"] = top_p
        if stop:
            self.values["stop"] = list(stop)[:MOST_STOPS]
        if not thinking and switches_thinking:
            self.values["chat_template_kwargs"] = {"enable_thinking": False}

    def changes(self) -> dict[str, Any]:
        """Returns the fields that servers refused (`dropped`), that have another name (`renamed`), and that
        are left to the server (`defaulted`); {} if there are none.
        """
        changes: dict[str, Any] = {"dropped": sorted(self._dropped), "defaulted": self._defaulted}
        if "max_completion_tokens" in self.values and "max_tokens" not in self.values:
            changes["renamed"] = {"max_tokens": "max_completion_tokens"}
        return {name: value for name, value in changes.items() if value}

    def without_dropped(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns a request's body without the fields that servers have refused."""
        return {name: value for name, value in body.items() if name not in self._dropped}

    def adapt(self, server: str, refusal: str, status: int, body: dict[str, Any]) -> bool:
        """Removes or renames the field of `body` that a server refused; returns False if it named none.

        `refusal` is the server's message. Raises TooLong for a prompt that is too long, and UsageError for a
        field that only the user can change.
        """
        message = refusal.lower()
        description = f"{server} answered {status}: {refusal}"
        if status == 413 or any(words in message for words in TOO_LONG):
            raise TooLong(description)
        if "max_completion_tokens" in message and "max_tokens" in self.values:
            self.values["max_completion_tokens"] = self.values.pop("max_tokens")
            return True
        if "max_completion_tokens" in self.values and "max_tokens" in body:
            return True  # another request has already renamed the field
        if "temperature" in message and "temperature" in body:
            raise UsageError(
                f"{description}. This model does not accept temperature {body['temperature']:g}: "
                "use --temperature default."
            )
        for name, flag in FLAGS.items():
            if name in body and name in message:
                raise UsageError(f"{description}. This model does not accept {name}: leave out {flag}.")
        for name in OPTIONAL:
            if name in body and name in message:
                if name not in self._dropped:
                    self._dropped.add(name)
                    warnings.warn(f"{server} does not accept {name!r}: requests omit it.", stacklevel=2)
                return True
        return False


def refuses_tools(message: str) -> bool:
    """Returns True if a server's error says that it takes no declared tools."""
    return bool(_TOOLS.search(message) and _UNABLE.search(message))


def parsed_headers(words: Sequence[str]) -> dict[str, str]:
    """Parses NAME:VALUE words. Raises UsageError."""
    headers = {}
    for word in words:
        name, colon, value = word.partition(":")
        if not colon or not name.strip() or not word.isascii() or not word.isprintable():
            raise UsageError(
                "--header takes NAME:VALUE in printable ASCII (the word is not repeated here: it may be secret)."
            )
        headers[name.strip()] = value.strip()
    return headers
