"""Progress of a run: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from harness.records import Record, is_broken


class LiveBar:
    """A bar on a terminal, unless `quiet`; `bar` is None elsewhere. Use as a context."""

    WIDTH = 40

    def __init__(self, console: Console, name: str, total: int | None, quiet: bool = False) -> None:
        """`total` is the number of steps; None if it is unknown."""
        self.console, self.name, self.total, self.quiet = console, name, total, quiet
        self.bar: Progress | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal and not self.quiet:
            self.bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(self.WIDTH),
                MofNCompleteColumn(),
                TextColumn("{task.fields[state]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self.console,
            )
            self.bar.start()
            self.row = self.bar.add_task(self.name, total=self.total, state="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()


class RunProgress(LiveBar):
    """Success so far, invalid share, tokens/s and time left. Use as a context, call with each record."""

    def __init__(self, console: Console, name: str, total: int, quiet: bool = False) -> None:
        super().__init__(console, name, total, quiet)
        self.episodes = total
        self.ended = self.wins = self.broken = self.turns = self.faults = self.tokens = 0
        self.read = self.cached = self.reused = 0
        self.began = self.said = time.monotonic()

    def __call__(self, record: Record, cached: int = 0) -> None:
        """Counts a finished episode; `cached` is the number of its prompt tokens that came from a cache."""
        self._count(record)
        self.tokens += record["output_tokens"]
        self.read += record["input_tokens"]
        self.cached += cached
        if self.bar:
            self.bar.update(self.row, advance=1, state=self.state())
        elif not self.quiet and (time.monotonic() - self.said > 10 or self.ended == self.episodes):
            self.said = time.monotonic()
            left = (self.said - self.began) / (self.ended - self.reused) * (self.episodes - self.ended)
            self.console.print(
                f"{self.name}: {self.ended}/{self.episodes}  {self.state()}  {left:.0f} s left",
                highlight=False,
                soft_wrap=True,
            )

    def reuse(self, record: Record) -> None:
        """Counts an episode that an earlier run has played: it takes neither time nor tokens."""
        self._count(record)
        self.reused += 1
        if self.bar:
            self.bar.update(self.row, advance=1, state=self.state())

    def _count(self, record: Record) -> None:
        self.ended += 1
        self.broken += is_broken(record)
        self.wins += record["success"]
        self.turns += record["num_turns"]
        self.faults += sum(record["faults"].values())

    def state(self) -> str:
        scored = max(1, self.ended - self.broken)
        parts = [f"success {100 * self.wins / scored:.0f} %", f"invalid {100 * self.faults / max(1, self.turns):.0f} %"]
        if self.tokens:
            parts.append(f"{self.tokens / max(1e-9, time.monotonic() - self.began):.0f} tok/s")
        if self.cached:
            parts.append(f"{100 * self.cached / max(1, self.read):.0f} % of prompts cached")
        if self.broken:
            parts.append(f"broken {self.broken}")
        return "  ".join(parts)
