"""A page of measurements that share one time limit: every section is stopped at the deadline, and the page is written.

An alarm raises `OutOfTime` in a section that works past the deadline. A section that does not return to Python by then
(a hanging kernel or collective) is ended with the process, `GRACE` seconds later.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

GRACE = 25.0
"""Seconds after the deadline at which the process ends itself."""
REPEAT = 5.0
"""Seconds after which the alarm is repeated, for code in which Python ignores exceptions (`__del__`)."""


class OutOfTime(KeyboardInterrupt):
    """Interrupts a section at the deadline, like Ctrl-C: no handler in between takes it for a fault."""


def process_seconds() -> float:
    """Returns the seconds since this process started, imports included; 0 on systems without /proc."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")


class TimedPage:
    """A Markdown file, written line by line, and the time left."""

    def __init__(self, output: Path, seconds: float) -> None:
        self.output = output
        self.deadline = time.monotonic() + seconds
        self.lines: list[str] = []

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def write(self, *lines: str) -> None:
        """Prints lines and adds them to the page."""
        self.lines += lines
        print("\n".join(lines), flush=True)
        self.output.write_text("\n".join(self.lines) + "\n")

    def section(self, title: str, needed: float, function: Callable[..., None], *arguments: Any) -> None:
        """Runs a section if `needed` seconds are left; writes into the page if it fails or is stopped."""
        began = time.monotonic()
        self.write("", f"## {title}", "")
        if self.left < max(needed, 0.01):
            self.write(f"Not run: {max(self.left, 0):.0f} seconds were left, and it needs about {needed:.0f}.")
            return
        try:
            with self._alarm():
                function(self, *arguments)
        except OutOfTime:
            self.write("", "**Stopped:** the time limit was reached, and this section was not finished.")
        except Exception as error:
            traceback.print_exc()
            self.write("", f"**Failed:** {type(error).__name__}: {' '.join(str(error).split())[:400]}")
        self.write("", f"({time.monotonic() - began:.0f} s)")

    @contextlib.contextmanager
    def _alarm(self) -> Iterator[None]:
        """Raises OutOfTime in the main thread at the deadline, and ends the process if that has no effect."""

        ended = False

        def ring(*_: Any) -> None:
            if self.left <= 0 and not ended:
                raise OutOfTime

        watchdog = threading.Timer(self.left + GRACE, self._give_up)
        watchdog.daemon = True
        watchdog.start()
        handler = signal.signal(signal.SIGALRM, ring)
        timer = signal.getitimer(signal.ITIMER_REAL)
        try:
            signal.setitimer(signal.ITIMER_REAL, max(self.left, 0.001), REPEAT)
            yield
        finally:
            ended = True  # from here on the alarm does not raise, so nothing below is left out
            watchdog.cancel()
            signal.setitimer(signal.ITIMER_REAL, *timer)
            signal.signal(signal.SIGALRM, handler)

    def _give_up(self) -> None:
        self.write("", f"**Stopped:** this section did not end within {GRACE:.0f} seconds of the time limit.")
        faulthandler.dump_traceback()
        os._exit(1)
