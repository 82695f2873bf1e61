"""Cleanup of folders and containers that killed processes left behind.

Folder names and container labels name the owner: boot and PID namespace of the machine, process id,
and start time of the process, so that a reused process id is recognised. `sweep` removes what
belongs to ended processes. Owners on other machines (which may share folders) or in other PID
namespaces cannot be checked from here, so their folders stay.
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
    """Returns the identifier of this process for folder names and container labels."""
    return f"{_place():x}-{os.getpid():x}-{_started(os.getpid()):x}"


def gone(owner: str) -> bool:
    """Returns True if the process of an `owner()` has ended; False if that cannot be determined."""
    try:
        place, pid, started = (int(word, 16) for word in owner.split("-"))
        return place == _place() and _started(pid) != started
    except (ValueError, OSError):
        return False


def folder(kind: str) -> Path:
    """Creates a folder of this process below the one for temporary files."""
    return Path(tempfile.mkdtemp(prefix=f"envsuite-{kind}-{owner()}-"))


def passing(kind: str) -> tempfile.TemporaryDirectory[str]:
    """Returns a context manager for a `folder` that is removed at the end of the block."""
    return tempfile.TemporaryDirectory(prefix=f"envsuite-{kind}-{owner()}-")


@cache
def sweep() -> None:
    """Removes the folders of ended processes, once per process."""
    stale = []
    for path in Path(tempfile.gettempdir()).glob("envsuite-*"):
        named = _NAME.fullmatch(path.name)
        with contextlib.suppress(OSError):
            if named and path.stat().st_uid == os.geteuid() and gone(named[1]):
                stale.append(str(path))
    archive.remove(stale)


@cache
def _place() -> int:
    """Returns a hash of this boot and PID namespace, within which process ids are comparable."""
    # The boot id is needed because the first PID namespace has the same inode on every machine.
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return zlib.crc32(f"{boot} {os.stat('/proc/self/ns/pid').st_ino}".encode())


def _started(pid: int) -> int:
    """Returns a process's start time in clock ticks since boot; 0 if it does not exist.

    Raises OSError.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    words = stat.rpartition(")")[2].split()
    return 0 if words[0] in "ZX" else int(words[19])
