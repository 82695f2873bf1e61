"""Writes overcooked/soup.json: joint actions of Overcooked-AI games, and digests of their states and rewards.

    python -m tests.golden.make_soup

Needs the package overcooked_ai 1.1.0, against which every step is checked before it is written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.overcooked_ai import Reference, game
from envsuite.envs.overcooked.soup.engine import SoupKitchen, SoupState, Step
from envsuite.envs.overcooked.soup.layout import GRIDS, published
from tests.golden.digests import digest

PATH = Path(__file__).parent / "overcooked" / "soup.json"
NOISE = 0.1, 0.5


def digest_of(start: SoupState, steps: Sequence[Step]) -> str:
    """Returns the digest of a whole game."""
    return digest([start, *steps])[:16]


def main() -> None:
    games: list[dict[str, Any]] = []
    for name in GRIDS:
        for automatic in (False, True):
            for number, noise in enumerate(NOISE):
                kitchen, reference = SoupKitchen(published(name), automatic=automatic), Reference(name, automatic)
                played = list(game(kitchen, np.random.default_rng([7, number]), noise))
                start, theirs = reference.start(), [reference.step(joint) for _, joint, _ in played]
                ours = [step for _, _, step in played]
                if theirs != ours or start != kitchen.start():
                    raise ValueError(f"{name}, game {number}: the engines differ.")
                games.append(
                    {
                        "layout": name,
                        "automatic": automatic,
                        "actions": "".join(f"{first}{second}" for _, (first, second), _ in played),
                        "reward": sum(sum(step.served) for step in ours),
                        "shaped": sum(sum(step.shaped) for step in ours),
                        "digest": digest_of(start, ours),
                    }
                )
    PATH.write_text("[\n" + ",\n".join(json.dumps(row) for row in games) + "\n]\n")


if __name__ == "__main__":
    main()
