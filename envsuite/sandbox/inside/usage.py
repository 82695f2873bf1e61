"""Memory, disk space and processor time that the processes of a run use."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

_SIGCHLD_BIT = 1 << 16
_ROUNDED_SECONDS = 0.02  # by which the kernel's figure of a parent's children may be too small
_UNCOLLECTED_SECONDS = 0.03  # beyond that, of all parents together, is lost time


@dataclass(frozen=True)
class ProcessMemory:
    """Memory of a process that is not backed by files, in RAM or swap [bytes].

    Memory shared between processes counts in each process that has touched it.
    """

    own: int = 0
    shared: int = 0
    address_space: int = 0

    @property
    def resident(self) -> int:
        return self.own + self.shared


def memory_of(pid: int) -> ProcessMemory:
    """Returns a process's use of memory; zeros if it has ended."""
    try:
        with open(f"/proc/{pid}/status") as file:
            fields = dict(line.split(":", 1) for line in file)
    except (OSError, ValueError):
        return ProcessMemory()
    sizes = {name: int(fields[name].split()[0]) << 10 for name in _SIZES if name in fields}
    own = sizes.get("RssAnon", 0) + sizes.get("VmSwap", 0)
    return ProcessMemory(own, sizes.get("RssShmem", 0), sizes.get("VmSize", 0))


_DELETED = " (deleted)"
"""end of the kernel's name of a file that was removed, and of shared memory that never had a name"""
_SIZES = ("RssAnon", "RssShmem", "VmSwap", "VmSize")


def memory_bytes(pids: Iterable[int], baseline: ProcessMemory, limit: float, end: float = math.inf) -> float:
    """Returns the memory of a run's processes beyond `baseline`, which all of them share with the zygote [bytes].

    The exact figure takes longer to find, so it is looked up only if the quick one could hide more than `limit`: if
    several processes have replaced what they shared with the zygote, or keep shared memory that none of them has in its
    page tables. One process cannot do so, because its address space is limited. After the time `end` no further process
    is read for the exact figure.
    """
    parts = {pid: memory_of(pid) for pid in pids}
    resident = sum(max(0, part.resident - baseline.resident) for part in parts.values())
    if len(parts) < 2 or resident > limit:
        return resident
    if sum(part.resident for part in parts.values()) - baseline.resident > limit:
        divided = sum(_divided_bytes(pid) for pid in parts if time.monotonic() < end)
        resident = max(resident, divided - baseline.resident)
    if sum(max(0, part.address_space - baseline.address_space) for part in parts.values()) > limit:
        resident += max(0, _shared_bytes(parts) - sum(part.shared for part in parts.values()))
    return resident


def _divided_bytes(pid: int) -> int:
    """Returns the memory of a process, each page divided by the number of processes that have it; 0 if unreadable."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
    except (OSError, ValueError):
        return 0
    return sum(int(fields[name].split()[0]) << 10 for name in ("Pss_Anon", "Pss_Shmem", "SwapPss") if name in fields)


def _shared_bytes(pids: Iterable[int]) -> int:
    """Returns the size of the shared memory without a name that processes have mapped."""
    sizes: dict[tuple[str, int], int] = {}
    for pid in pids:
        own: dict[tuple[str, int], int] = {}
        for mapping in unnamed_mappings(pid):
            if mapping.shared and mapping.name == "/dev/zero (deleted)":
                own[mapping.file] = own.get(mapping.file, 0) + mapping.size
        sizes.update({file: max(size, sizes.get(file, 0)) for file, size in own.items()})
    return sum(sizes.values())


@dataclass(frozen=True)
class Mapping:
    """A line of /proc/PID/maps. `file`: its device and inode."""

    size: int
    shared: bool
    file: tuple[str, int]
    name: str


def unnamed_mappings(pid: int) -> Iterator[Mapping]:
    """Yields a process's mappings of files that have no name any more; nothing if they cannot be read."""
    try:
        with open(f"/proc/{pid}/maps", errors="replace") as file:
            text = file.read()
            if _DELETED not in text:  # most processes have hundreds of mappings and none of these
                return
            for line in text.split("\n"):
                if not line.endswith(_DELETED):
                    continue
                span, rights, _, device, inode, *name = line.split(None, 5)
                first, _, last = span.partition("-")
                size = int(last, 16) - int(first, 16)
                yield Mapping(size, rights[3] == "s", (device, int(inode)), "".join(name).strip())
    except OSError:
        return


