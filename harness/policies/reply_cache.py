"""Cache of replies for deterministic settings: the same request to the same weights gets the stored reply.

Off unless `--reply-cache` is set. Files are below `replies/` in the cache folder, one per request. A stored
reply has the tokens and the cost of the request that was really sent, so that records do not change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envsuite.cache import cache_dir, write_atomically
from envsuite.errors import DataError, UsageError
from envsuite.reading import read_json
from harness.types import Reply, ToolCall

FIELDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("text", "finish_reason"), str),
    **dict.fromkeys(("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens"), int),
    "cost": (int, float),
    "estimated": (list, type(None)),
    "calls": list,
    "extra": dict,
}
"""Fields of a reply that are stored."""


class ReplyCache:
    """Stored replies. `requests` counts the look-ups, and `hits` the look-ups that found a reply."""

    def __init__(self, temperature: float | None) -> None:
        """Raises UsageError unless the temperature is 0, because a drawn reply must be drawn again."""
        if temperature != 0:
            value = "default" if temperature is None else f"{temperature:g}"
            raise UsageError(f"--reply-cache needs --temperature 0, not {value}: sampled replies must be drawn anew.")
        self._folder = cache_dir("replies")
        self.hits = self.requests = 0

    def get(self, request: Mapping[str, Any]) -> Reply | None:
        """Returns the stored reply to a request, which includes what identifies the weights; None if there is none."""
        self.requests += 1
        try:
            values = {"extra": {}, **read_json(self._path(request))}
            fields = {name: values[name] for name in FIELDS}
            fields["calls"] = [ToolCall(*map(str, call)) for call in fields["calls"]]
        except (DataError, ValueError, KeyError, TypeError):  # damaged files are written anew
            return None
        if not all(isinstance(fields[name], kind) for name, kind in FIELDS.items()):
            return None
        self.hits += 1
        estimated = fields.pop("estimated")
        calls = tuple(fields.pop("calls"))
        return Reply(**fields, calls=calls, estimated=None if estimated is None else tuple(estimated))

    def put(self, request: Mapping[str, Any], reply: Reply) -> None:
        """Stores a reply; one with an error is not stored."""
        if reply.error:
            return
        path = self._path(request)
        path.parent.mkdir(exist_ok=True)
        values = asdict(reply)
        write_atomically(path, json.dumps({name: values[name] for name in FIELDS}) + "\n")

    def counts(self) -> dict[str, int]:
        """Returns the counts for config.json."""
        return {"hits": self.hits, "requests": self.requests}

    def _path(self, request: Mapping[str, Any]) -> Path:
        text = json.dumps(request, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(text.encode()).hexdigest()
        return self._folder / digest[:2] / f"{digest[2:]}.json"
