"""Registers TextWorld's tasks: the Practitioner's Guide's grid, BALROG's settings, and three
levels.

Version 0 uses the Guide's seeds. Version 1 of the grid and the levels plays the same kinds of games,
but no game of test or valid has the structure of a training game. Version 2 of the levels has the games
of version 1, but its objectives name the last command of the quest only. Version 3 of the easy level has
such objectives in larger houses.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from envsuite.registry import TASKS, register, register_family
from envsuite.types import Family, Seeds, Task

GUIDE = "Practitioner's Guide to Multi-turn Agentic RL (arXiv 2510.01132)"
ENTRY = "envsuite.envs.textworld.env:TextWorld"
RANGES = {"train": (50_001, 55_001), "valid": (40_001, 40_101), "test": (1, 101)}
SIMPLE = {**RANGES, "train": (10_001, 13_001)}
SKIPPED_SEEDS = json.loads(Path(__file__).with_name("left_out.json").read_text())
"""Seeds to skip, computed by benchmarks/textworld_splits.py.

Their games repeat one of an earlier split or seed, or cannot be generated."""


DISJOINT = {"train": range(50_001, 1_050_001), "valid": range(40_001, 40_201), "test": range(1, 201)}
"""Seeds of version 1 and later, in the ranges of `structure.split_of_seed`."""


DETAILED_BLIND_SHARE = 1.0
"""Largest blind success of version 1 of the levels: their objectives state every step of the solution."""

BRIEF_BLIND_SHARE = 0.85
"""Largest blind success of version 2 of the easy level: a script that searches its two rooms wins most games."""


def _task(
    name: str,
    summary: str,
    knobs: dict[str, Any],
    skipped_as: str = "",
    ranges: dict[str, tuple[int, int]] = RANGES,
    level_name: str = "",
) -> None:
    skipped = SKIPPED_SEEDS.get(skipped_as or name, {}).get("left_out", {})
    splits = {split: Seeds(*span, tuple(skipped.get(split, ()))) for split, span in ranges.items()}
    register(
        Task(f"TextWorld-{name}-v0", ENTRY, knobs, splits, requires="textworld", level=level_name, summary=summary)
    )


def _custom(name: str, summary: str, sizes: tuple[int, int, int, int], level_name: str = "") -> None:
    """Registers both versions of a task of generated houses.

    `sizes` are rooms, objects, commands of the quest, and turns.
    """
    rooms, objects, quest, max_steps = sizes
    knobs = {"world_size": rooms, "nb_objects": objects, "quest_length": quest, "max_steps": max_steps}
    _task(name, summary, knobs, skipped_as=f"w{rooms}-o{objects}-q{quest}", level_name=level_name)
    register(
        Task(
            f"TextWorld-{name}-v1",
            ENTRY,
            {**knobs, "split_by": "structure"},
            DISJOINT,
            requires="textworld",
            level=level_name,
            blind_share=DETAILED_BLIND_SHARE if level_name else Task.blind_share,
            summary=f"{summary}; no test game has the structure of a training game",
        )
    )


register_family(
    Family(
        "textworld",
        "TextWorld-w2-o3-q4-v1",
        "generated text adventures: fetch and unlock, cook, search mazes; or any Z-machine game",
        requires="textworld",
        paper=f"{GUIDE}; BALROG (arXiv 2411.13543); TextWorld (arXiv 1806.11532)",
    )
)
for _level, _sizes in {"easy": (2, 3, 4, 12), "medium": (4, 6, 8, 24), "hard": (8, 12, 12, 50)}.items():
    _custom(
        _level,
        "custom: {} rooms, {} objects, a quest of {} commands, {} turns".format(*_sizes),
        _sizes,
        level_name=_level,
    )
for _level in ("easy", "medium", "hard"):
    _detailed = TASKS[f"TextWorld-{_level}-v1"]
    register(
        replace(
            _detailed,
            id=f"TextWorld-{_level}-v2",
            kwargs={**_detailed.kwargs, "goal": "brief"},
            blind_share=BRIEF_BLIND_SHARE if _level == "easy" else Task.blind_share,
            summary=f"{_detailed.summary}; the objective names the last command of the quest only",
        )
    )
register(
    Task(
        "TextWorld-easy-v3",
        ENTRY,
        {
            "world_size": 4,
            "nb_objects": 6,
            "quest_length": 7,
            "max_steps": 16,
            "split_by": "structure",
            "goal": "brief",
        },
        DISJOINT,
        requires="textworld",
        level="easy",
        summary="custom: 4 rooms, 6 objects, a quest of 7 commands, 16 turns; no test game has the structure of a "
        "training game; the objective names the last command of the quest only",
    )
)
for _sizes in ((2, 3, 4, 12), (8, 3, 4, 12), (2, 12, 4, 12), (8, 12, 4, 12), (4, 6, 8, 24)):
    _custom(
        "w{}-o{}-q{}".format(*_sizes),
        "{}: {} rooms, {} objects, quest of {}, {} turns".format(GUIDE, *_sizes),
        _sizes,
    )
for _rewards in ("dense", "balanced", "sparse"):
    _task(
        f"simple-{_rewards}",
        f"{GUIDE}: the fixed house, detailed goal, {_rewards} rewards (play with --reward dense), 24 turns",
        {"challenge": "simple", "rewards": _rewards, "max_steps": 24},
        "simple-dense",  # the three differ only in rewards
        SIMPLE,
    )
_COOKING = {"recipe": 5, "take": 5, "go": 12, "open": True, "cook": True, "cut": True}
for _name, _knobs in {
    "treasure_hunter": {"level": 30},
    "cooking": _COOKING,
    "coin_collector": {"level": 120},
}.items():
    _task(
        f"balrog-{_name}",
        "BALROG's settings, 80 turns; its own ten games: game=FOLDER of the downloaded files",
        {"challenge": _name, **_knobs, "max_steps": 80},
    )
