"""Scores of the environment's own programs, kept on disk (`remembered`)."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, TypeVar

from envsuite.cache import cache_dir, write_atomically

Result = TypeVar("Result")


def remembered(parts: Sequence[Any], read: Callable[[Any], Result], compute: Callable[[], Any]) -> Result:
    """Returns `read` of a JSON value from the cache, or of what `compute` returns, which is then stored.

    `parts` is what the value depends on, besides the versions of scikit-learn and numpy. A damaged file is computed
    again: `read` raises ValueError, TypeError or KeyError for it.
    """
    key = json.dumps([*parts, version("scikit-learn"), version("numpy")])
    path = cache_dir("datascicoding", "references") / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # not there, or damaged
        return read(json.loads(path.read_text()))
    value = compute()
    write_atomically(path, json.dumps(value))
    return read(value)
