"""Generator of new ALFWorld games in the PDDL domain of the official ones.

A game depends on `seed` and the settings alone and is equal on every machine. By default generated
games resemble the official ones (`draw.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from sys import intern
from typing import NamedTuple

from envsuite.envs.alfworld.games import solver
from envsuite.envs.alfworld.games.draw import MOST_TARGETS, UNSEEN_SEEDS, Draw, GeneratorSettings, InvalidDraw
from envsuite.envs.alfworld.games.game import AlfworldGame
from envsuite.envs.alfworld.games.plan_counts import PlanCounts
from envsuite.errors import UsageError

__all__ = ["UNSEEN_SEEDS", "GeneratedGame", "GeneratorSettings", "generate"]

TRIES = 200
OFFICIAL_LIKE = GeneratorSettings()
LARGEST_NUMBER = 99
"""largest number in a drawn name, unless a class has more members"""
SHORTEST = 3  # commands; no official game needs fewer


class GeneratedGame(NamedTuple):
    """A generated game."""

    name: str
    """'generated/pick_heat_then_place_in_recep-Egg-None-CounterTop-12/seed_5'"""
    text: str
    """content of the game.tw-pddl file"""
    game: AlfworldGame
    """the parsed game"""


def generate(
    seed: int, settings: GeneratorSettings = OFFICIAL_LIKE, *, plan: int = 0, counts: PlanCounts | None = None
) -> GeneratedGame:
    """Generates the game of `seed`. Raises UsageError if no game satisfies the settings.

    For measurements, `plan` fixes the floor plan, and `counts` replaces the counts of `plans.json`.
    """
    rng = Random(f"alfworld {seed}")
    hiding = Random(f"alfworld hidden {seed}")
    # The same for every draw: a room that cannot hide its target is drawn again, and the share of hidden ones stays.
    chances = [hiding.random() for _ in range(MOST_TARGETS)]
    why = ""
    for _ in range(TRIES):
        try:
            name, text = Draw(rng, settings, seed, chances, plan, counts).write()
        except InvalidDraw as reason:
            why = str(reason)
            continue
        game = AlfworldGame.from_json(text, name)
        needed = solver.remaining(game, game.start)
        if needed is not None and needed >= SHORTEST:
            if settings.numbers == "drawn":
                game = replace(
                    game,
                    receptacles=_renumbered(game.receptacles, f"receptacles {seed}"),
                    objects=_renumbered(game.objects, f"objects {seed}"),
                )
            return GeneratedGame(name, text, game)
        why = f"the game cannot be solved, or takes fewer than {SHORTEST} commands"
    raise UsageError(f"No game found in {TRIES} draws for {settings}: {why}. Loosen the knobs.")


def _renumbered(names: Iterable[str], seed: str) -> tuple[str, ...]:
    """Returns names such as "cabinet 3" with a number that is drawn and distinct within its class."""
    classes = [name.rpartition(" ")[0] for name in names]
    rng = Random(f"alfworld numbers {seed}")
    drawn = {}
    for name, count in sorted(Counter(classes).items()):
        drawn[name] = iter(rng.sample(range(1, max(LARGEST_NUMBER, count) + 1), count))
    return tuple(intern(f"{name} {next(drawn[name])}") for name in classes)
