"""Every error envsuite raises itself. Each message names the thing, the value and the cure, in one line.

EnvsuiteError
├── UsageError        what the caller asked for cannot be done as asked
│   ├── UnknownTask   no task of that id
│   ├── BadKnob       no such knob, or a value outside its range
│   └── UntrustedKnob a knob of a recorded file that only the user's own flags may set
├── MissingExtra      an optional engine is not installed; names the pip command
├── DataError         a file (game, journal, dataset) is missing, unreadable or malformed
│   └── MissingData   data that every user fetches himself is not on this machine
└── EngineFailure     an engine broke in the middle of an episode: the episode is `broken`, never reward 0
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EnvsuiteError(Exception):
    """Base of the errors below."""


class UsageError(EnvsuiteError, ValueError):
    """What the caller asked for cannot be done as asked."""


class UnknownTask(UsageError, LookupError):
    """No task of that id."""

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
    """Data that every user fetches himself is not on this machine."""


class EngineFailure(EnvsuiteError, RuntimeError):
    """An engine broke in the middle of an episode."""


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """' Did you mean 'x'?' for the nearest of `known` (case ignored), or ''."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(wrong.lower(), by_lower, n=1, cutoff=0.5)
    return f" Did you mean {by_lower[near[0]]!r}?" if near else ""
