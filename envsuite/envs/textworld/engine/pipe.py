"""The connection between `interpreter` and `worker`."""

from __future__ import annotations

import os
import pickle
import select
from typing import Any

CHUNK = 1 << 15
"""Bytes requested per read; few messages are longer."""


class Pipe:
    """One end of a pair of connected sockets; a short value takes one write, one wait and one read.

    multiprocessing's Connection needs two reads and several layers of Python, which is noticeable
    in a step of a millisecond.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._ready = select.poll()
        self._ready.register(descriptor, select.POLLIN)

    def send(self, value: Any) -> None:
        body = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        left = memoryview(len(body).to_bytes(8, "big") + body)
        while left:
            left = left[os.write(self.descriptor, left) :]

    def receive(self, seconds: float | None = None) -> Any:
        """Returns the next value.

        Raises TimeoutError after `seconds` without data, even within a value, and EOFError if the
        other end is closed.
        """
        limit = None if seconds is None else seconds * 1000
        data, expected = b"", 8  # the length prefix comes first
        while len(data) < expected:
            if not self._ready.poll(limit):
                raise TimeoutError
            chunk = os.read(self.descriptor, max(CHUNK, expected - len(data)))
            if not chunk:
                raise EOFError
            data += chunk
            if len(data) >= 8:
                expected = 8 + int.from_bytes(data[:8], "big")
        return pickle.loads(data[8:])

    def close(self) -> None:
        os.close(self.descriptor)
