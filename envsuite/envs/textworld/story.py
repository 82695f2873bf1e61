"""Z-machine story files: whether one is whole, by its own header (Z-Machine Standards Document 1.1, section 11)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from envsuite.errors import DataError

SUFFIXES = tuple(f".z{version}" for version in range(3, 9))
"""what the interpreter plays"""
HEADER = 64  # bytes
LENGTH, CHECKSUM = 0x1A, 0x1C
UNIT = {3: 2, 4: 4, 5: 4, 6: 8, 7: 8, 8: 8}  # bytes that one count of the length word stands for


def check_story(path: Path) -> None:
    """Raises DataError where `path` is no story file, is cut short, or does not sum to what its header says."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"Game {path} cannot be read ({error.strerror}): check the path.") from None
    if path.suffix not in SUFFIXES:
        raise DataError(
            f"Game {path} is no Z-machine file by its name: it takes .z3 to .z8, in lower case (tw-make writes .z8)."
        )
    if len(data) < HEADER or data[0] not in UNIT:
        raise DataError(f"Game {path} is no Z-machine file by its first bytes: get or generate it anew.")
    word = lambda at: data[at] << 8 | data[at + 1]
    length = word(LENGTH) * UNIT[data[0]]
    if length == 0:
        return  # a few old compilers left length and checksum out
    if len(data) < length:
        raise DataError(f"Game {path} is cut short ({len(data)} of {length} bytes): get or generate it anew.")
    if int(np.frombuffer(data[HEADER:length], np.uint8).sum(dtype=np.int64)) & 0xFFFF != word(CHECKSUM):
        raise DataError(f"Game {path} is damaged (its checksum is wrong): get or generate it anew.")
