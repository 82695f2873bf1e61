"""Whether servers hold one and the same model, and still the one they began with.

A fixed question is answered greedily, with log-probs where the server gives them, before a server's first request and after
every failure that a restart may lie behind. Weights that are one training step apart can look alike; another checkpoint,
another size or another quantisation does not.
"""

from __future__ import annotations

import asyncio
import json
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from envsuite.cache import write_atomically
from envsuite.errors import DataError
from harness.policies.chat_completions import shown

QUESTION = "Name ten animals, one for each of ten letters of your choice."
TOKENS = 12
TOLERANCE = 0.2
"""nats by which a token's log-prob may differ: other batches and kernels make hundredths"""


@dataclass(frozen=True)
class Fingerprint:
    """What a server says of its model, and what the model says to the question."""

    root: str
    """where its weights come from (vLLM, SGLang); '' where the server does not say"""
    text: str
    tokens: tuple[tuple[str, float], ...] = ()
    """with their log-probs; () where the server gives none"""

    @classmethod
    def read(cls, path: Path) -> Fingerprint:
        """What `write` has written. Raises DataError."""
        try:
            found = json.loads(path.read_bytes())
            tokens = tuple((str(token), float(logprob)) for token, logprob in found["tokens"])
            return cls(str(found["root"]), str(found["text"]), tokens)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path} does not tell which weights the run began with ({type(error).__name__}: {error}): remove it to go on "
                "without knowing."
            ) from error

    def write(self, path: Path) -> None:
        write_atomically(path, json.dumps(asdict(self), indent=2) + "\n")

    def differs(self, other: Fingerprint) -> str:
        """In what, in words; '' where both may be the same weights."""
        if self.root and other.root and self.root != other.root:
            return f"it serves {other.root}, not {self.root}"
        if self.tokens and other.tokens:
            for (one, before), (two, after) in zip(self.tokens, other.tokens):
                near = abs(before - after) < TOLERANCE
                if one == two and not near:
                    return f"the log-prob of {one!r} is {after:.2f}, not {before:.2f}"
                if one != two:
                    tie = near and max(before, after) < -0.5  # two likeliest tokens: each has less than a half
                    return "" if tie else f"it says {two!r} where {one!r} was said"
            return ""
        return "" if self.text == other.text else f"it says {other.text[:40]!r}, not {self.text[:40]!r}"


class Weights:
    """Keeps watch over the servers of a policy. `model` is what they call it."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._first: tuple[str, Fingerprint] | None = None  # and whose it is; "": of an earlier call
        self._path: Path | None = None
        self._sure: set[str] = set()
        self._locks: dict[str, asyncio.Lock] = {}

    def keep(self, path: Path) -> None:
        """From now on servers must hold what `path` says a run began with; where there is no such file, it is written."""
        self._path = path
        if path.exists():
            self._first = "", Fingerprint.read(path)
            self._sure.clear()
        elif self._first is not None:
            self._first[1].write(path)

    def doubt(self, server: str) -> None:
        """It failed: when it answers again, it may be another."""
        self._sure.discard(server)

    async def check(self, client: httpx.AsyncClient, server: str) -> None:
        """Raises DataError where the server's weights are not those of the run; httpx.HTTPError where it does not answer."""
        if server in self._sure:
            return
        async with self._locks.setdefault(server, asyncio.Lock()):
            if server in self._sure:
                return
            found = await self._fingerprint(client, server)
            if found is not None and self._first is None:
                self._first = server, found
                if self._path is not None:
                    found.write(self._path)
            elif found is not None and self._first is not None and (how := self._first[1].differs(found)):
                first = self._first[0]
                where = "came back with" if server == first else f"and {shown(first)} hold" if first else "now holds"
                than = "" if first else " than this run began with"
                raise DataError(
                    f"{shown(server)} {where} other weights{than}: asked a fixed question, {how}. What has ended is kept: put the "
                    "model back and go on with --resume, or play it as a run of its own with another --output-dir."
                )
            self._sure.add(server)

    async def _fingerprint(self, client: httpx.AsyncClient, server: str) -> Fingerprint | None:
        """None where the server cannot be told apart from another."""
        found = await self._ask(client, server, {"logprobs": True}) or await self._ask(client, server, {})
        if found is None or found.tokens or self._first is not None:
            return found
        if await self._ask(client, server, {}) != found:
            warnings.warn(
                f"{shown(server)} answers a greedy question twice in two ways: its weights go unwatched.", stacklevel=2
            )
            return None
        return found

    async def _ask(self, client: httpx.AsyncClient, server: str, more: dict[str, Any]) -> Fingerprint | None:
        question = [{"role": "user", "content": QUESTION}]
        body = {"model": self._model, "messages": question, "temperature": 0.0, "max_tokens": TOKENS, "seed": 0, **more}
        answer = await client.post(f"{server}/chat/completions", json=body)
        if answer.status_code == 429 or answer.status_code >= 500:
            answer.raise_for_status()
        try:
            first = answer.json()["choices"][0]
            text = str(first["message"].get("content") or "")
            tokens = [
                (one["token"], float(one["logprob"])) for one in (first.get("logprobs") or {}).get("content") or ()
            ]
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            return None  # refused, or no chat completion: the run's own request will be told so
        try:
            listed = (await client.get(f"{server}/models")).json()["data"]
            roots = [str(one.get("root") or "") for one in listed if one.get("id") == self._model]
        except (ValueError, KeyError, TypeError, AttributeError):
            roots = []
        return Fingerprint(roots[0] if roots else "", text, tuple(tokens))
