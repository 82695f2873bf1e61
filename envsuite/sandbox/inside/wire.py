"""Wire format between envsuite and a zygote: jobs in, frames out. Bytes and JSON only, no pickle.

A job is 4 bytes of length, that many bytes of JSON, then `payload` raw bytes, which only the forked child reads.
A frame is one byte of kind, 4 bytes of length, and the data:

r  ready          o e v  a chunk of standard output, standard error, the returned value
x  the end (JSON) f      the zygote could not start (text)
c  the run has ended, and its files are being removed
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

BUSY = 8  # a run may take this many times its seconds on a busy machine while it waits for a processor

_LENGTH, _FRAME = struct.Struct("!I"), struct.Struct("!cI")
FRAME_HEAD = _FRAME.size


def read_exactly(handle: int, count: int) -> bytes:
    """Reads `count` bytes. Raises EOFError at an earlier end."""
    data = bytearray()
    while len(data) < count:
        chunk = os.read(handle, min(1 << 20, count - len(data)))
        if not chunk:
            raise EOFError(f"{len(data)} of {count} bytes received")
        data += chunk
    return bytes(data)


def write_all(handle: int, data: bytes | memoryview) -> None:
    unsent = memoryview(data)
    while unsent:
        unsent = unsent[os.write(handle, unsent) :]


def read_job(handle: int) -> dict[str, Any] | None:
    """Reads the header of the next job; returns None at the end of the stream."""
    try:
        (length,) = _LENGTH.unpack(read_exactly(handle, _LENGTH.size))
        job: dict[str, Any] = json.loads(read_exactly(handle, length))
    except EOFError:
        return None
    return job


def encode_job(job: dict[str, Any], payload: bytes) -> bytes:
    head = json.dumps({**job, "payload": len(payload)}).encode()
    return _LENGTH.pack(len(head)) + head + payload


def relay_message(handle: int, count: int) -> bytearray:
    """Reads a payload of `count` bytes; returns it as `read_message` expects it, in a buffer that can be cleared."""
    message = bytearray(_LENGTH.pack(count)) + bytearray(count)
    unread = memoryview(message)[_LENGTH.size :]
    while unread:
        size = os.readv(handle, [unread[: 1 << 20]])
        if not size:
            raise EOFError("the payload was cut off")
        unread = unread[size:]
    return message


def read_message(handle: int) -> bytes:
    """Reads a turn of a dialogue. Raises EOFError at the end of the stream."""
    (length,) = _LENGTH.unpack(read_exactly(handle, _LENGTH.size))
    return read_exactly(handle, length)


def write_frame(handle: int, kind: bytes, data: bytes | memoryview) -> None:
    write_all(handle, _FRAME.pack(kind, len(data)))
    write_all(handle, data)


def decode_head(head: bytes) -> tuple[bytes, int]:
    """Returns the kind and length of the frame that begins with `head`."""
    kind, length = _FRAME.unpack(head)
    return kind, length
