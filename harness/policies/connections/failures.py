"""Failures of requests to model servers: kinds, failures in a row, and the API key."""

from __future__ import annotations

import os

from envsuite.errors import UsageError
from harness.types import Reply

TEMPORARY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
"""Status codes after which the same request may succeed."""


SILENT_ROUNDS = 3
"""The run ends after this many failed replies in a row per prompt in flight, instead of breaking
all its episodes.
"""
REFUSALS = 10
"""Number of failed replies in a row that a run survives at least if one of them is a refusal."""


class TemporaryError(Exception):
    """A failure that may pass. `after` is the pause in seconds that the server requests."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class Refused(Exception):
    """The server refuses this prompt."""


class FailureStreak:
    """Counts failed replies in a row, and decides when they end a run.

    "In a row" means in the order in which the prompts were submitted, so that the order in which
    replies arrive does not matter. A run ends after as many failures as prompts were in flight if
    no server has ever answered. Otherwise it ends after SILENT_ROUNDS times as many. If a server
    refuses prompts, at least REFUSALS in a row are needed, because other prompts may be accepted.
    """

    def __init__(self) -> None:
        self.length = 0
        self._answered = self._refused = False
        self._most_pending = self._submitted = self._counted = 0
        self._numbers: dict[int, int] = {}  # by ticket: position in the order of submission
        self._waiting: dict[int, str] = {}  # by position: failures that wait for an earlier reply

    def submitted(self, ticket: int) -> None:
        """Adds a prompt."""
        self._numbers[ticket] = self._submitted
        self._submitted += 1
        self._most_pending = max(self._most_pending, len(self._numbers))

    def replied(self, ticket: int, reply: Reply) -> bool:
        """Counts the reply to a prompt. Returns True if the run should end."""
        self._waiting[self._numbers.pop(ticket)] = reply.error and reply.finish_reason
        ends = False
        while self._counted in self._waiting:
            failure = self._waiting.pop(self._counted)
            self._counted += 1
            self.length = self.length + 1 if failure else 0
            self._refused = failure == "refused" or (self._refused and self.length > 0)
            self._answered = self._answered or failure in ("", "refused")
            ends = ends or self.length >= self._limit()
        return ends

    def _limit(self) -> int:
        if not self._answered:
            return self._most_pending
        return max(self._most_pending * SILENT_ROUNDS, REFUSALS if self._refused else 0)

    def cancel(self) -> None:
        """Forgets all prompts without a reply, and the failures in a row."""
        self._numbers.clear()
        self._waiting.clear()
        self._counted = self._submitted
        self._most_pending = self.length = 0
        self._refused = False


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
