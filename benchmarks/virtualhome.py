"""Steps per second of VirtualHome in one process, text and offers included, beside a fixed pure-Python loop.

python -m benchmarks.virtualhome

A random player chooses among the offered commands; every step returns the full text and the list of offered commands,
and resets are part of the time. Text of observations met before is remembered, which in the papers' tasks soon is all
of it; households are new in every round. Times are CPU seconds of this process, best of several rounds, so that a busy
machine shows in neither column. The loop is the yardstick: absolute figures vary with the machine, their ratio much
less.
"""

import random
import time

from envsuite import registry
from envsuite.core import TextEnv

REFERENCE = 340  # steps/s of the published Food Preparation with text and resets (benchmarks/virtualhome.md)
ROUNDS = 5
TASKS = (
    ("VirtualHome-food_preparation-v0", {}),
    ("VirtualHome-entertainment-v0", {}),
    ("VirtualHome-food_preparation-fixed-v0", {}),
    ("VirtualHome-entertainment-fixed-v0", {}),
    ("VirtualHome-easy-v0", {}),
    ("VirtualHome-medium-v0", {}),
    ("VirtualHome-hard-v0", {}),
)


def loop(turns: int = 1_000_000) -> float:
    """Turns per second of a loop that adds, multiplies and indexes."""
    table = list(range(256))
    began = time.process_time()
    x = 1
    for i in range(turns):
        x = (x * 1103515245 + table[i & 255]) & 0x7FFFFFFF
    return turns / (time.process_time() - began)


def steps(env: TextEnv, count: int, turn: int) -> float:
    """Returns steps per second of a random player, including resets; each round uses different seeds."""
    choose = random.Random(turn).random
    seed = turn * 1_000_000
    began = time.process_time()
    _, info = env.reset(seed=seed)
    for _ in range(count):
        offers = info["admissible_commands"]
        _, _, terminated, truncated, info = env.step(offers[int(choose() * len(offers))])
        if terminated or truncated:
            seed += 1
            _, info = env.reset(seed=seed)
    return count / (time.process_time() - began)


def main() -> None:
    yardstick = max(loop() for _ in range(ROUNDS))
    print(f"fixed loop: {yardstick / 1e6:.2f} million turns/s")
    print(f"{'task':40} {'steps/s':>9} {'x 340':>7} {'steps per 1000 turns':>21}")
    for task, knobs in TASKS:
        env = registry.build(task, **knobs)
        count = 20_000 if "paration" in task or "entertainment" in task else 5_000
        rate = max(steps(env, count, turn) for turn in range(ROUNDS))
        print(f"{task:40} {rate:9,.0f} {rate / REFERENCE:7.0f} {1000 * rate / yardstick:21.2f}", flush=True)


if __name__ == "__main__":
    main()
