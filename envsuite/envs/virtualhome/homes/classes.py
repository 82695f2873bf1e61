"""Settings of the generator, and the goal classes that they allow."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from envsuite.envs.virtualhome.homes.layouts import Dice
from envsuite.envs.virtualhome.homes.vocabulary import goal_classes, needs_objects, uses_device, vocabulary
from envsuite.errors import BadKnob

MAX_GOAL_OBJECTS = 5
"""most objects of a goal of several parts, so that the exact planner stays fast"""
_MAX_DRAWS = 600
SPLITS = ("train", "unseen_object", "unseen_appliance", "unseen_goal", "unseen_home")
"""Values of the knob `split`: training content, or what is held out of it."""


class DrawSettings(NamedTuple):
    """Settings of the generator."""

    rooms: int = 4
    objects: int = 12
    distractors: int = 3
    hidden: float = 0.3
    surprise: float = 0.0
    goal_length: int = 1
    goals: tuple[str, ...] = ()
    logic: bool = False
    split: str = "train"


@lru_cache(maxsize=64)
def classes_of(settings: DrawSettings) -> tuple[str, ...]:
    """Returns the goal classes of the settings. Raises BadKnob if knobs contradict each other."""
    chosen, split = settings.goals, settings.split
    held_out = goal_classes(unseen=True)
    if split == "unseen_goal":
        if seen := [name for name in chosen if name not in held_out]:
            raise BadKnob(
                f"Knob 'goals' cannot have {', '.join(seen)} in split 'unseen_goal': training has these classes. "
                f"Held-out classes are {', '.join(held_out)}."
            )
    elif unseen := [name for name in chosen if name in held_out]:
        raise BadKnob(
            f"Knob 'goals' cannot have {', '.join(unseen)} in split {split!r}: no training game has these classes. "
            f"Use split=unseen_goal."
        )
    specs = vocabulary()["goals"]
    names = chosen or tuple(
        name
        for name in (goal_classes() if split == "unseen_goal" else goal_classes(unseen=False))
        if settings.logic or not specs[name].get("logic")
    )
    if split == "unseen_appliance" and not any(map(uses_device, names)):
        raise BadKnob(
            f"Knob 'goals' cannot be only {', '.join(chosen)} in split 'unseen_appliance': they use no appliance, lamp "
            "or screen."
        )
    alone = settings.goal_length == 1
    fitting = tuple(name for name in names if needs_objects(name) <= settings.objects)
    with_objects = [name for name in fitting if needs_objects(name)]
    if not with_objects:
        raise BadKnob(
            f"Knob 'objects' is {settings.objects}, but goals {', '.join(chosen) or 'of every class'} need "
            f"{min(map(needs_objects, names)) or 'an object to look for'}: use more objects or other goals."
        )
    least = min(map(needs_objects, with_objects)) * max(settings.goal_length - 1, 1)
    if least > settings.objects:
        raise BadKnob(
            f"Knob 'objects' is {settings.objects}, but a goal of {settings.goal_length} parts needs at least {least}: "
            "use more objects or a smaller goal_length."
        )
    return tuple(with_objects) if alone else fitting


@lru_cache(maxsize=64)
def _special(settings: DrawSettings, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Returns the classes of which every goal must have one; None without such a rule."""
    specs = vocabulary()["goals"]
    if settings.split == "unseen_goal":
        return tuple(name for name in names if specs[name].get("unseen"))
    if settings.split == "unseen_appliance":
        return tuple(name for name in names if uses_device(name))
    logic = tuple(name for name in names if specs[name].get("logic"))
    return logic if settings.logic and logic else None


def draw_classes(dice: Dice, settings: DrawSettings, names: tuple[str, ...]) -> list[str]:
    """Draws the goal's classes: at most one without objects, and with `logic` at least one that counts or negates."""
    special = _special(settings, names)
    for _ in range(_MAX_DRAWS):
        chosen = [dice.pick(special)] if special is not None else []
        while len(chosen) < settings.goal_length:
            chosen.append(dice.pick(names))
        needs = [needs_objects(name) for name in chosen]
        if needs.count(0) <= (settings.goal_length > 1) and sum(needs) <= min(settings.objects, MAX_GOAL_OBJECTS):
            return dice.shuffled(chosen)
    raise BadKnob(
        f"Knob 'objects' is {settings.objects}, too few for goals of {settings.goal_length} parts: "
        "use more objects, a smaller goal_length or other goals."
    )
