"""Readers for files and answers from outside: bounded in size, depth and number of values, finite numbers,
no duplicate keys.

`read_json` and `read_lines` read files, `parse_json` reads text, and `open_tar` opens an archive. All of them
raise `DataError` or `ValueError` with one clear line, and use a bounded amount of memory whatever the file holds.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import math
import os
import re
import stat
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, cast

from envsuite.errors import DataError

MOST_DEPTH = 64
"""nested lists and objects in JSON"""
MOST_DOCUMENT = 64 * 2**20
"""bytes of a file that holds one JSON document"""
MOST_LINE = 32 * 2**20
"""bytes of a line of JSON Lines"""
MOST_LINES = 2 * 2**30
"""bytes of a file of JSON Lines, after decompression"""
MOST_LINE_COUNT = 4_000_000
"""lines of a file of JSON Lines"""
MOST_RATIO = 200
"""bytes that one byte of a gzipped file may become, above `FREE_RATIO`: text of games shrinks to a twentieth"""
FREE_RATIO = 16 * 2**20
MOST_VALUES = 1_000_000
"""values of one JSON document or line: an empty object takes three bytes of text and up to 300 bytes of memory"""
FREE_VALUES = 2_000_000
"""values that every file of JSON Lines may hold"""
VALUES_PER_BYTE = {True: 4.0, False: 0.125}
"""further values per byte of a gzipped and of a plain file: records of games have up to 2.9 and 0.06"""
MOST_INTEGER = 2**63
MOST_UNPACKED = 2 * 2**30
"""bytes of all members of a tar archive"""
MOST_MEMBERS = 200_000


_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{},"'))
_STRING = re.compile(rb'"[^"]*"?')


class InvalidJSON(ValueError):
    """JSON that is too deep, holds infinite numbers or gives a key twice."""


def parse_json(text: str | bytes, nan_as_none: bool = False) -> Any:
    """Returns the value of a JSON text.

    Raises ValueError for invalid JSON, nesting beyond `MOST_DEPTH`, more than `MOST_VALUES` values, NaN and
    infinite numbers, integers that do not fit 64 bits, and duplicate keys. With `nan_as_none` NaN and Infinity
    become None, as for the losses of a training.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogatepass")
    brackets = text.count("[") + text.count("{")
    many = brackets + text.count(",") > MOST_VALUES
    if brackets > MOST_DEPTH or many:
        structure = _structure(text.encode("utf-8", "surrogatepass"))
        if many and _values(structure) > MOST_VALUES:
            raise InvalidJSON(f"more than {MOST_VALUES:,} values")
        _check_depth(structure)
    return (_LENIENT if nan_as_none else _STRICT).decode(text)


def _structure(text: bytes) -> bytes:
    """Returns the brackets and commas of JSON that are outside strings."""
    quoted = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_STRUCTURE)
    return _STRING.sub(b"", quoted)


def _values(structure: bytes) -> int:
    """Returns an upper bound of the number of values: each follows an opening bracket or a comma."""
    return structure.count(b"[") + structure.count(b"{") + structure.count(b",")


def _check_depth(structure: bytes) -> None:
    """Raises InvalidJSON for deep nesting: peels off the innermost brackets, one level at a time."""
    brackets = structure.replace(b",", b"")
    for _ in range(MOST_DEPTH):
        shorter = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(shorter) == len(brackets):
            break
        brackets = shorter
    if b"[]" in brackets or b"{}" in brackets or brackets.count(b"[") + brackets.count(b"{") > MOST_DEPTH:
        raise InvalidJSON(f"nested deeper than {MOST_DEPTH} levels")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise InvalidJSON(f"key {twice[:40]!r} is given twice")
    return result


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise InvalidJSON(f"number {text[:20]} is too large")
    return value


def _integer(text: str) -> int:
    if len(text) > 20 or abs(int(text)) >= MOST_INTEGER:
        raise InvalidJSON(f"number {text[:20]} does not fit 64 bits")
    return int(text)


def _constant(text: str) -> float:
    raise InvalidJSON(f"{text} is not a number of JSON")


def _decoder(constant: Callable[[str], Any]) -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_int=_integer, parse_constant=constant)


_STRICT = _decoder(_constant)
_LENIENT = _decoder(lambda text: None)


def read_bytes(path: Path, most: int = MOST_DOCUMENT) -> bytes:
    """Returns a file's content.

    Raises DataError if it is not a regular file, cannot be read or is larger than `most`.
    """
    try:
        _refused(path)  # before opening: a pipe would block
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}.") from error
    if len(content) > most:
        raise DataError(f"{path} is larger than {most / 2**20:.0f} MB, the most that is read of such a file.")
    return content


