"""Progress of a run: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from envsuite.escaping import one_line
from harness import cli
from harness.records import Record, is_broken
from harness.rollout.activity import Activity
from harness.types import Trajectory

WIDTH = 40
"""columns of the bar"""
MOST_REASON = 160
"""characters of a server's message that are shown"""


class RunProgress:
    """Displays an `Activity`: a bar on a terminal, elsewhere a line now and then.

    A thread draws it, so that it also shows a run that waits for a server. Use as a context, and
    call it with each record.
    """

    FIRST, EVERY = 10.0, 60.0
    """shortest and longest pause between lines, in seconds"""

    def __init__(self, console: Console, name: str, total: int, activity: Activity) -> None:
        self.console, self.name, self.total, self.activity = console, name, total, activity
        self.scored = self.wins = self.broken = self.turns = self.faults = self.read = self.cached = 0
        self._over = threading.Event()
        self._began = time.monotonic()
        self._display: Live | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._display = Live(
                get_renderable=self._draw,
                console=self.console,
                refresh_per_second=4,
                redirect_stdout=sys.stdout.isatty(),  # what is printed into a file stays there
            )
            self._display.start()
        else:
            self._thread = threading.Thread(target=self._print_lines, name="envsuite-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._display:
            self._display.stop()
        if self._thread:
            self._thread.join()
            if error is None and self.scored + self.broken:
                self._print_line()

    def __call__(self, record: Record, run: Trajectory | None) -> None:
        """Counts an episode; `run` is None if an earlier run has played it."""
        if run is not None:
            self.read += record["input_tokens"]
            self.cached += sum(turn.reply.cached_tokens for turn in run.turns)
        broken = is_broken(record)
        self.broken += broken
        self.scored += not broken
        self.wins += record["success"] and not broken
        self.turns += record["num_turns"]
        self.faults += sum(record["faults"].values())

    def _print_lines(self) -> None:
        pause = self.FIRST
        while not self._over.wait(pause):
            self._print_line()
            pause = min(max(self.FIRST, (time.monotonic() - self._began) / 10), self.EVERY)

    def _print_line(self) -> None:
        text = "  ".join([f"{self.name}: {self.activity.ended}/{self.total}", *self.state()])
        self.console.print(text, highlight=False, soft_wrap=True)

    def _draw(self) -> Group:
        """Returns a bar, and a line below it."""
        bar = Table.grid(padding=(0, 1))
        done = self.activity.ended
        seconds = duration(time.monotonic() - self._began)
        bar.add_row(Text(self.name), ProgressBar(self.total, done, width=WIDTH), f"{done}/{self.total}", seconds)
        return Group(bar, Text("  " + "  ".join(self.state()), style="dim"))

    def state(self) -> list[str]:
        """Returns what is known: results so far, rates, requests, retries and time left."""
        activity = self.activity
        if activity.began is None:
            return ["starting"] if activity.ended < self.total else []
        parts = []
        if self.scored:
            parts.append(f"success {100 * self.wins / self.scored:.0f} %")
        if self.turns:
            parts.append(f"invalid {100 * self.faults / self.turns:.0f} %")
        if self.broken:
            parts.append(f"broken {self.broken}")
        turns, tokens = activity.rates()
        parts.append(f"{cli.plural(activity.turns, 'turn')} ({turns:.3g}/s)")
        if activity.tokens:
            parts.append(f"{tokens:.0f} tok/s")
        if self.cached:
            parts.append(f"{100 * self.cached / max(1, self.read):.0f} % of prompts cached")
        if activity.in_flight:
            parts.append(f"{activity.in_flight} in flight")
        left = activity.seconds_left()
        if left and activity.ended + activity.broken < self.total:
            parts.append(f"{'at most ' if left[1] else ''}{duration(left[0])} left")
        retrying, reason, pause = activity.retries()
        if retrying:
            parts.append(f"{retrying} retrying within {pause:.0f} s: {one_line(reason)[:MOST_REASON]}")
        return parts


def duration(seconds: float) -> str:
    """Returns a number of seconds as people read it.

    Examples:
        >>> duration(42), duration(125), duration(7260)
        ('42 s', '2 min 05 s', '2 h 01 min')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
