"""Plays the random player where the documentation states how often it wins, and stores every game's result.

    python -m benchmarks.floors            # plays all settings and writes benchmarks/floors.json (minutes)
    python -m benchmarks.floors alfworld   # plays the settings whose name begins so

`docs/_figures.py` writes the shares into the pages. A test plays the first games again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from envsuite import registry
from envsuite.cache import write_atomically
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy

FILE = Path(__file__).with_name("floors.json")


class Floor(NamedTuple):
    """One setting that the random player plays."""

    task: str
    games: int
    attempts: int = 1
    knobs: dict[str, Any] = {}


FLOORS = {
    "alfworld-easy": Floor("ALFWorld-generated-easy-v0", 300),
    "alfworld-medium": Floor("ALFWorld-generated-medium-v0", 300),
    "alfworld-hard": Floor("ALFWorld-generated-hard-v0", 300),
    "alfworld-generated": Floor("ALFWorld-generated-v0", 300),
    "textworld-filtered": Floor("TextWorld-w2-o3-q4-v0", 50, 3),
    "textworld-whole": Floor("TextWorld-w2-o3-q4-v0", 50, 3, {"admissible": "whole"}),
    "virtualhome-food": Floor("VirtualHome-food_preparation-v0", 300),
}


def wins(floor: Floor, games: int | None = None) -> str:
    """Plays the first `games` games and returns one digit per episode, in the order of games and attempts: 1 is won."""
    task = registry.TASKS[floor.task]
    knobs = registry.overrides(task, dict(floor.knobs))
    config = RunConfig(task, "random", knobs=knobs, episodes=games or floor.games, attempts=floor.attempts)
    with tempfile.TemporaryDirectory() as folder:
        evaluate(config, Path(folder), lambda: make_policy("random"))
        lines = (config.folder(Path(folder)) / "results.jsonl").read_text().splitlines()
    records = sorted(map(json.loads, lines), key=lambda record: (record["seed"], record["attempt"]))
    return "".join(str(int(record["success"])) for record in records)


def read() -> dict[str, str]:
    """Returns the stored results by setting."""
    stored: dict[str, str] = json.loads(FILE.read_text())
    return stored


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix", nargs="?", default="")
    args = parser.parse_args()
    results = read() if FILE.exists() else {}
    for name, floor in FLOORS.items():
        if name.startswith(args.prefix):
            results[name] = wins(floor)
            print(f"{name}: {results[name].count('1')} of {len(results[name])}", flush=True)
    write_atomically(FILE, json.dumps({name: results[name] for name in FLOORS if name in results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
