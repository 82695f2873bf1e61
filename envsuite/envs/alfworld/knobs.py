"""The knobs of ALFWorld's environments: common ones, and those of the game generator."""

from __future__ import annotations

from envsuite.envs.alfworld.games.floorplans import ROOMS, TASK_TYPES
from envsuite.envs.alfworld.games.logic import DIALECTS
from envsuite.envs.alfworld.observations import STYLES
from envsuite.types import Knob

GENERATED = "generated"


def game_knobs(splits: tuple[str, ...]) -> tuple[Knob, ...]:
    """Returns the knobs that apply to official games; the first of `splits` is the default of `games`."""
    return (
        Knob("games", splits[0], "generated from the seed, or an official split under $ALFWORLD_DATA", choices=splits),
        Knob("flagged", False, "official games whose file says solvable: false, instead of the solvable ones"),
        Knob(
            "engine",
            "native",
            "native, or the stock textworld engine, a thousand times slower",
            choices=("native", "textworld"),
        ),
        Knob(
            "dialect",
            "file",
            "file: as in the game file (generated: 2.1.1); 2.1.1: 'put a in/on b'; 0.4: 'move a to b'",
            choices=("file", *DIALECTS),
        ),
        Knob(
            "observation",
            "raw",
            "wording of observations: raw game text, as in ReAct, or as in verl-agent",
            choices=STYLES,
        ),
        Knob("list_commands", False, "append the admissible commands to every observation"),
        Knob("task_types", TASK_TYPES, "task types to play", choices=TASK_TYPES),
    )


GENERATOR_KNOBS = (
    Knob("rooms", tuple(ROOMS), "generated: room types", choices=tuple(ROOMS)),
    Knob(
        "receptacles",
        0,
        "generated: receptacles, at most, but as many as the task needs; 0: as in the floor plan (6 to 54)",
        low=0,
        high=60,
    ),
    Knob(
        "objects",
        0,
        "generated: objects in reach, without lamps, paper towels and teddy bears; 0: as in official games (8 to 61)",
        low=0,
        high=100,
    ),
    Knob(
        "hidden",
        -1.0,
        "generated: share of targets that start in a closed receptacle; -1: as in official games",
        low=-1.0,
        high=1.0,
    ),
    Knob(
        "numbers",
        "consecutive",
        "generated: numbers in names; consecutive: 1, 2, ... in every class; drawn: distinct ones from 1 to 99",
        choices=("consecutive", "drawn"),
    ),
)
GENERATED_KNOBS = (*(knob for knob in game_knobs((GENERATED,)) if knob.name != "flagged"), *GENERATOR_KNOBS)
"""knobs of tasks that play generated games"""
