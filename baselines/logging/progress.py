"""The progress display of a training run: a live bar on a terminal, and a plain line per step
elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

DISPLAYED = {
    "eval": ("success", "low", "high", "reward", "turns"),
    "update": ("reward", "success", "invalid", "kl", "entropy", "clip_share", "explained_variance"),
    "sft": ("epoch", "loss"),
}


class TrainProgress:
    """Displays log lines: a bar on a terminal, lines elsewhere.

    Use it as a context manager and call it with each line of metrics.jsonl.
    """

    WIDTH = 20

    def __init__(self, console: Console, name: str, total: int | None) -> None:
        """`total` is the number of steps; None if it is unknown."""
        self.console, self.name, self.total = console, name, total
        self.bar: Progress | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
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

    def __call__(self, line: dict[str, Any]) -> None:
        kind, summary = line["kind"], summarise(line)
        if self.bar is None or kind == "eval":  # evaluations stay readable above the bar
            self._print(f"{kind:6} {line.get('update', ''):>5}  {summary}")
        if self.bar is not None and kind != "eval":
            self.bar.update(self.row, completed=line.get("update", 0), state=summary)
        if kind == "update":
            for warning in warnings_of(line):
                if self.bar is not None:
                    self._print(f"warning: {warning}")
                else:
                    print(f"warning: {warning}", file=sys.stderr, flush=True)

    def _print(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)
        self.console.file.flush()


def summarise(line: dict[str, Any]) -> str:
    """Returns the main numbers of a log line, with the trained tokens per second."""
    parts = [f"{key} {line[key]:.3f}" for key in DISPLAYED[line["kind"]] if key in line]
    seconds = line.get("rollout_seconds", 0.0) + line.get("update_seconds", 0.0) + line.get("seconds", 0.0)
    if "tokens" in line and seconds > 0:
        parts.append(f"{line['tokens'] / seconds:.0f} tok/s")
    if not line.get("held_out", True):
        parts.append("(on games it trains on: the panel has no others)")
    return "  ".join(parts)


def warnings_of(line: dict[str, Any]) -> list[str]:
    """Returns the signs of a failing run in a log line, each with a cure."""
    warnings = []
    if line.get("entropy", 1.0) < 1e-3:
        warnings.append("the policy's entropy is gone: raise config.entropy_coef or lower the learning rate")
    if line.get("invalid", 0.0) > 0.9:
        warnings.append("nine of ten commands are not understood: fine-tune on demonstrations first ([sft])")
    if line.get("kl", 0.0) > 0.5:
        warnings.append(
            "the policy moves far in one update (KL > 0.5): lower the learning rate or set config.target_kl"
        )
    if line.get("dropped_turns", 0):
        warnings.append(
            f"{line['dropped_turns']} turns were left out of prompts that were too long: raise acting.context, "
            "or show less history"
        )
    if line.get("too_long", 0):
        warnings.append(
            f"{line['too_long']} episodes ended because a prompt left no room for a reply: raise acting.context"
        )
    if line.get("flat_groups", 0.0) == 1.0:
        warnings.append(
            "all groups have equal scores, so that nothing was learned: use easier games, or raise config.group_size"
        )
    return warnings
