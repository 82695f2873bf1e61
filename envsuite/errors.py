"""Exceptions that envsuite raises. Each message names the thing, the value and the remedy in one line.

EnvsuiteError
├── UsageError        the request is invalid
│   ├── UnknownTask   no task has that id
│   ├── BadKnob       no such knob, or a value outside its range
│   └── UntrustedKnob a knob of a recorded file that only the user's own flags may set
├── MissingExtra      an optional engine is not installed; the message names the pip command
├── DataError         a file (game, record, data set) is missing, unreadable or malformed
│   └── MissingData   data that users must download themselves are not on this machine
└── EngineFailure     an engine failed during an episode: the episode is `broken`, never scored as 0
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EnvsuiteError(Exception):
    """Base class of all errors in this module."""


class UsageError(EnvsuiteError, ValueError):
    """The request is invalid."""


class UnknownTask(UsageError, LookupError):
    """No task has that id."""

    def __str__(self) -> str:  # LookupError would print the repr
        return str(self.args[0]) if self.args else ""


class BadKnob(UsageError):
    """No such knob, or a value outside its range."""


class UntrustedKnob(UsageError):
    """A knob of a recorded file that only the user's own flags may set."""


class MissingExtra(EnvsuiteError, ImportError):
    """An optional engine is not installed."""


class DataError(EnvsuiteError):
    """A file is missing, unreadable or malformed."""


class MissingData(DataError):
    """Data that users must download themselves are not on this machine."""


class EngineFailure(EnvsuiteError, RuntimeError):
    """An engine failed during an episode."""


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Returns " Did you mean 'x'?" for the closest of `known` (case ignored), or ''."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(wrong.lower(), by_lower, n=1, cutoff=0.5)
    return f" Did you mean {by_lower[near[0]]!r}?" if near else ""
