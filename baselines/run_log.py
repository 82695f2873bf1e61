"""What a run writes down as it goes: what it is (`recipe.json`), and its numbers (`metrics.jsonl`, trackers, the screen)."""

from __future__ import annotations

import json
import platform
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

Say = Callable[[dict[str, Any]], None]


class RunLog:
    """Of several processes that train together, the first alone writes."""

    def __init__(self, recipe: Recipe, folder: Path, say: Say) -> None:
        self.recipe, self.folder, self.say = recipe, folder, say
        self.metrics = folder / "metrics.jsonl"
        self.trackers: list[trackers.Tracker] = []
        if collectives.first():
            self.trackers = [trackers.TRACKERS[name](folder, recipes.plain(recipe)) for name in recipe.trackers]

    def begin(self) -> None:
        """Of a run that is new; lines of one that was killed before its first checkpoint go."""
        if collectives.first():
            self.metrics.unlink(missing_ok=True)
            found = {
                "recipe": recipes.plain(self.recipe),
                "torch": torch.__version__,
                "threads": torch.get_num_threads(),
                "processes": collectives.size(),
                "host": platform.platform(),
                "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }
            write_atomically(self.folder / "recipe.json", json.dumps(found, indent=2) + "\n")

    def line(self, line: dict[str, Any]) -> None:
        """Appends a line to metrics.jsonl, passes its numbers to the trackers and says it."""
        if collectives.first():
            with self.metrics.open("a") as file:
                file.write(json.dumps(line) + "\n")
            numbers = {f"{line['kind']}/{key}": value for key, value in line.items() if isinstance(value, (int, float))}
            for tracker in self.trackers:
                tracker.log(numbers, int(line.get("update", 0)))
            self.say(line)

    def count(self) -> int:
        return sum(1 for _ in self.metrics.open()) if self.metrics.exists() else 0

    def cut(self, lines: int) -> None:
        """Forgets all but the first `lines`: what was noted after the checkpoint is played and noted again."""
        if collectives.first():
            kept = self.metrics.read_text().splitlines(keepends=True)[:lines]
            write_atomically(self.metrics, "".join(kept))
