"""Compares TextWorld's native engine with the interpreter, frame by frame, and writes `textworld_native.md`.

    python -m benchmarks.textworld_native                         # 20 games of each task
    python -m benchmarks.textworld_native --games 100 --episodes 60 --first-seed 60101

Each game is played with random listed commands; its first episode begins with the game's solution. Every frame
must be equal: text, room, inventory, score, moves, commands, won and lost. `tests/envs/test_textworld_native.py`
holds a sample.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.cache import write_atomically

TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        name: ("custom", {"world_size": rooms, "nb_objects": objects, "quest_length": quest})
        for name, (rooms, objects, quest) in {
            "w2-o3-q4": (2, 3, 4),
            "w8-o3-q4": (8, 3, 4),
            "w2-o12-q4": (2, 12, 4),
            "w8-o12-q4": (8, 12, 4),
            "w4-o6-q8": (4, 6, 8),
            "hard": (8, 12, 12),
        }.items()
    },
    "simple": ("simple", {}),
    "treasure_hunter-l5": ("treasure_hunter", {"level": 5}),
    "treasure_hunter-l25": ("treasure_hunter", {"level": 25}),
    "coin_collector-l105": ("coin_collector", {"level": 105}),
}
FIGURES = ("steps", "wins", "differences", "handed_over")
FIRST_SEED = 60_001  # beyond the published splits
TURNS = 60  # commands in an episode
TARGET = Path(__file__).with_suffix(".md")


class Row(NamedTuple):
    """Results of one game."""

    native: bool
    steps: int = 0
    wins: int = 0
    losses: int = 0
    differences: int = 0
    handed_over: int = 0
    """episodes that ended early because only the interpreter can play a command"""
    native_seconds: float = 0.0
    interpreter_seconds: float = 0.0
    """CPU seconds of this process; the interpreter runs in it as well"""


def play(folder: Path, challenge: str, settings: dict[str, Any], seed: int, episodes: int, turns: int = TURNS) -> Row:
    """Generates and compiles a game in `folder` and plays it in both engines."""
    from envsuite.envs.textworld.engine.patches import apply_patches
    from envsuite.envs.textworld.engine.tracker import TrackedGame
    from envsuite.envs.textworld.games import game_spec
    from envsuite.envs.textworld.generator import compile_game, make_game
    from envsuite.envs.textworld.native.game import load_native

    apply_patches()
    path = folder / "game.json"
    made = make_game(game_spec(challenge, settings, seed))
    made.save(str(path))
    inventory = seed % 4 > 0  # every fourth game as for observations=raw
    native = load_native(path, inventory)
    if native is None:
        return Row(False)
    compile_game(made, path.with_suffix(".z8"))
    interpreter = TrackedGame(str(path.with_suffix(".z8")), inventory)
    steps = wins = losses = differences = handed_over = 0
    native_seconds = interpreter_seconds = 0.0
    for episode in range(episodes):
        rng = random.Random(f"{challenge} {seed} {episode}")
        solution = list(made.walkthrough) if episode == 0 else []
        expected = interpreter.reset()
        native.reset()
        differences += native.opening().frame != expected
        for _ in range(turns):
            if expected.won or expected.lost:
                wins += expected.won
                losses += expected.lost
                break
            assert expected.commands
            command = (solution.pop(0) if solution else rng.choice(expected.commands)).lower()
            before = time.process_time()
            expected = interpreter.step(command)
            middle = time.process_time()
            answer = native.step(command)
            if answer is None:
                handed_over += 1
                break
            native_seconds += time.process_time() - middle
            interpreter_seconds += middle - before
            steps += 1
            differences += answer != expected
    interpreter.close()
    return Row(True, steps, wins, losses, differences, handed_over, native_seconds, interpreter_seconds)


def tables(rows: dict[str, list[Row]]) -> Iterator[str]:
    """Yields the lines of the page."""
    yield from (
        "# TextWorld without compiling: the native engine and the interpreter",
        "",
        "Made by `python -m benchmarks.textworld_native`. Each game is played in both engines with random listed",
        "commands; its first episode begins with the game's solution. All frames are compared: text, room, inventory,",
        "score, moves, listed commands, won and lost. Games that the native engine does not cover are played by the",
        "interpreter, and so are commands with names that only it can tell apart: their episodes end there (handed",
        "over). Every fourth game is compared as `observations=raw` plays it.",
        "",
        "| game | games | covered | steps compared | episodes won | differences | handed over |",
        "|---|---|---|---|---|---|---|",
    )
    for name, games in [*rows.items(), ("all", [row for results in rows.values() for row in results])]:
        covered = [row for row in games if row.native]
        numbers = [sum(getattr(row, field) for row in covered) for field in FIGURES]
        yield f"| {name} | {len(games)} | {len(covered)} | " + " | ".join(f"{number:,}" for number in numbers) + " |"
    yield from (
        "",
        f"CPU times. Load average at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.",
        "",
        "| game | native, steps/CPU s | interpreter, steps/CPU s |",
        "|---|---|---|",
    )
    for name, games in rows.items():
        covered = [row for row in games if row.native]
        if not covered:
            continue
        steps = sum(row.steps for row in covered)
        speeds = [
            steps / max(sum(getattr(row, field) for row in covered), 1e-9)
            for field in ("native_seconds", "interpreter_seconds")
        ]
        yield f"| {name} | " + " | ".join(f"{speed:,.0f}" for speed in speeds) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--games", type=int, default=20, help="games of each task (default: 20)")
    parser.add_argument("--episodes", type=int, default=20, help="episodes of each game (default: 20)")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, help=f"default: {FIRST_SEED}")
    options = parser.parse_args()
    rows: dict[str, list[Row]] = {name: [] for name in TASKS}
    for seed in range(options.first_seed, options.first_seed + options.games):
        for name, (challenge, settings) in TASKS.items():
            with tempfile.TemporaryDirectory() as folder:
                row = play(Path(folder), challenge, settings, seed, options.episodes)
            rows[name].append(row)
            if row.differences:
                print(f"{name} seed {seed}: {row.differences} differences", flush=True)
            write_atomically(TARGET, "\n".join(tables(rows)) + "\n")
    print(TARGET.read_text())


if __name__ == "__main__":
    main()
