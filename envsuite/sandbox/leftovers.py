"""What a killed run leaves behind, removed by the next one.

Folders bear their owner in their names and containers in a label: the machine's boot and PID namespace, the process,
and the moment it was started, so that a process id that is given out anew is not taken for the old one. What belongs to
a process that has ended is removed; what belongs to one of another machine (folders may be shared between them) or
another PID namespace, of which nothing can be known here, is left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import zlib
from functools import cache
from pathlib import Path

from envsuite.sandbox.inside import archive

_NAME = re.compile(r"envsuite-[a-z]+-([0-9a-f]+-[0-9a-f]+-[0-9a-f]+)-.*")


def owner() -> str:
    """This process, as a folder's name or a container's label spells it."""
    return f"{_place():x}-{os.getpid():x}-{_started(os.getpid()):x}"


def gone(owner: str) -> bool:
    """Whether the process of an `owner()` has ended. False where that cannot be known."""
    try:
        place, pid, started = (int(word, 16) for word in owner.split("-"))
        return place == _place() and _started(pid) != started
    except (ValueError, OSError):
        return False


def folder(kind: str) -> Path:
    """A new folder of this process below the one for temporary files."""
    return Path(tempfile.mkdtemp(prefix=f"envsuite-{kind}-{owner()}-"))


def passing(kind: str) -> tempfile.TemporaryDirectory[str]:
    """As `folder`, for a `with`: it goes when that is left."""
    return tempfile.TemporaryDirectory(prefix=f"envsuite-{kind}-{owner()}-")


@cache
def sweep() -> None:
    """Removes the folders of processes that have ended, once in the life of this one."""
    stale = []
    for path in Path(tempfile.gettempdir()).glob("envsuite-*"):
        named = _NAME.fullmatch(path.name)
        with contextlib.suppress(OSError):
            if named and path.stat().st_uid == os.geteuid() and gone(named[1]):
                stale.append(str(path))
    archive.remove(stale)


@cache
def _place() -> int:
    """Where process ids mean what they mean here: this boot of this machine, and its PID namespace."""
    boot = (
        Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    )  # the first namespace has the same inode everywhere
    return zlib.crc32(f"{boot} {os.stat('/proc/self/ns/pid').st_ino}".encode())


def _started(pid: int) -> int:
    """When a process was started, in ticks since the machine was; 0 where there is no such process. Raises OSError."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    words = stat.rpartition(")")[2].split()
    return 0 if words[0] in "ZX" else int(words[19])
