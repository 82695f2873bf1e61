"""What a killed run leaves behind, removed by the next one.

Folders bear their owner in their names and containers in a label: the PID namespace, the process, and the moment it was
started, so that a process id that is given out anew is not taken for the old one. What belongs to a process that has
ended is removed; what belongs to one of another PID namespace, of which nothing can be known here, is left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from functools import cache
from pathlib import Path

from envsuite.sandbox.inside import archive

_NAME = re.compile(r"envsuite-[a-z]+-([0-9a-f]+-[0-9a-f]+-[0-9a-f]+)-.*")


def owner() -> str:
    """This process, as a folder's name or a container's label spells it."""
    return f"{_namespace():x}-{os.getpid():x}-{_started(os.getpid()):x}"


def gone(owner: str) -> bool:
    """Whether the process of an `owner()` has ended. False where that cannot be known."""
    try:
        namespace, pid, started = (int(word, 16) for word in owner.split("-"))
    except ValueError:
        return False
    return namespace == _namespace() and _started(pid) != started


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
def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _started(pid: int) -> int:
    """When a process was started, in ticks since the machine was; 0 where there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    words = stat.rpartition(")")[2].split()
    return 0 if words[0] in "ZX" else int(words[19])