def waited(pid: int) -> float:
    """Returns the seconds for which `pid` was runnable but had no processor; 0 if the kernel does not
    say.
    """
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def ignores_children(pid: int) -> bool:
    """Returns True if a process ignores the signal SIGCHLD, so that nobody collects its children's processor time."""
    try:
        with open(f"/proc/{pid}/status") as file:
            fields = dict(line.split(":", 1) for line in file)
        return bool(int(fields["SigIgn"], 16) & _SIGCHLD_BIT)
    except (OSError, ValueError, KeyError):
        return False


class ProcessTimes(NamedTuple):
    """A process's parent, its own processor time, and that of children it has waited for [seconds]."""

    parent: int
    own: float
    children: float


def times_of(pid: int) -> ProcessTimes | None:
    """Returns the times of a process; None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        with open(f"/proc/{pid}/schedstat") as file:
            own = int(file.read().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
    return ProcessTimes(int(fields[1]), own, (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK"))


class UncollectedTime:
    """Finds out whether processes of a run end without a trace of their processor time.

    That happens if their parent ignores the signal SIGCHLD, which `ignores_children` sees, or has set the flag
    SA_NOCLDWAIT, which no file shows. Otherwise the kernel adds a child's time to the parent's figure when the parent
    waits for it.
    """

    def __init__(self) -> None:
        self._last: dict[int, ProcessTimes] = {}
        self._start: dict[int, float] = {}
        """children's time of each parent when it was first seen"""
        self._ended: dict[int, float] = {}
        """time that each parent's children had when they were last seen"""

    def look(self, pids: Iterable[int]) -> bool:
        """Returns True if children have ended since the first look whose time no living parent has collected."""
        now = {pid: times for pid in pids if (times := times_of(pid))}
        for pid, times in now.items():
            self._start.setdefault(pid, times.children)
        for pid, times in self._last.items():
            if pid not in now and times.parent in now:
                self._ended[times.parent] = self._ended.get(times.parent, 0.0) + times.own
        self._last = now
        # A parent in `now` may have collected since then, so its figure is read again.
        lost = [
            seconds - (times.children - self._start[pid]) - _ROUNDED_SECONDS
            for pid, seconds in self._ended.items()
            if pid in now and (times := times_of(pid))
        ]
        return sum(max(0.0, seconds) for seconds in lost) > _UNCOLLECTED_SECONDS


def processor_seconds(pids: list[int]) -> float:
    """Returns the processor time of processes and of their children that were waited for.

    That of children whose parent does not collect it is missing (`UncollectedTime`).
    """
    ticks = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as file:
                ticks += sum(map(int, file.read().rpartition(")")[2].split()[11:15]))
        except (OSError, ValueError):
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


FILE_BYTES = 4096  # counted at least for every file: a flood of empty ones takes room and time, too
FOLDER_BYTES = 4 * FILE_BYTES  # counted for every folder: removing an empty one takes some disks milliseconds


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
                    least = FILE_BYTES
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                        least = FOLDER_BYTES
                    total += max(least, entry.stat(follow_symlinks=False).st_blocks * 512)
                    if total > stop:
                        break
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return math.inf
    return total


def free_entries(folders: Iterable[str]) -> int:
    """Returns how many more files and folders the disks of `folders` can hold, which takes no time to find.

    Some file systems do not say (btrfs), and on others it follows the free space (ZFS).
    """
    total = 0
    for folder in folders:
        with contextlib.suppress(OSError):  # the run has removed it
            total += os.statvfs(folder).f_ffree
    return total


def unlinked_bytes(pids: Iterable[int], folders: Iterable[str]) -> float:
    """Returns the disk space of files without a name that processes have open or mapped [bytes].

    Only files on the disks of `folders` count, mapped files as large as they are mapped. Processes that the caller may
    not inspect are skipped, and so are files that the caller has mapped: libraries that were replaced since it began.
    """
    inherited = {mapping.file for mapping in unnamed_mappings(os.getpid())}
    disks = {os.stat(folder).st_dev for folder in folders}
    names = {f"{os.major(disk):02x}:{os.minor(disk):02x}" for disk in disks}
    sizes: dict[tuple[str, int], int] = {}
    for pid in pids:
        for mapping in unnamed_mappings(pid):
            if mapping.file[0] in names and mapping.file not in inherited:
                sizes[mapping.file] = max(mapping.size, sizes.get(mapping.file, 0))
        try:
            handles = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for handle in handles:
            try:
                status = os.stat(f"/proc/{pid}/fd/{handle}")
            except OSError:
                continue
            if status.st_dev in disks and not status.st_nlink and stat.S_ISREG(status.st_mode):
                disk = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
                sizes[disk, status.st_ino] = max(status.st_blocks * 512, sizes.get((disk, status.st_ino), 0))
    return float(sum(sizes.values()))
