"""Weight checks for model servers: all servers of a run must hold the same weights until its end.

Each server answers a fixed question greedily, with log-probs if it supports them, before its first
request and after every failure that may hide a restart. The check detects another checkpoint, size
or quantisation. Weights that are a single training step apart can look the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from envsuite.errors import DataError
from envsuite.escaping import public_url
from harness.policies.connections.http_answers import ClientPool, body_of, encode
from harness.policies.identities import Fingerprint

QUESTION = "Name ten animals, one for each of ten letters of your choice."
TOKENS = 12
MOST_TEXT = 1000
"""Characters of a server's texts that are compared."""


class Weights:
    """Watches the weights of a policy's servers. `model` is the model's name on the servers."""

    def __init__(self, model: str, hide: Callable[[str], str] = str) -> None:
        """`hide` removes secrets from texts that are stored."""
        self._model = model
        self._hide = hide
        self._reference: tuple[str, Fingerprint] | None = None  # server and fingerprint; server "": an earlier call
        self._path: Path | None = None
        self._checked: set[str] = set()
        self._locks: dict[str, asyncio.Lock] = {}

    def keep(self, path: Path) -> None:
        """Compares servers with the fingerprint in `path`; writes that file if it does not exist."""
        self._path = path
        if path.exists():
            self._reference = "", Fingerprint.read(path)
            self._checked.clear()
        elif self._reference is not None:
            self._reference[1].write(path)

    def hash(self) -> str:
        """Returns the hash of the answer's text; '' before the first answer.

        The server's name for the weights may be a path, and log-probs depend on the batch, so neither
        is included.
        """
        if self._reference is None:
            return ""
        return hashlib.sha256(self._reference[1].text.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    def doubt(self, server: str) -> None:
        """Requests a new check of a server, which may restart with other weights after a failure."""
        self._checked.discard(server)

    async def check(self, client: ClientPool, server: str) -> None:
        """Raises DataError if a server's weights differ from the weights of the run, httpx.HTTPError if it
        does not answer.
        """
        if server in self._checked:
            return
        async with self._locks.setdefault(server, asyncio.Lock()):
            if server in self._checked:
                return
            fingerprint = await self._fingerprint(client, server)
            if fingerprint is not None and self._reference is None:
                self._reference = server, fingerprint
                if self._path is not None:
                    fingerprint.write(self._path)
            elif fingerprint is not None and self._reference is not None:
                self._compare(server, fingerprint)
            self._checked.add(server)

    async def ask(self, client: Callable[[], ClientPool], servers: Sequence[str], timeout: float) -> Fingerprint | None:
        """Checks the first server that answers; returns the weights that all servers must hold, None if
        answers do not identify them. Raises OSError if no server answers.
        """
        failure = ""
        for server in servers:
            try:
                async with asyncio.timeout(timeout):
                    await self.check(client(), server)
                return self._reference and self._reference[1]
            except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
                failure = f"{public_url(server)}: {type(error).__name__}"
        raise OSError(failure)

    def _compare(self, server: str, fingerprint: Fingerprint) -> None:
        assert self._reference is not None
        first, expected = self._reference
        difference = expected.difference(fingerprint)
        if not difference:
            return
        if not first:
            event = "now holds other weights than this run began with"
        elif server == first:
            event = "came back with other weights"
        else:
            event = f"and {public_url(first)} hold other weights"
        raise DataError(
            f"{public_url(server)} {event}: asked a fixed question, {difference}. Finished episodes are kept: restore "
            "the model and continue with --resume, or start another run with another --output-dir."
        )

    async def _fingerprint(self, client: ClientPool, server: str) -> Fingerprint | None:
        """Returns None if the server's answers do not identify its weights."""
        fingerprint = await self._ask(client, server, {"logprobs": True}) or await self._ask(client, server, {})
        if fingerprint is None or fingerprint.tokens or self._reference is not None:
            return fingerprint
        if await self._ask(client, server, {}) != fingerprint:
            warnings.warn(
                f"{public_url(server)} gives two answers to the same greedy question: its weights are not checked.",
                stacklevel=2,
            )
            return None
        return fingerprint

    async def _ask(self, client: ClientPool, server: str, options: dict[str, Any]) -> Fingerprint | None:
        question = [{"role": "user", "content": QUESTION}]
        body = {"model": self._model, "messages": question, "temperature": 0.0, "max_tokens": TOKENS, "seed": 0}
        answer = await client.post(f"{server}/chat/completions", **encode({**body, **options}))
        if answer.status_code == 429 or answer.status_code >= 500:
            answer.raise_for_status()
        try:
            first = body_of(answer)["choices"][0]
            reply = str(first["message"].get("content") or "")
            text = self._hide(reply)
            content = (first.get("logprobs") or {}).get("content") or ()
            if text != reply:  # the tokens would spell the key
                content = ()
            tokens = [(self._hide(str(entry["token"])), float(entry["logprob"])) for entry in content[:TOKENS]]
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            return None  # refused or invalid: the run's own requests report the error
        return Fingerprint(await self._root(client, server), text[:MOST_TEXT], tuple(tokens))

    async def _root(self, client: ClientPool, server: str) -> str:
        """Returns the source of the weights from the server's list of models; '' if it names none.

        A server whose list fails may drop the connection without saying so (`transformers serve`
        without a hub cache), so this connection is not used again.
        """
        try:
            models = body_of(await client.get(f"{server}/models", headers={"Connection": "close"}))["data"]
            roots = [str(model.get("root") or "") for model in models if model.get("id") == self._model]
        except (httpx.HTTPError, ValueError, LookupError, TypeError, AttributeError):
            return ""
        return self._hide(roots[0])[:MOST_TEXT] if roots else ""
