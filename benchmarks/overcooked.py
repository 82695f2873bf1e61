"""Macro-steps per second of Overcooked (with text, offers and resets), one environment beside the vector form.

    python -m benchmarks.overcooked

A random player. The first table has both forms, the vector form in one process and in two, measured in turns in
wall-clock time on an idle machine. The second relates one environment to a pure-Python loop. Every generated kitchen is
new to the process, and its generation and
proof are included. Other times are CPU times, which a busy machine disturbs less. The loop is measured before
and after each row; the ratio to it makes machines comparable. The recorded figures of the reference
(11,400 macro-steps/s with text on tomato salad, 5,600 on lettuce and tomato) come from another run
under another load and can be compared only roughly.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.vector_speed import HEADER, rates, whole_episodes
from envsuite import registry

ROWS = [
    ("Overcooked-tomato_salad-v0", {}, 150),
    ("Overcooked-tomato_lettuce_salad-v0", {}, 150),
    ("Overcooked-easy-v0", {}, 150),
    ("Overcooked-medium-v0", {}, 150),
    ("Overcooked-hard-v0", {}, 150),
    ("Overcooked-hard-v0", {"wording": "honest"}, 150),
    ("Overcooked-tomato_lettuce_salad-c-2cooks-v0", {}, 30),
]
SERVICES = [f"Overcooked-{level}-v2" for level in ("easy", "medium", "hard")]
SERVICE_GAMES = 64
REPEATS = 3


def loop() -> float:
    """Seconds of processor time for a million additions."""
    begun, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number
    return time.process_time() - begun


def play(task: str, settings: dict[str, str], seeds: range) -> tuple[int, float, float]:
    """(commands, seconds, seconds of these spent in resets) of a random player."""
    env = registry.build(task, reward_mode="dense", **settings)
    choices = np.random.default_rng(0).integers(0, 1 << 30, 200_000).tolist()
    commands, resets = 0, 0.0
    begun = time.process_time()
    for seed in seeds:
        reset = time.process_time()
        _, info = env.reset(seed=seed)
        resets += time.process_time() - reset
        over = False
        while not over:
            offers = info["admissible_commands"]
            *_, terminated, truncated, info = env.step(offers[choices[commands] % len(offers)])
            over = terminated or truncated
            commands += 1
    return commands, time.process_time() - begun, resets


def plan(task: str, seeds: range) -> tuple[float, float]:
    """(mean, greatest) seconds of the exact planner from the start."""
    env = registry.build(task)
    spent = []
    for seed in seeds:
        env.reset(seed=seed)
        begun = time.process_time()
        env.remaining()
        spent.append(time.process_time() - begun)
    return sum(spent) / len(spent), max(spent)


def forms() -> None:
    """Prints the table of both forms."""
    print(f"| task | {HEADER} |")
    print("|---" + "|--:" * 6 + "|")
    for task, settings, _ in ROWS:
        published = "_salad" in task and not task.endswith("cooks-v0")
        measured = rates(task, settings, *((8_000, 400, 8) if published else (8_000, whole_episodes(task, 100), 4)))
        name = task + "".join(f" {key}={value}" for key, value in settings.items())
        print(f"| {name} | {measured.cells()} |", flush=True)
    for task in SERVICES:
        print(f"| {task}, {SERVICE_GAMES} games | {rates(task, {}, 5_000, 100, 2, games=SERVICE_GAMES).cells()} |")


def main() -> None:
    forms()
    print("\n| task | macro-steps/s | of these in resets | loop, ns a turn | loop turns a macro-step |")
    print("|---|---|---|---|---|")
    for task, settings, episodes in ROWS:
        best = None
        for repeat in range(REPEATS):
            before = loop()
            commands, seconds, resets = play(task, settings, range(repeat * episodes, (repeat + 1) * episodes))
            turn = (before + loop()) / 2 / 1_000_000
            row = (seconds / commands / turn, commands / seconds, resets / seconds, turn)
            best = row if best is None or row < best else best
        assert best is not None
        turns, rate, share, turn = best
        name = task + "".join(f" {key}={value}" for key, value in settings.items())
        print(f"| {name} | {rate:,.0f} | {share:.0%} | {turn * 1e9:.0f} | {turns:,.0f} |", flush=True)
    print("\n| exact plan from the start | mean ms | greatest ms |")
    print("|---|---|---|")
    for task in ("Overcooked-tomato_lettuce_salad-v0", "Overcooked-medium-v0", "Overcooked-hard-v0"):
        mean, greatest = plan(task, range(20))
        print(f"| {task} | {mean * 1e3:.1f} | {greatest * 1e3:.1f} |", flush=True)


if __name__ == "__main__":
    main()
