"""Loopback chat-completions server with scripted faults."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Applies the next behaviour of the server's script to each request; answers normally afterwards."""

    server: Server
    protocol_version = "HTTP/1.1"
    dead = False
    """the next request of this connection is dropped"""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.dead:
            self.close_connection = True
            return
        with self.server.lock:
            self.server.requests.append((body, dict(self.headers), time.monotonic()))
            says = self.server.says
            text = says(body) if callable(says) else says
            usual = continuation(text) if "prompt" in body else answer(text)
            behaviour = self.server.script.pop(0) if self.server.script else usual
        self.body = body
        with contextlib.suppress(OSError):  # the client has given up
            behaviour(self)

    def do_GET(self) -> None:
        if self.server.fails_to_list:
            self.dead = True
            send(self, 500, "Internal Server Error")
            return
        send(self, 200, json.dumps({"data": [{"id": name} for name in self.server.serves]}))

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Its `requests` are (body, headers, time) as they came."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.script: list[Behaviour] = []
        self.requests: list[tuple[dict, dict, float]] = []
        self.serves = ["small-model"]
        self.fails_to_list = False
        self.says: str | Callable[[dict], str] = "<action>look</action>"
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


@contextlib.contextmanager
def serving(server: Any) -> Iterator[Any]:
    """Runs `server` in its own thread and closes it at the end."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def running() -> contextlib.AbstractContextManager[Server]:
    return serving(Server())


def send(handler: BaseHTTPRequestHandler, status: int, text: str, **headers: str) -> None:
    data = text.encode()
    handler.send_response(status)
    for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(data)


def completion(text: str = "", finish: str = "stop", usage: dict | None = None, **message: object) -> str:
    first = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14} if usage is None else usage
    head = {"id": "one", "object": "chat.completion", "created": 1, "model": "small-model"}
    return json.dumps({**head, "choices": [first], "usage": usage})


def answer(text: str = "", **parts: object) -> Behaviour:
    return lambda handler: send(handler, 200, completion(text, **parts))  # type: ignore[arg-type]


def continuation(text: str) -> Behaviour:
    """Answers as a completion endpoint, which continues a prompt without roles."""
    body = json.loads(completion(text))
    body["choices"] = [{"index": 0, "text": text, "finish_reason": "stop"}]
    return lambda handler: send(handler, 200, json.dumps(body))


def refuse(status: int, message: str = "no", **headers: str) -> Behaviour:
    return lambda handler: send(handler, status, json.dumps({"error": {"message": message}}), **headers)


def garbage(text: str) -> Behaviour:
    return lambda handler: send(handler, 200, text)


def hang(seconds: float = 120.0) -> Behaviour:
    """Says nothing."""
    return lambda handler: time.sleep(seconds)


def cut(handler: Handler) -> None:
    """Closes the connection in the middle of the answer."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(completion("<action>lo").encode()[:30])
    handler.close_connection = True


def hang_up(handler: Handler) -> None:
    """Closes the connection without a word."""
    handler.close_connection = True


def drip(handler: Handler) -> None:
    """A byte now and then, never silent for long, and without an end while anybody listens."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    while True:
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.1)