def _refused(path: Path) -> bool:
    """Raises DataError for a device or a pipe, whose reading might never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise DataError(f"{path} is not a regular file.")
    return False


def read_json(path: Path, most: int = MOST_DOCUMENT) -> Any:
    """Returns the JSON document of a file. Raises DataError for a file that cannot be read, ValueError for bad JSON."""
    return parse_json(read_bytes(path, most))


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yields (number, line) of a text file, also of a gzipped one (`.gz`), with the line's end.

    Raises DataError if the file cannot be read, a line is longer than `MOST_LINE`, or the content has more bytes
    or JSON values than `MOST_LINES` or the file's size allow.
    """
    try:
        _refused(path)
        size = path.stat().st_size
        packed = path.suffix == ".gz"
        most = min(MOST_LINES, FREE_RATIO + MOST_RATIO * size) if packed else MOST_LINES
        most_values = FREE_VALUES + VALUES_PER_BYTE[packed] * size
        total = values = 0
        # A GzipFile's own readline is written in Python: several times slower for short lines.
        with io.BufferedReader(cast(Any, gzip.GzipFile(path)), 2**17) if packed else path.open("rb") as file:
            number = 0
            while line := file.readline(MOST_LINE + 1):
                number += 1
                total += len(line)
                if len(line) > MOST_LINE:
                    raise DataError(f"{path}:{number} is longer than {MOST_LINE / 2**20:.0f} MB.")
                if total > most or number > MOST_LINE_COUNT:
                    raise DataError(
                        f"{path} holds more than {most / 2**20:.0f} MB of text or {MOST_LINE_COUNT:,} lines, the most "
                        "that is read of such a file."
                    )
                if not line.isspace():
                    values += _count(line)
                if values > most_values:
                    raise DataError(
                        f"{path}:{number}: the file holds more than {most_values:,.0f} values so far, too many for its "
                        f"size of {size:,} bytes."
                    )
                yield number, line
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file ({error}): fetch it again.") from error
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}.") from error


def resume_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yields number and content of each complete line of a journal, then removes a partial last line.

    A crash can leave one. It stays in the file if the caller stops before the end, as on an error.
    """
    size = 0
    for number, line in read_lines(path):
        if not line.endswith(b"\n"):
            break
        size += len(line)
        yield number, line
    if size < path.stat().st_size:
        os.truncate(path, size)


def _count(line: bytes) -> int:
    """Returns an upper bound of the values in a line of JSON; exact only where values are dense, to save time."""
    bound = _values(line)
    return bound if bound <= len(line) // 16 else _values(_structure(line))


class Allowance:
    """Counts the members of a tar archive and their bytes, by their headers."""

    def __init__(self, name: str, most: int = MOST_UNPACKED) -> None:
        self._name, self._most = name, most
        self._count = self._total = 0

    def add(self, member: tarfile.TarInfo) -> None:
        """Raises DataError if the members so far are too many or too large together."""
        self._count += 1
        self._total += max(0, member.size)
        if self._count > MOST_MEMBERS or self._total > self._most:
            raise DataError(
                f"{self._name} holds more than {self._most / 2**20:.0f} MB or {MOST_MEMBERS:,} files, the most that "
                "is unpacked."
            )


def check_tar(archive: tarfile.TarFile, name: str, most: int = MOST_UNPACKED) -> None:
    """Raises DataError if the members of an archive are too many or larger than `most` bytes together."""
    allowance = Allowance(name, most)
    for member in archive:
        allowance.add(member)


@contextlib.contextmanager
def open_tar(path: Path, most: int = MOST_UNPACKED) -> Iterator[tarfile.TarFile]:
    """Opens a gzipped tar archive whose members are not too many and not larger than `most` bytes together.

    Raises DataError for another archive, and for a damaged one.
    """
    try:
        _refused(path)
        with gzip.open(path, "rb") as file, tarfile.open(fileobj=_bounded(file, path, most), mode="r:") as archive:
            check_tar(archive, path.name, most)
            yield archive
    except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError) as error:
        raise DataError(f"The source archive {path} cannot be read: {error}.") from error


def _bounded(file: gzip.GzipFile, path: Path, most: int) -> BinaryIO:
    """Returns a file for tarfile, which reads long names at once and file contents in pieces."""
    end = most + MOST_MEMBERS * 2048  # headers and padding

    def read(size: int) -> bytes:
        if size > MOST_DOCUMENT or file.tell() + size > end:
            raise DataError(f"{path.name} holds more than {most / 2**20:.0f} MB, the most that is unpacked.")
        return file.read(size)

    return cast(BinaryIO, SimpleNamespace(read=read, seek=file.seek, tell=file.tell, close=file.close))
