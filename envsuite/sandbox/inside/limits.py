"""What a process does to itself last: takes on its limits, becomes the command."""

from __future__ import annotations

import os
import resource
import signal
import sys


def set_limits(limits: dict[str, float], warm: bool, others: int) -> None:
    """The limits a process keeps by itself.

    Memory comes on top of what the warm process had mapped already, processes on top of the user's `others`.
    """
    mapped = 0
    if warm:
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
    # A backstop alone: the wall clock ends a run first, however many processors its threads take at once.
    processor = int(limits["seconds"] * (os.cpu_count() or 1)) + 30
    for kind, value in (
        (resource.RLIMIT_AS, mapped + int(limits["memory_mb"] * 1e6)),
        (resource.RLIMIT_CPU, processor),
        (resource.RLIMIT_FSIZE, int(limits["disk_mb"] * 1e6)),
        (resource.RLIMIT_NOFILE, int(limits["files"])),
        (resource.RLIMIT_NPROC, int(limits["processes"]) + others),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def execute(command: list[str], folder: str, environment: dict[str, str]) -> int:
    """Becomes `command`; 126 or 127 where that fails, as a shell says it."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.chdir(folder)
        os.execvpe(command[0], command, environment)
    except FileNotFoundError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return 127
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return 126
