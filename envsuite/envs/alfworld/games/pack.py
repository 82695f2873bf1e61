"""A file of small checked records under their digests, which many processes read and extend."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

_HEAD = struct.Struct(">4s32sII")
"""Start of a record: mark, SHA-256, length of the content and its CRC-32."""

_MARK = b"rec1"


class Pack:
    """The records of one file. It is read as a whole on the first use and held in memory.

    Records are appended. One whose content is damaged counts as missing. What follows a damaged or
    unfinished start of a record cannot be read, and the next writer removes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[str, tuple[memoryview, int]] = {}  # digest -> content, CRC-32
        self._end = 0  # of the last whole record that was read
        self._file = (0, 0)  # device and inode of the file that was read

    def get(self, digest: str) -> memoryview | None:
        """Returns the content stored under a SHA-256; None if there is none, or it is damaged."""
        if digest not in self._places:
            with contextlib.suppress(OSError), self._open(os.O_RDONLY) as file:
                self._read_on(file)
        content, checksum = self._places.get(digest, (None, 0))
        return content if content is not None and zlib.crc32(content) == checksum else None

    def add(self, digest: str, content: bytes) -> None:
        """Appends a record. Raises OSError if it cannot be written; the file then stays as it was."""
        record = _HEAD.pack(_MARK, bytes.fromhex(digest), len(content), zlib.crc32(content)) + content
        with self._open(os.O_RDWR | os.O_CREAT) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # ends with the file
            end = self._read_on(file)
            os.ftruncate(file, end)  # what an interrupted writer left
            try:
                if os.pwrite(file, record, end) < len(record):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            except OSError:
                os.ftruncate(file, end)
                raise
            self._read_on(file)

    @contextlib.contextmanager
    def _open(self, flags: int) -> Iterator[int]:
        file = os.open(self.path, flags | os.O_CLOEXEC, 0o666)
        try:
            yield file
        finally:
            os.close(file)

    def _read_on(self, file: int) -> int:
        """Reads the records that were added since the last call. Returns the end of the last whole one."""
        status = os.fstat(file)
        identity, size, end = (status.st_dev, status.st_ino), status.st_size, self._end
        if size < end or identity != self._file:  # another file
            self._places.clear()
            self._file, end = identity, 0
        new = memoryview(os.pread(file, size - end, end))
        start = 0
        while len(new) - start >= _HEAD.size:
            mark, digest, length, checksum = _HEAD.unpack_from(new, start)
            first = start + _HEAD.size
            if mark != _MARK or first + length > len(new):
                break
            self._places[digest.hex()] = new[first : first + length], checksum
            start = first + length
        self._end = end + start  # assigned, not added to: two threads may read the same records
        return self._end
