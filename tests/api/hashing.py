"""A chat server whose reply is a hash of the request, after a random time.

Runs in its own event loop and thread. Requests that contain a text in `held` wait until `release` is called.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import threading
from collections.abc import Iterator


class HashingServer:
    """Answers chat completions; `max_delay` seconds is the longest answering time, and `requests` counts them.

    Servers with different `salt` answer like different models.
    """

    def __init__(self, max_delay: float, seed: int = 0) -> None:
        self.max_delay = max_delay
        self.requests = 0
        self.salt = ""
        self.held: tuple[str, ...] = ()
        self.random = random.Random(seed)
        self.loop = asyncio.new_event_loop()
        self.released = asyncio.Event()
        self.url = ""

    def release(self) -> None:
        """Lets held requests continue."""
        self.loop.call_soon_threadsafe(self.released.set)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length:")[2].partition("\r\n")[0] or 0)
                body = await reader.readexactly(length)
                text = await self.answer(body) if length else json.dumps({"data": [{"id": "stub"}]})
                data = text.encode()
                header = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                writer.write(header % len(data) + data)
                await writer.drain()
        writer.close()

    async def answer(self, body: bytes) -> str:
        self.requests += 1
        messages = json.loads(body)["messages"]
        digest = int(hashlib.sha256((self.salt + json.dumps(messages)).encode()).hexdigest(), 16)
        if any(word in messages[-1]["content"] for word in self.held):
            await self.released.wait()
        await asyncio.sleep(self.random.uniform(0.0, self.max_delay))
        message = {"role": "assistant", "content": f"<think>{digest % 1000}</think><action>{1 + digest % 16}</action>"}
        usage = {"prompt_tokens": len(body), "completion_tokens": 7}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return json.dumps({"object": "chat.completion", "model": "stub", "choices": [choice], "usage": usage})

    async def serve(self, started: threading.Event, port: int) -> None:
        server = await asyncio.start_server(self.handle, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        started.set()


@contextlib.contextmanager
def hashing(max_delay: float, seed: int = 0, port: int = 0) -> Iterator[HashingServer]:
    """Runs a HashingServer."""
    server = HashingServer(max_delay, seed)
    started = threading.Event()
    server.loop.create_task(server.serve(started, port))
    thread = threading.Thread(target=server.loop.run_forever, daemon=True)
    thread.start()
    started.wait()
    try:
        yield server
    finally:
        server.loop.call_soon_threadsafe(server.loop.stop)
        thread.join()
