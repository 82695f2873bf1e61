"""The written record of a run: `recipe.json`, and the numbers in `metrics.jsonl`, trackers and the
display."""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from baselines import recipe as recipes
from baselines.distributed import collectives
from baselines.logging import trackers
from baselines.recipe import Recipe
from envsuite.cache import write_atomically

Display = Callable[[dict[str, Any]], None]
"""Shows a log line to the user."""


class RunLog:
    """Writes the record of a run; of several processes only the first writes.

    With `resume` the trackers continue the runs that they began. A tracker that fails is left out
    from then on, with a warning: metrics.jsonl has every number.
    """

    def __init__(self, recipe: Recipe, folder: Path, display: Display, resume: bool = False) -> None:
        self.recipe, self.folder, self.display = recipe, folder, display
        self.metrics = folder / "metrics.jsonl"
        self.trackers: dict[str, trackers.Tracker] = {}
        if collectives.first():
            self.trackers = trackers.open_trackers(recipe.trackers, folder, recipes.plain(recipe), resume)

    def begin(self) -> None:
        """Begins a new run; removes the metrics of a run that was killed before its first
        checkpoint."""
        if collectives.first():
            self.metrics.unlink(missing_ok=True)
            record = {
                "recipe": recipes.plain(self.recipe),
                "torch": torch.__version__,
                "threads": torch.get_num_threads(),
                "processes": collectives.size(),
                "host": platform.platform(),
                "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }
            write_atomically(self.folder / "recipe.json", json.dumps(record, indent=2) + "\n")

    def write(self, line: dict[str, Any]) -> None:
        """Appends a line to metrics.jsonl, and passes it to the trackers and the display."""
        if collectives.first():
            with self.metrics.open("a") as file:
                file.write(json.dumps(line) + "\n")
            numbers = {f"{line['kind']}/{key}": value for key, value in line.items() if isinstance(value, (int, float))}
            step = int(line.get("update", 0))
            self._track(lambda tracker: tracker.log(numbers, step))
            self.display(line)

    def close(self) -> None:
        """Closes the trackers, whose runs then count as finished until they are resumed."""
        self._track(lambda tracker: tracker.close())
        self.trackers = {}

    def _track(self, act: Callable[[trackers.Tracker], None]) -> None:
        for name, tracker in list(self.trackers.items()):
            try:
                act(tracker)
            except Exception as error:  # whatever a tracker raises when its server or disk fails
                print(f"warning: {name} failed and is left out from here on: {error}", file=sys.stderr)
                del self.trackers[name]

    def count(self) -> int:
        """Returns the number of lines in metrics.jsonl."""
        return sum(1 for _ in self.metrics.open()) if self.metrics.exists() else 0

    def truncate(self, lines: int) -> None:
        """Keeps only the first `lines`: what was logged after the checkpoint is played and logged
        again."""
        if collectives.first():
            remaining = self.metrics.read_text().splitlines(keepends=True)[:lines]
            write_atomically(self.metrics, "".join(remaining))
