"""Resource limits that a process sets on itself before it becomes a command."""

from __future__ import annotations

import os
import resource
import signal
import sys


def set_limits(limits: dict[str, float], warm: bool, existing_processes: int) -> None:
    """Sets the resource limits of this process.

    Memory is added to what the warm process has already mapped, processes to the user's
    `existing_processes`.
    """
    mapped = 0
    if warm:
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
    for kind, value in (
        (resource.RLIMIT_AS, mapped + int(limits["memory_mb"] * 1e6)),
        (resource.RLIMIT_CPU, processor_limit(limits)),
        (resource.RLIMIT_FSIZE, int(limits["disk_mb"] * 1e6)),
        (resource.RLIMIT_NOFILE, int(limits["files"])),
        (resource.RLIMIT_NPROC, int(limits["processes"]) + existing_processes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def processor_limit(limits: dict[str, float]) -> int:
    """Returns the processor time of one process after which the kernel kills it [seconds].

    Only a fallback: the wall clock ends a run first, however many processors its threads use.
    """
    return int(limits["seconds"] * (os.cpu_count() or 1)) + 30


def execute(command: list[str], folder: str, environment: dict[str, str]) -> int:
    """Replaces this process by `command`; returns 126 or 127 on failure, like a shell."""
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
