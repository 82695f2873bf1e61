"""One case of the committed numbers: how it is drawn, and how it is written."""

from __future__ import annotations

from typing import Any

import numpy as np

Case = dict[str, Any]


def case(name: str, params: dict[str, Any], inputs: dict[str, Any], expected: Any) -> Case:
    """One case with plain lists in place of arrays."""
    return {"name": name, "params": params, "inputs": inputs, "expected": expected}


def draw(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Normal numbers with six decimals."""
    return np.round(rng.normal(size=shape), 6)


def plain(value: Any) -> Any:
    """Arrays as lists, numbers as Python's own, floats with 13 decimals."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return round(float(value), 13) + 0.0
    return value.item() if isinstance(value, np.integer) else value
