"""The language between envsuite and a zygote: jobs one way, frames the other. No pickle: bytes and JSON alone.

A job is 4 bytes of length, that many of JSON, then `payload` raw bytes which only the forked child reads.
A frame is one byte of kind, 4 of length, and the data:

r  ready          o e v  a piece of standard output, standard error, the returned value
x  the end (JSON) f      the zygote could not start (text)
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

BUSY = 8  # on a busy machine a run may take this many times its seconds, if it waited for a processor meanwhile

_LENGTH, _FRAME = struct.Struct("!I"), struct.Struct("!cI")
FRAME_HEAD = _FRAME.size


def read_exactly(handle: int, count: int) -> bytes:
    """`count` bytes. Raises EOFError where fewer come."""
    pieces = bytearray()
    while len(pieces) < count:
        piece = os.read(handle, min(1 << 20, count - len(pieces)))
        if not piece:
            raise EOFError(f"{len(pieces)} of {count} bytes came")
        pieces += piece
    return bytes(pieces)


def write_all(handle: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def read_job(handle: int) -> dict[str, Any] | None:
    """The next job's header; None at the end of the stream."""
    try:
        (length,) = _LENGTH.unpack(read_exactly(handle, _LENGTH.size))
        job: dict[str, Any] = json.loads(read_exactly(handle, length))
    except EOFError:
        return None
    return job


def encode_job(job: dict[str, Any], payload: bytes) -> bytes:
    head = json.dumps({**job, "payload": len(payload)}).encode()
    return _LENGTH.pack(len(head)) + head + payload


def write_frame(handle: int, kind: bytes, data: bytes | memoryview) -> None:
    write_all(handle, _FRAME.pack(kind, len(data)))
    write_all(handle, data)


def decode_head(head: bytes) -> tuple[bytes, int]:
    """Kind and length of the frame `head` begins."""
    kind, length = _FRAME.unpack(head)
    return kind, length
