"""Registers TextWorld's tasks: the Practitioner's Guide's grid, BALROG's settings, and three levels.

The Guide's tasks have the Guide's seeds. The levels have objectives that name the last command of the
quest only, and no game of test or valid has the structure of a training game.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envsuite.registry import register, register_family
from envsuite.types import Family, Seeds, Task

GUIDE = "Practitioner's Guide to Multi-turn Agentic RL (arXiv 2510.01132)"
ENTRY = "envsuite.envs.textworld.env:TextWorld"
RANGES = {"train": (50_001, 55_001), "valid": (40_001, 40_101), "test": (1, 101)}
SIMPLE_RANGES = {**RANGES, "train": (10_001, 13_001)}
LEVEL_SEEDS = {"train": range(50_001, 1_050_001), "valid": range(40_001, 40_201), "test": range(1, 201)}
"""seeds of the levels, in the ranges of `structure.split_of_seed`"""
SKIPPED_SEEDS = json.loads(Path(__file__).with_name("skipped_seeds.json").read_text())
"""seeds whose games repeat one of an earlier split or seed (equal `generator.content_digest`) or cannot be generated"""

LEVELS: dict[str, dict[str, Any]] = {
    "easy": {"world_size": 4, "nb_objects": 6, "quest_length": 7, "goal": "brief", "max_steps": 16},
    "medium": {"world_size": 4, "nb_objects": 6, "quest_length": 8, "goal": "brief", "max_steps": 24},
    "hard": {"world_size": 8, "nb_objects": 12, "quest_length": 12, "goal": "brief", "max_steps": 50},
}
GRID = ((2, 3, 4, 12), (8, 3, 4, 12), (2, 12, 4, 12), (8, 12, 4, 12), (4, 6, 8, 24))
"""the Guide's rooms, objects, commands of the quest, and turns"""
BALROG: dict[str, dict[str, Any]] = {
    "treasure_hunter": {"level": 30},
    "cooking": {"recipe": 5, "take": 5, "go": 12, "open": True, "cook": True, "cut": True},
    "coin_collector": {"level": 120},
}


def register_task(
    name: str,
    summary: str,
    knobs: dict[str, Any],
    ranges: dict[str, tuple[int, int]] = RANGES,
    skipped: dict[str, Sequence[int]] | None = None,
) -> None:
    """Registers a task with TextWorld's own seeds."""
    splits = {split: Seeds(*span, tuple((skipped or {}).get(split, ()))) for split, span in ranges.items()}
    register(Task(f"TextWorld-{name}-v0", ENTRY, knobs, splits, requires="textworld", summary=summary))


register_family(
    Family(
        "textworld",
        "TextWorld-w2-o3-q4-v0",
        "generated text adventures: fetch and unlock, cook, search mazes; or any Z-machine game",
        requires="textworld",
        paper=f"{GUIDE}; BALROG (arXiv 2411.13543); TextWorld (arXiv 1806.11532)",
    )
)
for level, knobs in LEVELS.items():
    sizes = "{world_size} rooms, {nb_objects} objects, a quest of {quest_length} commands, {max_steps} turns"
    register(
        Task(
            f"TextWorld-{level}-v0",
            ENTRY,
            {**knobs, "split_by": "structure"},
            LEVEL_SEEDS,
            requires="textworld",
            level=level,
            summary=f"custom: {sizes.format(**knobs)}; no test game has the structure of a training game; "
            "the objective names the last command of the quest only",
        )
    )
for rooms, objects, quest, turns in GRID:
    name = f"w{rooms}-o{objects}-q{quest}"
    register_task(
        name,
        f"{GUIDE}: {rooms} rooms, {objects} objects, quest of {quest}, {turns} turns",
        {"world_size": rooms, "nb_objects": objects, "quest_length": quest, "max_steps": turns},
        skipped=SKIPPED_SEEDS.get(name),
    )
for rewards in ("dense", "balanced", "sparse"):
    register_task(
        f"simple-{rewards}",
        f"{GUIDE}: the fixed house, detailed goal, {rewards} rewards (play with --reward dense), 24 turns",
        {"challenge": "simple", "rewards": rewards, "max_steps": 24},
        SIMPLE_RANGES,
        SKIPPED_SEEDS["simple"],  # the three differ only in rewards
    )
for challenge, knobs in BALROG.items():
    register_task(
        f"balrog-{challenge}",
        "BALROG's settings, 80 turns; its own ten games: game=FOLDER of the downloaded files",
        {"challenge": challenge, **knobs, "max_steps": 80},
    )
