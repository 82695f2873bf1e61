"""Writes figures into the pages from stored results: `python -m docs._figures`.

A page marks a figure with a comment and this module writes the text up to the closing comment:

    <!-- floor: alfworld-easy -->51 of 300 games, 17.0 % [13.2, 21.7]<!-- end -->
    <!-- board: overcooked Overcooked-easy-v0 random -->0.0 % [0.0, 16.1]<!-- end -->
    <!-- table: ALFWorld-valid_seen-v0 random -->0 of 140 games, 0.0 % [0.0, 2.7]<!-- end -->
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

from benchmarks import floors
from envsuite.cache import write_atomically
from envsuite.errors import UsageError
from harness.stats.intervals import Interval, success_interval
from harness.stats.summary import summarise
from harness.suites import leaderboards

ROOT = Path(__file__).resolve().parents[1]
MARK = re.compile(r"(<!-- (floor|board|table): ([^>]+?) -->)(.*?)(<!-- end -->)", re.DOTALL)


def pages() -> dict[Path, str]:
    """Returns every page that has figures, written again."""
    texts = {path: path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]}
    return {path: MARK.sub(_written, text) for path, text in texts.items() if MARK.search(text)}


def _written(match: re.Match[str]) -> str:
    return match[1] + figure(match[2], match[3]) + match[5]


def figure(kind: str, name: str) -> str:
    """Returns a figure as text. Raises UsageError if no stored result has its name."""
    try:
        if kind == "floor":
            return _floor(name)
        return _board(*name.split(" ")) if kind == "board" else _table(*name.split(" "))
    except (KeyError, TypeError, ValueError, FileNotFoundError) as error:
        raise UsageError(f"No stored result for the figure '{kind}: {name}' ({error}).") from error


def _floor(name: str) -> str:
    floor, results = floors.FLOORS[name], floors.read()[name]
    games = [index // floor.attempts for index in range(len(results))]
    interval = success_interval([result == "1" for result in results], games)
    return f"{results.count('1')} of {len(results)} games, {_percent(interval)}"


def _board(suite: str, task: str, model: str) -> str:
    summary = summarise(_boards(suite).of((task, "{}", model)))
    return _percent(Interval(**summary["success"]))


@functools.cache
def _boards(suite: str) -> leaderboards.Board:
    return leaderboards.read(ROOT / "leaderboards" / suite)


def _table(task: str, model: str) -> str:
    (path,) = (ROOT / "leaderboards" / "tables" / "records").glob(f"{task}--{model}/*/summary.json")
    success = json.loads(path.read_text())["success"]
    wins = round(success["value"] * success["n"])
    return f"{wins} of {success['n']} games, {_percent(Interval(**success))}"


def _percent(interval: Interval) -> str:
    return f"{100 * interval.value:.1f} % [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def main() -> None:
    for path, text in pages().items():
        if path.read_text() != text:
            write_atomically(path, text)
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
