"""Descendant processes of a run: listing and ending them. `usage` measures them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable


def descendants(root: int | None = None) -> list[int]:
    """Returns the ids of every process below `root`, by default this one.

    Orphans are included: the zygote adopts them.
    """
    pids: list[int] = []
    waiting = [root or os.getpid()]
    while waiting:
        pid = waiting.pop()
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as file:
                    children = [int(word) for word in file.read().split()]
                pids += children
                waiting += children
        except OSError:
            continue
    return pids


def is_awake(pid: int) -> bool:
    """Returns True if a thread of a process can go on: it is neither stopped nor ended nor held by the kernel."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    for task in tasks:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] in "RS":
                return True
    return False


def pause_family(seconds: float = 10.0) -> bool:
    """Stops every process below this one; returns False if some still go on after `seconds`.

    A thread stops only when it gets a processor, which takes seconds on an overloaded machine. A stopped process may be
    continued again, for example because its group has lost its last parent.
    """
    end = time.monotonic() + seconds
    delay = 0.001
    while awake := [pid for pid in descendants() if is_awake(pid)]:
        if time.monotonic() > end:
            return False
        signal_all(awake, signal.SIGSTOP)
        time.sleep(delay)
        delay = min(2 * delay, 0.05)  # looking takes processor time, which they need to stop
    return True


def signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


CROWD = 16
"""processes of a run; one with more gives way to others, and waits for a processor at its own expense"""
_LOW_PRIORITY = 15


def give_way(pids: list[int]) -> None:
    """Lowers the priority of processes and of what they start later.

    Beside a fork bomb of its own priority, the zygote would need seconds for a look at its processes.
    """
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            if os.getpriority(os.PRIO_PROCESS, pid) < _LOW_PRIORITY:
                os.setpriority(os.PRIO_PROCESS, pid, _LOW_PRIORITY)


def threads_of_this_user() -> int:
    """Returns the number of threads that the kernel counts against this user's process limit."""
    total = 0
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.getuid():
                total += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return total


def end_family(child: int, uid: int | None, namespaced: bool) -> None:
    """Kills `child` and every process it started, daemons included, and waits for all but `child`
    itself.

    In a PID namespace the kernel does it, because the child is the namespace's first process. That takes seconds if
    the child has to share its processor with busy descendants of a higher priority, so they are killed too. If the run
    has a user id to itself, all processes of that user are killed at once. Otherwise all descendants are stopped first,
    so that none can fork, and then killed.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    if namespaced:
        for _ in range(200):
            if _has_ended(child):
                return
            signal_all(descendants(child), signal.SIGKILL)
            time.sleep(0.002)
        return
    if uid is not None:
        sweep_user(uid)
    for _ in range(200):
        family = [pid for pid in descendants() if pid != child]
        if not family:
            return
        for number in (signal.SIGSTOP, signal.SIGKILL):
            signal_all(family, number)
        for pid in family:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.002)


def end_tree(root: int) -> None:
    """Kills `root` and every process below it, from outside: for a zygote that no longer answers."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(root, signal.SIGSTOP)
    for _ in range(200):
        alive = [pid for pid in descendants(root) if not _has_ended(pid)]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            signal_all(alive, number)
        if not alive:
            break
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.kill(root, signal.SIGKILL)


def _has_ended(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def sweep_user(uid: int) -> None:
    """Kills every process of user `uid`.

    The kernel walks its process list in one pass, so no fork escapes.
    """
    sweeper = os.fork()
    if sweeper == 0:
        try:
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(sweeper, 0)
