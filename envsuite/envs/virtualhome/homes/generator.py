"""Draws the home, the goal and the places of all objects of an episode from its seed.

A home is identified by a number that determines rooms and furniture. Objects start where people keep them, except for
the share `surprise`; goals ask only for sensible places. Every game belongs to the split of its seed with its home,
with each sentence of its goal, and with its structure (`structure.py`), and needs at least
`builder.MIN_COMMANDS` commands.
"""

from __future__ import annotations

from functools import lru_cache

from envsuite.envs.virtualhome.homes.builder import DrawnHome, EpisodeBuilder
from envsuite.envs.virtualhome.homes.classes import DrawSettings, classes_of, draw_classes
from envsuite.envs.virtualhome.homes.layouts import HOMES, Dice, layout
from envsuite.envs.virtualhome.homes.structure import split_of_seed
from envsuite.errors import UsageError

MAX_DRAWS = 600
_DRAWS_PER_CLASS = 20  # homes tried before other goal classes are drawn, so that rare classes keep their share


@lru_cache(maxsize=128)
def draw_home(seed: int, settings: DrawSettings) -> DrawnHome:
    """Draws the home of a seed. Raises BadKnob if knobs contradict each other, UsageError if no home fits them.

    The latest homes are kept, so that a group of attempts at one seed draws it once.
    """
    dice = Dice(seed)
    split = split_of_seed(seed)
    if settings.split != "train" and split == "train":
        split = "test"
    names = classes_of(settings)
    for attempt in range(MAX_DRAWS):
        if attempt % _DRAWS_PER_CLASS == 0:
            chosen = draw_classes(dice, settings, names)
        plan = dice.below(HOMES)
        while layout(plan, settings.rooms, settings.split).split != split:
            plan = dice.below(HOMES)
        builder = EpisodeBuilder(dice, settings, plan, split)
        if all(builder.add(name) for name in chosen) and (drawn := builder.finish(chosen)):
            return drawn
    raise UsageError(
        f"No home of {settings.rooms} rooms and {settings.objects} objects fits goals "
        f"{', '.join(settings.goals) or 'of any class'} in split {settings.split!r}: use more rooms or other goals."
    )
