"""Loopback servers that speak the documented interfaces of hosted providers: Anthropic's messages, Google's
generateContent, OpenAI's chat completions and responses.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.api.server import send, serving

TEXT, THOUGHT = "<action>look</action>", "The fridge is closed."


class Handler(BaseHTTPRequestHandler):
    server: Provider
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.requests.append((self.path, body, dict(self.headers)))
            status, payload = self.server.script.pop(0) if self.server.script else (200, self.server.answer(self.path))
        with contextlib.suppress(OSError):  # the client has given up
            if status == 200 and body.get("stream"):
                send(self, status, events(payload), Content_Type="text/event-stream")
            else:
                send(self, status, json.dumps(payload), x_request_id="one")

    def log_message(self, *_: object) -> None:
        pass


class Provider(ThreadingHTTPServer):
    """Answers every interface by its path. `requests` are (path, body, headers) as they came.

    `script` holds (status, JSON) of the next answers. With `cut`, replies end at the token limit.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.script: list[tuple[int, Any]] = []
        self.cut = False
        self.url = f"http://127.0.0.1:{self.server_port}"

    def answer(self, path: str) -> dict[str, Any]:
        for pattern, answer in ANSWERS.items():
            if re.search(pattern, path):
                return answer(self.cut)
        raise AssertionError(path)


def anthropic(cut: bool) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": [
            {"type": "thinking", "thinking": THOUGHT, "signature": "c2ln"},
            {"type": "text", "text": TEXT},
        ],
        "stop_reason": "max_tokens" if cut else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 20,
            "cache_read_input_tokens": 60,
            "cache_creation_input_tokens": 20,
            "output_tokens": 12,
        },
    }


def events(message: dict[str, Any]) -> str:
    """Returns an answer of `anthropic` as the events of a stream."""
    parts = []
    for index, block in enumerate(message["content"]):
        kind = block["type"]
        if kind == "tool_use":
            start = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        else:
            start = {"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {})
            deltas = [{"type": f"{kind}_delta", kind: block[kind]}]
            deltas += [{"type": "signature_delta", "signature": block["signature"]}] if kind == "thinking" else []
        parts.append({"type": "content_block_start", "index": index, "content_block": start})
        parts += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        parts.append({"type": "content_block_stop", "index": index})
    first = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
    last = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": message["usage"]["output_tokens"]}
    parts = [
        {"type": "message_start", "message": first},
        *parts,
        {"type": "message_delta", "delta": last, "usage": usage},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {part['type']}\ndata: {json.dumps(part)}\n\n" for part in parts)


def google(cut: bool) -> dict[str, Any]:
    return {
        "candidates": [
            {
                "index": 0,
                "content": {"role": "model", "parts": [{"text": THOUGHT, "thought": True}, {"text": TEXT}]},
                "finishReason": "MAX_TOKENS" if cut else "STOP",
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 100,
            "cachedContentTokenCount": 60,
            "candidatesTokenCount": 8,
            "thoughtsTokenCount": 4,
            "totalTokenCount": 112,
        },
        "modelVersion": "gemini-test",
        "responseId": "one",
    }


def chat(cut: bool) -> dict[str, Any]:
    message = {"role": "assistant", "content": TEXT, "reasoning_content": THOUGHT}
    return {
        "id": "one",
        "object": "chat.completion",
        "created": 1,
        "model": "test",
        "choices": [{"index": 0, "message": message, "finish_reason": "length" if cut else "stop"}],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 12,
            "total_tokens": 112,
            "prompt_tokens_details": {"cached_tokens": 60},
            "completion_tokens_details": {"reasoning_tokens": 4},
        },
    }


def responses(cut: bool) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": THOUGHT}]
    content = [{"type": "output_text", "text": TEXT, "annotations": []}]
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "test",
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": summary},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content},
        ],
        "usage": {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 60},
            "output_tokens": 12,
            "output_tokens_details": {"reasoning_tokens": 4},
            "total_tokens": 112,
        },
    }


ANSWERS = {
    r"/count_tokens": lambda cut: {"input_tokens": 4},
    r"/v1/messages": anthropic,
    r":generateContent": google,
    r"/chat/completions": chat,
    r"/responses": responses,
}
"""By a part of the path: what makes the answer of an interface."""


def running() -> contextlib.AbstractContextManager[Provider]:
    return serving(Provider())
