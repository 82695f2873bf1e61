"""Guard of a server process: ends it, with all of its children, when the process that started it is gone.

    python guard.py LOG COMMAND...

Runs COMMAND with its output in LOG and exits with its code. The guard's standard input is a pipe of its
parent. When the pipe has a byte or is closed, or the parent is another process, because the first one was
killed, the guard ends the server. It uses only the standard library and starts in some 30 ms.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL."""
POLL = 0.5
SET_PARENT_DEATH_SIGNAL, SET_CHILD_SUBREAPER = 1, 36  # of Linux's prctl


def main() -> int:
    log, *command = sys.argv[1:]
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    prctl(SET_CHILD_SUBREAPER, 1)  # children of the server that outlive it become children of the guard
    with open(log, "ab") as file:
        try:
            server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                preexec_fn=_in_the_server,
            )
        except OSError as error:
            file.write(f"{command[0]}: {error.strerror}\n".encode())
            return 127
    while server.poll() is None and os.getppid() == parent:
        if select.select([0], [], [], POLL)[0]:
            break
    end(server)
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


def _in_the_server() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)  # if the guard itself is killed


def prctl(option: int, value: int) -> None:
    """Calls Linux's prctl; does nothing on other systems."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def end(server: subprocess.Popen) -> None:
    """Ends the server's process group, and then what is left of its descendants."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(GRACE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
    deadline = time.monotonic() + GRACE
    while (orphans := children()) and time.monotonic() < deadline:
        for orphan in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)


def children() -> list[int]:
    """Returns the ids of the guard's children; [] on systems without /proc."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main())
