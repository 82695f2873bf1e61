"""HTTP clients for many requests at a time, which read answers whole but bounded, and parsing of
these answers with `envsuite.reading`.
"""

from __future__ import annotations

import functools
import json
import ssl
from typing import Any

import httpx

from envsuite.reading import parse_json

MOST_ANSWER = 32 * 2**20
"""bytes of an answer, after decompression"""
_OF_TRANSFER = ("content-encoding", "content-length", "transfer-encoding")


class AnswerTooLarge(httpx.DecodingError):
    """An answer with more than `MOST_ANSWER` bytes."""


class BoundedClient(httpx.AsyncClient):
    """An `httpx.AsyncClient` that stops reading an answer at `MOST_ANSWER` bytes, and then raises
    AnswerTooLarge.
    """

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        response = await super().send(request, **{**options, "stream": True})
        content = bytearray()
        try:
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > MOST_ANSWER:
                    raise AnswerTooLarge(f"the answer has more than {MOST_ANSWER / 2**20:.0f} MB", request=request)
        finally:
            await response.aclose()
        headers = [(name, value) for name, value in response.headers.multi_items() if name not in _OF_TRANSFER]
        return httpx.Response(response.status_code, headers=headers, content=bytes(content), request=request)


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Returns the trusted certificates, which take longer to read than a request takes."""
    return httpx.create_ssl_context()


class ClientPool:
    """HTTP clients that each send one request at a time.

    A single `httpx.AsyncClient` looks at all of its connections for every request: with 256 of them
    that takes 20 ms of CPU time. The client that was used last is used first, so that there are no
    more connections than requests in flight.
    """

    def __init__(self, **options: Any) -> None:
        """`options` are passed to every client."""
        self._options = {"verify": _certificates(), **options}
        self._clients: list[BoundedClient] = []
        self._idle: list[BoundedClient] = []

    async def get(self, url: str, **options: Any) -> httpx.Response:
        """Sends a GET request. Raises httpx.HTTPError."""
        return await self._request("GET", url, options)

    async def post(self, url: str, **options: Any) -> httpx.Response:
        """Sends a POST request. Raises httpx.HTTPError."""
        return await self._request("POST", url, options)

    async def _request(self, method: str, url: str, options: dict[str, Any]) -> httpx.Response:
        if not self._idle:
            self._idle.append(BoundedClient(**self._options))
            self._clients.append(self._idle[-1])
        client = self._idle.pop()
        try:
            return await client.request(method, url, **options)
        finally:
            self._idle.append(client)

    async def aclose(self) -> None:
        """Closes all connections."""
        for client in self._clients:
            await client.aclose()


def body_of(answer: httpx.Response) -> Any:
    """Returns the JSON of an answer. Raises ValueError."""
    return parse_json(answer.content)


def text_of(answer: httpx.Response) -> str:
    """Returns an answer's text. It is read as UTF-8, because the charset in the header may be
    anything.
    """
    return answer.content.decode("utf-8", "replace")


def encode(body: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments that send `body` as JSON; lone surrogates, which UTF-8 cannot encode,
    become '?'.
    """
    content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")
    return {"content": content, "headers": {"Content-Type": "application/json"}}
