"""The assertion that all checks use, and the error of a check that does not apply."""

from __future__ import annotations


class NotJudged(Exception):
    """Raised by a check that passes no judgement on an environment; the message says why."""


def demand(holds: bool, message: str) -> None:
    """Raises AssertionError with the message unless the property holds."""
    if not holds:
        raise AssertionError(message)
