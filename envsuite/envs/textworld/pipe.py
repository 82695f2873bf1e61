"""What `interpreter` and `worker` talk through."""

from __future__ import annotations

import os
import pickle
import select
from typing import Any

CHUNK = 1 << 15
"""bytes asked for at once; hardly any message is longer"""


class Pipe:
    """One end of a pair of connected sockets. A value is one write, one wait and one read, unless it is very long.

    multiprocessing's Connection takes two reads, and several layers of Python, which weigh beside a step of a millisecond.
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
        """The next value. Raises TimeoutError after so long a silence, in mid-value too, EOFError if the other end is closed."""
        limit = None if seconds is None else seconds * 1000
        data, wanted = b"", 8  # at first the length
        while len(data) < wanted:
            if not self._ready.poll(limit):
                raise TimeoutError
            more = os.read(self.descriptor, max(CHUNK, wanted - len(data)))
            if not more:
                raise EOFError
            data += more
            if len(data) >= 8:
                wanted = 8 + int.from_bytes(data[:8], "big")
        return pickle.loads(data[8:])

    def close(self) -> None:
        os.close(self.descriptor)
