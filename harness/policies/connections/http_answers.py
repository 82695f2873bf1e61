"""An HTTP client that reads answers whole but bounded, and parses their JSON with
`envsuite.reading`.
"""

from __future__ import annotations

import json
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
