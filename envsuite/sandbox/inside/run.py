"""A run's processes as the zygote sees them: forwards their output, holds them to the limits, pauses and ends them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from . import wire
from .attributes import AttributeGuard
from .child import ERROR, OUTPUT, VALUE
from .family import CROWD, descendants, give_way, signal_all
from .usage import (
    FOLDER_BYTES,
    ProcessMemory,
    UncollectedTime,
    folder_bytes,
    free_entries,
    ignores_children,
    memory_bytes,
    memory_of,
    processor_seconds,
    unlinked_bytes,
    waited,
)

TICK = 0.05  # seconds between checks of clock, memory and disk


@dataclass
class Channel:
    """The zygote's connection to envsuite."""

    commands: int
    replies: int
    parent: int | None
    """a pidfd, readable once envsuite's process has ended"""
    buffer: bytearray = field(default_factory=lambda: bytearray(1 << 16))
    """through which all output passes; cleared before each run, so that none inherits another's"""

    @property
    def endings(self) -> list[int]:
        """Descriptors that become readable when envsuite ends."""
        return [] if self.parent is None else [self.parent]


@dataclass
class SandboxRun:
    """The processes of one run. `folders`: those that count towards the limit on disk space [paths]."""

    channel: Channel
    child: int
    outputs: dict[bytes, int]
    folders: list[str]
    baseline: ProcessMemory
    """memory of the zygote, which a fork shares"""
    guard: AttributeGuard | None = None
    stdin: int | None = None
    """where the turns of a dialogue are written"""
    seconds: float = 0.0
    """of the last `watch`, without the time for which the child waited for a processor"""
    ended: bool = False
    """True once the zygote has killed its processes"""
    peak: float = 0.0
    """largest memory seen beyond the baseline [bytes]"""
    counted: bool = False
    """True if the kernel may not hold the limit on processes"""
    aside: threading.Thread | None = None
    """measures the memory of a crowd"""
    aside_peaks: list[float] = field(default_factory=list)
    excused: bool = True
    """False once processor time of the run was lost, or it had a crowd of processes: then all its time counts"""
    uncollected: UncollectedTime = field(default_factory=UncollectedTime)

    def watch(self, limits: dict[str, float], message: bytes | bytearray = b"") -> dict[str, Any]:
        """Forwards output until the child ends or exceeds a limit; returns its fate.

        With a `message`, for a dialogue's turn, it also returns when the child reports the end of the turn: "paused".
        """
        began, queued = time.monotonic(), waited(self.child)
        used = processor_seconds(descendants())
        fate = self._watch(limits, message, (began, queued, used))
        self.seconds = self._seconds_since(began, queued)
        return {"fate": fate}

    def _seconds_since(self, began: float, queued: float) -> float:
        """Returns the seconds of the run, without those for which its first process waited for a processor."""
        excused = waited(self.child) - queued if self.excused else 0.0
        return max(0.0, time.monotonic() - began - excused)

    def _watch(self, limits: dict[str, float], message: bytes | bytearray, start: tuple[float, float, float]) -> str:
        began = start[0]
        deadline, latest = began + limits["seconds"], began + limits["seconds"] * wire.BUSY
        written = dict.fromkeys(self.outputs, 0)
        allowed = {OUTPUT: limits["flood_mb"], ERROR: limits["flood_mb"], VALUE: limits["value_mb"]}
        unsent = memoryview(message)
        handle = os.pidfd_open(self.child)
        poll, names = self._poll(handle)
        if message and self.stdin is not None:
            poll.register(self.stdin, select.POLLOUT)
        listener = self.guard.listener if self.guard else -1
        next_look = time.monotonic() + TICK
        next_disk = next_flood = next_look
        next_check = deadline
        allowed_bytes = limits["disk_mb"] * 1e6
        entries = free_entries(self.folders)
        try:
            while True:
                now = time.monotonic()
                if now >= next_check:
                    if now >= latest or self._had_its_time(start, limits["seconds"]):
                        return "timeout"
                    next_check = now + TICK
                events = poll.poll(max(1.0, (min(next_look, next_check) - now) * 1e3))
                for ready, event in sorted(events, key=lambda pair: pair[0] == handle):  # what it wrote comes first
                    if ready in names:
                        count = self.forward(names[ready], ready)
                        if count is None:
                            continue
                        written[names[ready]] += count
                        if not count:
                            poll.unregister(ready)
                        if written[names[ready]] > allowed[names[ready]] * 1e6:
                            return "output"
                        if message and count and names[ready] == VALUE:
                            return "paused"
                    elif ready == listener and self.guard:
                        if event & select.POLLIN:
                            self.guard.answer()
                        else:  # every process with the filter has ended
                            poll.unregister(listener)
                    elif ready == self.stdin:
                        unsent = unsent[self._send(unsent) :]
                        if not unsent:
                            poll.unregister(ready)
                    elif ready == handle:
                        return "exited"
                    else:
                        return "abandoned"
                looked, used = time.monotonic(), time.process_time()
                if looked >= next_look:
                    pids = descendants()
                    if self.counted and len(pids) > limits["processes"]:
                        return "processes"
                    if len(pids) > CROWD:
                        self.excused = False
                        give_way(pids)
                    allowed_memory = limits["memory_mb"] * 1e6
                    if len(pids) > CROWD:
                        self._measure_aside(pids, allowed_memory)
                    else:
                        end = max(deadline, looked + 1.0)
                        self.peak = max(self.peak, memory_bytes(pids, self.baseline, allowed_memory, end))
                    if self.peak > allowed_memory:
                        return "memory"
                    lost = self.uncollected.look(pids) or any(map(ignores_children, pids))
                    self.excused = self.excused and not lost
                    # Looking at many processes takes processor time, of which the run must get the most.
                    next_look = time.monotonic() + max(TICK, 4 * (time.process_time() - used))
                looked, used = time.monotonic(), time.process_time()
                flood = (entries - free_entries(self.folders)) * FOLDER_BYTES > allowed_bytes / 2
                if looked >= next_disk or (flood and looked >= next_flood):
                    if self._disk_bytes(allowed_bytes) > allowed_bytes:
                        return "disk"
                    rest = 4 * (time.process_time() - used)
                    next_flood, next_disk = looked + max(2 * TICK, rest), looked + max(10 * TICK, rest)
                    entries = free_entries(self.folders)
        finally:
            os.close(handle)

    def _poll(self, handle: int) -> tuple[select.poll, dict[int, bytes]]:
        """Returns a poll of everything that can happen to the run, and its outputs' names by descriptor."""
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.register(self.channel.commands, 0)  # reports only hang-up: envsuite has closed the session
        for ready in [*self.channel.endings, *self.outputs.values(), *([self.guard.listener] if self.guard else [])]:
            poll.register(ready, select.POLLIN)
        return poll, {output: name for name, output in self.outputs.items()}

    def _had_its_time(self, start: tuple[float, float, float], seconds: float) -> bool:
        """Returns True if a run past its deadline was not held up by others.

        Time for which the child waited for a processor does not count, unless the run's own processes used the
        processors meanwhile. `start`: time, time waited, and processor time used before.
        """
        began, queued, used = start
        return self._seconds_since(began, queued) >= seconds or processor_seconds(descendants()) - used >= seconds

    def _measure_aside(self, pids: list[int], allowed: float) -> None:
        """Adds what a crowd of processes uses to `peak`: the quick figure now, the exact one from a thread.

        The kernel makes a reader of a process's mappings wait while the process forks, for seconds if the processes
        that it has started take its processor.
        """
        quick = sum(max(0, memory_of(pid).resident - self.baseline.resident) for pid in pids)
        self.peak = max(self.peak, quick, *self.aside_peaks)
        if self.aside is None or not self.aside.is_alive():
            self.aside = threading.Thread(
                target=lambda: self.aside_peaks.append(memory_bytes(pids, self.baseline, allowed)), daemon=True
            )
            with contextlib.suppress(RuntimeError):  # no thread can be started now: at the next look
                self.aside.start()

    def _disk_bytes(self, stop: float) -> float:
        total = sum(folder_bytes(folder, stop) for folder in self.folders)
        return total + unlinked_bytes(descendants(), self.folders) if self.folders and total <= stop else total

    def _send(self, data: memoryview) -> int:
        """Writes a part of a message to the child; a child that has closed its end counts as one that reads all."""
        try:
            return os.write(self.stdin or 0, data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            return len(data)

    def forward(self, name: bytes, handle: int) -> int | None:
        """Forwards one buffer of a pipe to envsuite; returns its size, 0 at the end, None if there is nothing to read.

        The run may read from its own pipes, too, so that there may be nothing left after `poll` has seen data.
        """
        try:
            count = os.readv(handle, [self.channel.buffer])
        except BlockingIOError:
            return None
        if count:
            wire.write_frame(self.channel.replies, name, memoryview(self.channel.buffer)[:count])
        return count

    def drain(self) -> None:
        """Forwards everything that the run has written and nobody has read."""
        for name, handle in self.outputs.items():
            for _ in range(64):  # another process of the run may go on writing
                if not self.forward(name, handle):
                    break

    def resume(self) -> None:
        signal_all(descendants(), signal.SIGCONT)

    def close(self) -> None:
        """Closes the descriptors of a run whose processes have ended, except its outputs."""
        if self.aside and self.aside.ident:
            self.aside.join()  # the zygote must be single-threaded when it forks
        if self.guard:
            self.guard.close()
        if self.stdin is not None:
            os.close(self.stdin)
