"""Compares TextWorld's native engine with the interpreter, frame by frame, and writes `textworld_native.md`.

    python -m benchmarks.textworld_native                         # 20 games of each task
    python -m benchmarks.textworld_native --games 100 --episodes 60 --first-seed 60101

It records each game in a journal as soon as it is done: after an interrupt, the same command plays only the games
that the journal lacks (`--games 0`: only the page). Results of other code of the native engine are played again.

Each game is played with random listed commands; its first episode begins with the game's solution. Every frame
must be equal: text, room, inventory, score, moves, commands, won and lost. `tests/envs/test_textworld_native.py`
holds a sample.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.sandbox_journal import ROOT, ResultJournal
from benchmarks.textworld import on_cpu
from envsuite import registry

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
SPEED_TASK = "TextWorld-hard-v0"
SPEED_SEED = 1
VECTOR = 8
FIGURES = ("steps", "wins", "differences", "handed_over")
FIRST_SEED = 60_001  # beyond the splits of version 0
TURNS = 60  # commands in an episode
TARGET = Path(__file__).with_suffix(".md")
ENGINE = ROOT / "envsuite" / "envs" / "textworld" / "native"


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
    generate_seconds: float = 0.0
    load_seconds: float = 0.0
    compile_seconds: float = 0.0
    """CPU seconds of the compilers"""


def code_digest() -> str:
    """Returns a hash of the native engine's code: results of other code are not reused."""
    files = sorted(path for path in ENGINE.iterdir() if path.suffix in (".py", ".txt"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


def children_seconds() -> float:
    """Returns the CPU seconds that ended child processes used."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def play(folder: Path, challenge: str, settings: dict[str, Any], seed: int, episodes: int, turns: int = TURNS) -> Row:
    """Generates and compiles a game in `folder` and plays it in both engines."""
    from envsuite.envs.textworld.engine.patches import apply_patches
    from envsuite.envs.textworld.engine.tracker import TrackedGame
    from envsuite.envs.textworld.games import game_spec
    from envsuite.envs.textworld.generator import compile_game, make_game
    from envsuite.envs.textworld.native.game import load_native

    apply_patches()
    path = folder / "game.json"
    began = time.process_time()
    made = make_game(game_spec(challenge, settings, seed))
    made.save(str(path))
    generated = time.process_time()
    inventory = seed % 4 > 0  # every fourth game as for observations=raw
    native = load_native(path, inventory)
    loaded = time.process_time()
    if native is None:
        return Row(False)
    start = children_seconds()
    compile_game(made, path.with_suffix(".z8"))
    compiled = children_seconds() - start
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
    times = (native_seconds, interpreter_seconds, generated - began, loaded - generated, compiled)
    return Row(True, steps, wins, losses, differences, handed_over, *times)


def environment_rate(engine: str, count: int, steps: int) -> float:
    """Returns steps per CPU second of `count` environments (1: one, more: a vector), workers included.

    They play `SPEED_TASK` with random commands from their lists; games are generated before.
    """
    knobs: dict[str, Any] = {"engine": engine, "max_steps": 10_000}
    env: Any
    if count == 1:
        env = registry.build(SPEED_TASK, "dense", **knobs)
        members = [env]
    else:
        env = registry.make_vec(SPEED_TASK, count, "dense", **knobs)
        members = [member.unwrapped for member in env.envs]
    choose = random.Random(0).choice
    _, info = env.reset(seed=SPEED_SEED if count == 1 else [SPEED_SEED + number for number in range(count)])

    def workers() -> float:
        return sum(on_cpu(member.interpreter) for member in members if member.interpreter.pid)

    before, begin = workers(), time.process_time()
    for _ in range(max(1, steps // count)):
        offers = info["admissible_commands"]
        if count > 1:
            *_, info = env.step([choose(each or ["look"]) for each in offers])  # a won game begins anew by itself
        elif offers:
            *_, info = env.step(choose(offers))
        else:
            _, info = env.reset(seed=SPEED_SEED)
    spent = time.process_time() - begin + workers() - before
    assert engine == "interpreter" or all(member.native for member in members), "a game was handed over"
    env.close()
    return max(1, steps // count) * count / spent


def speed_table() -> list[str]:
    """Measures whole steps of environments and returns them as a table."""
    rates = {
        (engine, count): environment_rate(engine, count, steps)
        for engine, steps in (("auto", 1_600), ("interpreter", 320))
        for count in (1, VECTOR)
    }
    return [
        "",
        f"Whole steps of environments ({SPEED_TASK}, text and lists included, few resets), steps per CPU second,",
        f"workers included; no game was handed over. Load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.",
        "",
        f"| engine | one environment | vector of {VECTOR} |",
        "|---|---|---|",
        *(
            f"| {engine} | {rates[engine, 1]:,.0f} | {rates[engine, VECTOR]:,.0f} |"
            for engine in ("auto", "interpreter")
        ),
    ]


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
        "Times are CPU times, those of compiling the compilers'. Load average at the end: "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.",
        "",
        "| game | native, steps/CPU s | interpreter, steps/CPU s | generate (ms) | load (ms) | compile (ms) |",
        "|---|---|---|---|---|---|",
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
        times = [
            1000 * sum(getattr(row, field) for row in covered) / len(covered)
            for field in ("generate_seconds", "load_seconds", "compile_seconds")
        ]
        yield (
            f"| {name} | "
            + " | ".join([*(f"{speed:,.0f}" for speed in speeds), *(f"{milliseconds:.1f}" for milliseconds in times)])
            + " |"
        )


def read_rows(journal: ResultJournal) -> dict[str, list[Row]]:
    """Returns the recorded results of each task."""
    rows: dict[str, list[Row]] = {name: [] for name in TASKS}
    for (name, *_), result in sorted(journal.results.items()):
        values: dict[str, Any] = {field: result[field] for field in Row._fields if field in result}
        rows[name].append(Row(**values))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--games", type=int, default=20, help="games of each task (default: 20)")
    parser.add_argument("--episodes", type=int, default=20, help="episodes of each game (default: 20)")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, help=f"default: {FIRST_SEED}")
    parser.add_argument("--journal", type=Path, default=ROOT / "build" / "textworld_native.jsonl")
    options = parser.parse_args()
    options.journal.parent.mkdir(parents=True, exist_ok=True)
    journal = ResultJournal(options.journal, code_digest())
    for seed in range(options.first_seed, options.first_seed + options.games):
        for name, (challenge, settings) in TASKS.items():
            key = (name, seed, options.episodes)
            if key in journal.results:
                continue
            with tempfile.TemporaryDirectory() as folder:
                row = play(Path(folder), challenge, settings, seed, options.episodes)
            journal.add(key, row._asdict())
            if row.differences:
                print(f"{name} seed {seed}: {row.differences} differences", flush=True)
            TARGET.write_text("\n".join(tables(read_rows(journal))) + "\n")
    TARGET.write_text("\n".join([*tables(read_rows(journal)), *speed_table()]) + "\n")
    print(TARGET.read_text())


if __name__ == "__main__":
    main()
