"""Refusal of numbers that are not finite, before weights take a step with them."""

from __future__ import annotations

import math

from envsuite.errors import EnvsuiteError


class NonFiniteLoss(EnvsuiteError):
    """A loss or gradient is NaN or infinite. No step was taken with it, and the last checkpoint is
    intact."""


def check_finite(value: float, name: str) -> None:
    """Raises NonFiniteLoss if `value` is NaN or infinite."""
    if not math.isfinite(value):
        raise NonFiniteLoss(f"The {name} is {value}: lower the learning rate, or clip the gradient harder.")
