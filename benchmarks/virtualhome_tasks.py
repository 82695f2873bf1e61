"""Counts distinct household tasks, and proves each solvable: draws, plans and executes many.

python -m benchmarks.virtualhome_tasks [HOW_MANY]
"""

import sys
import time
from statistics import mean

from envsuite.envs.virtualhome.games import FixedGame
from envsuite.envs.virtualhome.generator import SPLITS, HouseholdSettings, draw


def main(how_many: int = 12_000) -> None:
    print(
        f"{'split':17} {'parts':>5} {'drawn':>7} {'different':>9} {'solved':>7} {'classes':>7} "
        f"{'commands':>12} {'ms each':>8}"
    )
    all_different, all_drawn, all_solved = set(), 0, 0
    for split, parts, count in (
        ("train", 1, how_many),
        ("train", 2, how_many // 10),
        ("train", 3, how_many // 20),
        *((split, 1, how_many // 20) for split in SPLITS[1:]),
    ):
        began = time.process_time()
        different, classes, lengths, solved = set(), set(), [], 0
        for seed in range(count):
            household = draw(seed, HouseholdSettings(rooms=5, split=split, goal_length=parts))
            game = FixedGame(household.home, household.goal)
            length = game.plan()[0] or 0
            for _ in range(length):
                outcome = game.act(game.plan()[1] or "")
            solved += outcome.success
            different.add((household.plan, household.goal))
            classes.add(household.goal.name)
            lengths.append(length)
        all_different |= different
        all_drawn, all_solved = all_drawn + count, all_solved + solved
        spent = 1000 * (time.process_time() - began) / count
        texts = f"{mean(lengths):.1f} ({min(lengths)}-{max(lengths)})"
        print(
            f"{split:17} {parts:5} {count:7,} {len(different):9,} {solved:7,} {len(classes):7,} "
            f"{texts:>12} {spent:8.1f}",
            flush=True,
        )
    print(f"{'all':17} {'':5} {all_drawn:7,} {len(all_different):9,} {all_solved:7,}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
