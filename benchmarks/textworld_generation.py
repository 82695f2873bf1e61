"""Times the generation of new TextWorld games with and without `fast_generation`, and compares the games.

    python -m benchmarks.textworld_generation --games 200

Each game is generated in both ways, in turns, in one process. The page `textworld_generation.md` states means and
the largest value of CPU milliseconds, and how many games differ. Compiling is not included.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from benchmarks.textworld_native import TASKS
from envsuite.envs.textworld import generator
from envsuite.envs.textworld.engine.fast_generation import fast_generation
from envsuite.envs.textworld.games import GameSpec, game_spec

FIRST_SEED = 62_000
TARGET = Path(__file__).with_suffix(".md")


class Row(NamedTuple):
    """Results of one kind of game."""

    own: list[float]
    """CPU milliseconds of textworld's own functions, by game"""
    fast: list[float]
    differences: int


Context = Callable[[], AbstractContextManager[None]]


def generate(spec: GameSpec, context: Context) -> tuple[float, str]:
    """Returns the CPU milliseconds of generating a game in a context, and the game's text."""
    generator.fast_generation = context  # type: ignore[assignment]
    begin = time.process_time()
    game = generator.make_game(spec)
    milliseconds = 1000 * (time.process_time() - begin)
    return milliseconds, json.dumps([generator.canonical_game(game.serialize()), game.objective, game.walkthrough])


def measure(name: str, games: int) -> Row:
    """Generates games of a kind in both ways, each time in the other order."""
    challenge, settings = TASKS[name]
    row = Row([], [], 0)
    generate(game_spec(challenge, settings, FIRST_SEED - 1), contextlib.nullcontext)  # reads textworld's files
    for seed in range(FIRST_SEED, FIRST_SEED + games):
        spec = game_spec(challenge, settings, seed)
        contexts: list[Context] = [contextlib.nullcontext, fast_generation]
        results = {context: generate(spec, context) for context in (contexts if seed % 2 else contexts[::-1])}
        (own, own_game), (fast, fast_game) = (results[context] for context in contexts)
        row.own.append(own)
        row.fast.append(fast)
        row = row._replace(differences=row.differences + (own_game != fast_game))
    return row


def page(rows: dict[str, Row]) -> str:
    """Returns the page of the results."""
    lines = [
        "# TextWorld: time to generate a new game",
        "",
        "Made by `python -m benchmarks.textworld_generation`. CPU milliseconds per new game, not compiled, of",
        "textworld's own functions (with the patches of `engine/patches.py`) and with `fast_generation`, in turns in",
        "one process. All games are compared: facts, texts, quests, objective and walkthrough.",
        f"Load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.",
        "",
        "| game | games | differences | own: mean | own: largest | fast: mean | fast: largest |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        times = [f"{number:.1f}" for number in (mean(row.own), max(row.own), mean(row.fast), max(row.fast))]
        lines.append(f"| {name} | {len(row.own)} | {row.differences} | {' | '.join(times)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--games", type=int, default=200, help="games of each kind (default: 200)")
    options = parser.parse_args()
    rows = {}
    for name in TASKS:
        rows[name] = measure(name, options.games)
        TARGET.write_text(page(rows))
    print(TARGET.read_text())


if __name__ == "__main__":
    main()
