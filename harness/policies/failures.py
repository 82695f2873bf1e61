"""Failures of requests to model servers, and the API key."""

from __future__ import annotations

import os

from envsuite.errors import UsageError

TEMPORARY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
"""Status codes after which the same request may succeed."""


class TemporaryError(Exception):
    """A failure that may pass. `after` is the pause in seconds that the server requests."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class Refused(Exception):
    """The server refuses this prompt."""


class TooLong(Exception):
    """The prompt does not fit the model's context."""


def api_key(variable: str | None) -> str:
    """Returns the key in an environment variable. Raises UsageError without repeating it."""
    if variable is None:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UsageError(
            f"The environment variable {variable} has no key: export {variable}=..., or name another variable with "
            "--api-key-var."
        )
    if not key.isascii() or not key.isprintable() or " " in key:  # an HTTP library would quote it in its error
        raise UsageError(f"The environment variable {variable} is not a key: use one word of ASCII characters.")
    return key
