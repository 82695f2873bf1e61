"""Validates Z-machine story files by their header (Z-Machine Standards Document 1.1, section 11)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from envsuite.errors import DataError

SUFFIXES = tuple(f".z{version}" for version in range(3, 9))
"""File suffixes that the interpreter supports."""
HEADER = 64  # bytes
LENGTH, CHECKSUM = 0x1A, 0x1C
UNIT = {3: 2, 4: 4, 5: 4, 6: 8, 7: 8, 8: 8}  # bytes per unit of the length word, by version


def check_story(path: Path) -> None:
    """Raises DataError if `path` is not a story file, is truncated, or has a wrong checksum."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"Game {path} cannot be read ({error.strerror}): check the path.") from None
    if path.suffix not in SUFFIXES:
        raise DataError(f"Game {path} does not have a Z-machine suffix, .z3 to .z8 in lower case (tw-make writes .z8).")
    if len(data) < HEADER or data[0] not in UNIT:
        raise DataError(f"Game {path} does not start like a Z-machine file: download or generate it again.")

    def word(position: int) -> int:
        return data[position] << 8 | data[position + 1]

    length = word(LENGTH) * UNIT[data[0]]
    if length == 0:
        return  # some old compilers wrote neither length nor checksum
    if len(data) < length:
        raise DataError(f"Game {path} is truncated ({len(data)} of {length} bytes): download or generate it again.")
    if int(np.frombuffer(data[HEADER:length], np.uint8).sum(dtype=np.int64)) & 0xFFFF != word(CHECKSUM):
        raise DataError(f"Game {path} is damaged (wrong checksum): download or generate it again.")
