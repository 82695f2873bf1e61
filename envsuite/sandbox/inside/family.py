"""Descendant processes of a run: listing, measuring and ending them."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import signal
import time


def descendants() -> list[int]:
    """Returns the ids of every process below this one. Orphans are included: the zygote adopts them."""
    pids: list[int] = []
    waiting = [os.getpid()]
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


def memory_bytes(pid: int) -> int:
    """Returns a process's memory that is not backed by files, in RAM or swap [bytes]; 0 if the process
    has ended.

    Memory shared between processes counts in each process that has touched it.
    """
    try:
        with open(f"/proc/{pid}/status") as file:
            fields = dict(line.split(":", 1) for line in file)
    except (OSError, ValueError):
        return 0
    return sum(int(fields[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem", "VmSwap") if name in fields)


def waited(pid: int) -> float:
    """Returns the seconds for which `pid` was runnable but had no processor; 0 if the kernel does not
    say.
    """
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


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


ENTRY_BYTES = 1024  # counted at least for every file and folder: a flood of empty ones takes room and time, too


def folder_bytes(folder: str, stop: float = math.inf) -> float:
    """Returns the disk space of everything below `folder` [bytes]; stops counting above `stop`.

    Unreadable folders count as empty. Folders whose path is too long to be opened could hold anything: they count as
    infinitely large.
    """
    total = 0.0
    waiting = [folder]
    while waiting and total <= stop:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    total += max(ENTRY_BYTES, entry.stat(follow_symlinks=False).st_blocks * 512)
                    if total > stop:
                        break
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return math.inf
    return total


def processor_seconds(pids: list[int]) -> float:
    """Returns the processor time of processes and of their children that were waited for."""
    ticks = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as file:
                ticks += sum(map(int, file.read().rpartition(")")[2].split()[11:15]))
        except (OSError, ValueError):
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def end_family(child: int, uid: int | None, namespaced: bool) -> None:
    """Kills `child` and every process it started, daemons included, and waits for all but `child`
    itself.

    In a PID namespace the kernel does it, because the child is the namespace's first process. If
    the run has a user id to itself, all processes of that user are killed at once. Otherwise all
    descendants are stopped first, so that none can fork, and then killed.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    if namespaced:
        return
    if uid is not None:
        sweep_user(uid)
    for _ in range(200):
        family = [pid for pid in descendants() if pid != child]
        if not family:
            return
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in family:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        for pid in family:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.002)


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
