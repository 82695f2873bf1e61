"""Kills by the host: tells a run that the machine ended from a run that failed by itself.

When a machine runs out of memory, the kernel kills runs before anything else (`kernel.die_first`), even if they are
below their own limit. Programs such as systemd-oomd do the same. That is a fault of the machine and not of the run. Two
things show it. The first process of a run dies from SIGKILL, although the run has made none of the calls by which it
could bring that upon itself (`system_calls`). Or the kernel has counted a kill for want of memory in this control
group, and the run has failed.
"""

from __future__ import annotations

import contextlib
import signal
from typing import IO, NamedTuple

CONTAINER_FILES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""where a container sees its own control group: version 2, version 1"""
_HITS_FILE = "memory.failcnt"


class Kills(NamedTuple):
    """Counts of a control group: processes killed for want of memory, and times that its own limit was hit."""

    total: int = 0
    limit_hits: int = 0

    def __sub__(self, earlier: Kills) -> Kills:
        return Kills(self.total - earlier.total, self.limit_hits - earlier.limit_hits)


class KillCounter:
    """Reads the counts of a control group.

    `source`: the descriptor of a file with a line `oom_kill N`, for the group that a run shares with envsuite;
    "container" for a group of the sandbox's own, whose limit belongs to the run; None for no counts.
    """

    def __init__(self, source: int | str | None) -> None:
        self._file: IO[bytes] | None = None
        self._hits: IO[bytes] | None = None
        self._own = source == "container"
        paths: list[int | str | None] = [*CONTAINER_FILES] if self._own else [source]
        for path in paths:
            with contextlib.suppress(OSError):
                if path is not None and self._file is None:
                    self._file = open(path, "rb", buffering=0)  # noqa: SIM115  open as long as the sandbox
        if self._own and self._file is not None and str(self._file.name).endswith("oom_control"):
            with contextlib.suppress(OSError):
                self._hits = open(self._file.name.replace("memory.oom_control", _HITS_FILE), "rb", buffering=0)  # noqa: SIM115

    def read(self) -> Kills:
        """Returns the present counts; zeros if there are none."""
        fields = dict(line.split() for line in _text(self._file).splitlines() if len(line.split()) == 2)
        hits = _text(self._hits).strip() or (fields.get("oom", "0") if self._own else "0")
        return Kills(int(fields.get("oom_kill", 0)), int(hits))


def _text(file: IO[bytes] | None) -> str:
    if file is None:
        return ""
    try:
        file.seek(0)
        return file.read(4096).decode()
    except OSError:
        return ""


def blame(fate: str, status: int, innocent: bool, kills: Kills) -> str:
    """Returns the fate of a run: "killed" if the host ended it, "memory" if its own container did.

    `innocent`: the run cannot have brought SIGKILL upon itself. `kills`: the counts during the run. A run that ended
    well, or by another limit of its own, keeps its fate.
    """
    if fate != "timeout" and (fate != "exited" or status == 0):
        return fate
    if kills.total > 0:
        return "memory" if kills.limit_hits > 0 else "killed"
    return "killed" if fate == "exited" and status == -signal.SIGKILL and innocent else fate
