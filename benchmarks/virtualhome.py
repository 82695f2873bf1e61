"""Steps per second of VirtualHome, text and offers included: one environment beside the vector form.

    python -m benchmarks.virtualhome

A random player chooses among the offered commands; every step returns the full text and the list of offered commands,
and resets are part of the time. Text of observations met before is remembered, which in the papers' tasks soon is all
of it; drawn homes are new in every episode. Times are wall-clock seconds on an idle machine, best of
several rounds, and CPU seconds for steps only and for the fixed loop. The loop is the yardstick: absolute figures
vary with the machine, their ratio much less.

Drawn homes share their 1,000 floor plans, so 3,000 games are drawn before the clock starts. `steps` is the rate of one
environment without resets.
"""

import random
import time

from benchmarks.vector_speed import HEADER, rates, whole_episodes
from envsuite import registry

REFERENCE = 340  # steps/s of the published Food Preparation with text and resets (benchmarks/virtualhome.md)
LOOPS = 5
PUBLISHED = (
    "VirtualHome-food_preparation-v0",
    "VirtualHome-entertainment-v0",
    "VirtualHome-food_preparation-fixed-v0",
    "VirtualHome-entertainment-fixed-v0",
)
DRAWN = tuple(f"VirtualHome-{level}-v{version}" for version in (0, 1) for level in ("easy", "medium", "hard"))


def loop(turns: int = 1_000_000) -> float:
    """Turns per second of a loop that adds, multiplies and indexes."""
    table = list(range(256))
    began = time.process_time()
    x = 1
    for i in range(turns):
        x = (x * 1103515245 + table[i & 255]) & 0x7FFFFFFF
    return turns / (time.process_time() - began)


def without_resets(task: str, episodes: int = 40, rounds: int = 5) -> float:
    """Returns the steps per second of one environment, best of several rounds of the same games, without resets."""
    env = registry.build(task, "dense")
    best = 0.0
    for _ in range(rounds):
        choose = random.Random(0).random
        steps, seconds = 0, 0.0
        for seed in range(episodes):
            _, info = env.reset(seed=seed)
            began, over = time.process_time(), False
            while not over:
                offers = info["admissible_commands"]
                *_, terminated, truncated, info = env.step(offers[int(choose() * len(offers))])
                steps, over = steps + 1, terminated or truncated
            seconds += time.process_time() - began
        best = max(best, steps / seconds)
    return best


def main() -> None:
    yardstick = max(loop() for _ in range(LOOPS))
    print(f"Fixed loop: {yardstick / 1e6:.2f} million turns/s.\n")
    print(f"| task | {HEADER} | one environment, steps only | one environment x {REFERENCE} | steps per 1000 turns |")
    print("|---" + "|--:" * 9 + "|")
    for task in (*PUBLISHED, *DRAWN):
        published = task in PUBLISHED
        measured = rates(
            task, {}, *((10_000, 400, 5, 0) if published else (12_000, whole_episodes(task, 100), 5, 3_000))
        )
        single = measured.single
        print(
            f"| {task} | {measured.cells()} | {without_resets(task):,.0f} | {single / REFERENCE:,.0f} "
            f"| {1000 * single / yardstick:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
