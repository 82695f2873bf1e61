"""The assertion that all checks use."""

from __future__ import annotations


def demand(holds: bool, message: str) -> None:
    """Raises AssertionError with the message unless the property holds."""
    if not holds:
        raise AssertionError(message)
