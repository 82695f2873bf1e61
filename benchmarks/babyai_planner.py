"""Measures the planner of BabyAI: failed searches, CPU seconds, and lengths of plans.

    python -m benchmarks.babyai_planner [--first 0] [--seeds 200] [LEVEL ...]

For each game the whole plan is searched from the start and carried out on the engine, which must
report success. Without levels it takes those with locks, boxes or several rooms.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import time

from envsuite.envs.babyai import engine as engines
from envsuite.envs.babyai.levels import LEVELS
from envsuite.envs.babyai.model import GridModel
from envsuite.envs.babyai.planner import GridPlanner

HARD = (
    "GoToImpUnlock",
    "UnlockToUnlock",
    "KeyInBox",
    "UnlockPickupDist",
    "BlockedUnlockPickup",
    "KeyCorridorS6R3",
    "PutNextS7N4Carrying",
    "MoveTwoAcrossS8N9",
    "OpenDoorsOrderN4",
    "MiniBossLevel",
    "SynthSeq",
    "BossLevel",
)


def measure(level: str, seeds: range) -> str:
    """Returns a row of the table for one level."""
    with contextlib.redirect_stdout(io.StringIO()):  # minigrid prints every rejected layout
        engine = engines.build_level(level, 7, 0)
    seconds, lengths, lost = [], [], 0
    for seed in seeds:
        engine.reset(seed=seed)
        model = GridModel(engine)
        planner = GridPlanner(model, exact=False)
        start = model.state(engine)
        began = time.process_time()
        plan = planner.search(start)
        seconds.append(time.process_time() - began)
        if plan is None:
            continue
        lengths.append(len(plan))
        rewards = [engine.step(action)[1] for action in plan]
        lost += not rewards or rewards[-1] <= 0
    seconds.sort()
    cells = [
        level,
        f"{len(seeds)}",
        f"{len(seeds) - len(lengths)}",
        f"{lost}",
        f"{sum(seconds) / len(seconds):.3f}",
        f"{seconds[int(0.95 * len(seconds))]:.3f}",
        f"{seconds[-1]:.2f}",
        f"{sum(lengths) / max(1, len(lengths)):.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("levels", nargs="*", default=HARD, metavar="LEVEL")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=200)
    options = parser.parse_args()
    for level in options.levels:
        if level not in LEVELS:
            parser.error(f"{level!r} is not a level: it is one of {', '.join(LEVELS)}")
    print("| level | games | no plan | plan not won | mean CPU s | p95 | longest | mean plan |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for level in options.levels:
        print(measure(level, range(options.first, options.first + options.seeds)), flush=True)


if __name__ == "__main__":
    main()
