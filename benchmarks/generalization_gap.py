"""Simulation of the differences that envsuite generalize prints: python -m benchmarks.generalization_gap -o FILE.md

Draws success of a player, the random player and the expert on games of one easy (seen) and one hard (unseen) setting,
and counts how often each 95 % interval excludes the true value. An untrained player is as far above the random player
at both settings, relative to the expert: its true adjusted gap is 0, and its plain difference is difficulty alone.
"""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from envsuite.cache import write_atomically
from harness.generalization.transfer import adjusted_gap
from harness.stats.intervals import SHARE, Interval, bounded, paired, square_and_add

GAMES = (10, 20, 50, 100)
EVALUATIONS = 4000


class Case(NamedTuple):
    """Success of floor and ceiling at the easy and the hard setting, and the player's adjusted scores at both."""

    name: str
    floors: tuple[float, float]
    ceilings: tuple[float, float]
    adjusted: tuple[float, float]

    def scores(self) -> tuple[float, float]:
        """Returns the player's success at the easy and the hard setting."""
        settings = zip(self.floors, self.ceilings, self.adjusted, strict=True)
        easy, hard = (floor + share * (ceiling - floor) for floor, ceiling, share in settings)
        return easy, hard


CASES = (
    Case("untrained, plays at random", (0.4, 0.05), (1.0, 1.0), (0.0, 0.0)),
    Case("untrained, plays at random; imperfect expert", (0.5, 0.1), (0.95, 0.7), (0.0, 0.0)),
    Case("untrained, a third of the way to the expert", (0.3, 0.02), (1.0, 0.9), (0.33, 0.33)),
    Case("untrained, two thirds of the way", (0.2, 0.0), (1.0, 1.0), (0.67, 0.67)),
    Case("trained: 0.8 at the seen setting, 0.2 at the unseen", (0.2, 0.05), (1.0, 1.0), (0.8, 0.2)),
)


@cache
def share(wins: int, games: int) -> Interval:
    """Returns the interval of a success rate."""
    return bounded([1.0] * wins + [0.0] * (games - wins), SHARE)


class Outcome(NamedTuple):
    """Shares of evaluations whose intervals exclude 0, and the share whose adjusted interval covers the true gap."""

    plain_excludes_0: float
    adjusted_excludes_0: float
    adjusted_covers: float
    no_bounds: float
    width: float


def simulate(case: Case, games: int) -> Outcome:
    rng = np.random.default_rng([games, *case.name.encode()])
    truth = case.adjusted[0] - case.adjusted[1]
    rows = []
    for _ in range(EVALUATIONS):
        settings = []
        for score, floor, ceiling in zip(case.scores(), case.floors, case.ceilings, strict=True):
            settings.append(tuple(share(int(rng.binomial(games, rate)), games) for rate in (score, floor, ceiling)))
        plain = square_and_add([settings[0][0]], [settings[1][0]])
        gap = adjusted_gap([settings[0]], [settings[1]])
        bounds = gap.low == gap.low
        rows.append(
            (
                not plain.low <= 0 <= plain.high,
                bounds and not gap.low <= 0 <= gap.high,
                not bounds or gap.low <= truth <= gap.high,
                not bounds,
                gap.high - gap.low,
            )
        )
    table = np.array(rows, float)
    return Outcome(*table[:, :4].mean(axis=0), float(np.nanmedian(table[:, 4])) if not table[:, 3].all() else np.nan)


def transfer_excludes_0(games: int, transferred: float, specialist: float) -> float:
    """Returns the share of evaluations whose paired difference of two models in one column excludes 0."""
    rng = np.random.default_rng(games)
    excluded, known = 0, dict[tuple[float, ...], Interval]()
    for _ in range(EVALUATIONS):
        first, second = rng.random(games) < transferred, rng.random(games) < specialist
        deltas = tuple(sorted((first.astype(float) - second).tolist()))
        if deltas not in known:
            known[deltas] = paired(deltas, SHARE)
        excluded += not known[deltas].low <= 0 <= known[deltas].high
    return excluded / EVALUATIONS


def page() -> str:
    """Returns the results as Markdown."""
    lines = [
        "# Differences between seen and unseen settings\n",
        f"`make coverage` writes this page: {EVALUATIONS:,} simulated evaluations per row, success of one seen and one",
        "unseen setting. `plain excludes 0` is the share in which seen minus unseen looks like a gap; for an untrained",
        "player it is difficulty alone. `adjusted excludes 0` is the false alarm of an untrained player (nominal: at",
        "most 0.05) and the power for a trained one. Without bounds (expert and random player not apart) the gap makes",
        "no claim. [Generalisation](../docs/explanation/generalisation.md) explains the quantities.\n",
        "| player | games per setting | plain excludes 0 | adjusted excludes 0 | covers true gap | no bounds | width |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for case in CASES:
        for games in GAMES:
            outcome = simulate(case, games)
            numbers = " | ".join(f"{number:.3f}" for number in outcome[:4])
            lines.append(f"| {case.name} | {games} | {numbers} | {outcome.width:.2f} |")
            print(lines[-1], flush=True)
    lines += [
        "\n## Transfer within one column\n",
        "Transferred minus specialist, paired by game, with independent wins.\n",
        "| games | success 0.5 and 0.5: excludes 0 | 0.4 and 0.7: excludes 0 | 0.2 and 0.8: excludes 0 |",
        "|--:|--:|--:|--:|",
    ]
    for games in GAMES:
        cells = [transfer_excludes_0(games, *pair) for pair in ((0.5, 0.5), (0.4, 0.7), (0.2, 0.8))]
        lines.append(f"| {games} | " + " | ".join(f"{cell:.3f}" for cell in cells) + " |")
        print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulate gaps of untrained and trained players.")
    parser.add_argument("-o", "--output", type=Path, default=None, help="Markdown file to write")
    args = parser.parse_args()
    text = page()
    if args.output:
        write_atomically(args.output, text)


if __name__ == "__main__":
    main()
