"""Registered VirtualHome tasks: the published tasks, drawn homes by level and split, and homes for two agents."""

from __future__ import annotations

from typing import Any

from envsuite.registry import register, register_family
from envsuite.types import Family, Task

PAPER_TASKS = {  # name -> description
    "food_preparation": "a pancake and a microwave (TWOSOME)",
    "entertainment": "chips and milk, the tv and the sofa (TWOSOME)",
    "cheese": "Food Preparation with cheese (POAD)",
    "hamburger": "Food Preparation with a hamburger (POAD)",
    "apple_pie": "Food Preparation with an apple pie (POAD)",
    "pizza": "Food Preparation with a pizza (POAD)",
    "washing_plate": "dishes and a dishwasher (POAD)",
    "laundry": "clothes and a washing machine (POAD)",
}
HELD_OUT = {
    "unseen_object": "goals about objects that no training episode has",
    "unseen_appliance": "goals at appliances that no training episode has",
    "unseen_goal": "goal classes that no training episode has",
    "unseen_home": "homes with rooms that no training episode has",
}
LEVELS: dict[str, dict[str, Any]] = {
    "easy": {"rooms": 3, "objects": 8, "distractors": 2, "sight": "room", "max_steps": 20},
    "medium": {
        "rooms": 5, "objects": 16, "distractors": 4, "hidden": 0.4, "surprise": 0.05, "goal_length": 2, "max_steps": 60,
    },
    "hard": {
        "rooms": 7, "objects": 28, "distractors": 8, "hidden": 0.5, "surprise": 0.1, "goal_length": 3, "logic": True,
        "max_steps": 150,
    },
}  # fmt: skip
SUMMARIES = {
    "easy": "a drawn home with common sense: one goal, three rooms, loose things seen from anywhere in their room",
    "medium": "a drawn home with common sense: two goals in order, five rooms, loose things seen only from nearby",
    "hard": "a drawn home with common sense: three goals in order with counts, negation and preference, seven rooms",
}
SPLITS = {
    "train": range(0, 1_000_000),
    "valid": range(2_000_000, 2_001_000),
    "test": range(1_000_000, 1_001_000),
}
"""Seeds of each split; `homes.structure` assigns homes, sentences and structures of games to these splits."""
PAIR_LEVELS: dict[str, dict[str, Any]] = {
    "easy": {
        "rooms": 3, "objects": 14, "distractors": 2, "hidden": 0.2, "sight": "room", "errands": 2, "max_steps": 40,
    },
    "medium": {"rooms": 5, "objects": 24, "distractors": 4, "hidden": 0.4, "errands": 4, "max_steps": 90},
    "hard": {"rooms": 7, "objects": 40, "distractors": 8, "hidden": 0.5, "errands": 6, "max_steps": 130},
}  # fmt: skip
"""Levels of homes for two agents; `max_steps` leaves no time to carry everything to the shared room"""
PAIR_SUMMARIES = {
    "easy": "two agents with a room each and a shared one, a list each, and messages",
    "medium": "two agents with two rooms each and a shared one, four errands, and messages",
    "hard": "two agents with three rooms each and a shared one, six errands, half of the things hidden, and messages",
}


def _register_all() -> None:
    register_family(
        Family(
            "virtualhome",
            "VirtualHome-food_preparation-v0",
            "household tasks with two hands: eight published tasks, and homes drawn from a seed for one or two agents",
            requires="virtualhome",
            paper="TWOSOME (Tan et al., 2024) and POAD (Wen et al., 2024)",
        )
    )
    for name, description in PAPER_TASKS.items():
        _register(name, "published.env:PublishedEnv", {"task": name}, f"{description}, as published")
    for level, knobs in LEVELS.items():
        held_out = {split: f"VirtualHome-{level}-{split}-v0" for split in HELD_OUT}
        options = {"level": level, "split_ids": held_out, "splits": SPLITS}
        _register(level, "homes.env:DrawnHomeEnv", knobs, SUMMARIES[level], **options)
        for split, description in HELD_OUT.items():
            seeds = {name: SPLITS[name] for name in ("valid", "test")}
            summary = f"{level} drawn homes, {description}"
            _register(f"{level}-{split}", "homes.env:DrawnHomeEnv", {**knobs, "split": split}, summary, splits=seeds)
    for level, knobs in PAIR_LEVELS.items():
        summary = PAIR_SUMMARIES[level]
        _register(f"pair-{level}", "pair.env:PairEnv", knobs, summary, level=level, splits=SPLITS)


def _register(name: str, entry_point: str, knobs: dict[str, Any], summary: str, **options: Any) -> None:
    entry_point = f"envsuite.envs.virtualhome.{entry_point}"
    register(Task(f"VirtualHome-{name}-v0", entry_point, knobs, requires="virtualhome", summary=summary, **options))


_register_all()
