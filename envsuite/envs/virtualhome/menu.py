"""Registered VirtualHome tasks: the published tasks in both modes, and generated households by level and split."""

from __future__ import annotations

from typing import Any

from envsuite.registry import register, register_family
from envsuite.types import Family, Task

ENTRY_POINT = "envsuite.envs.virtualhome.env:VirtualHomeEnv"
VECTOR = "envsuite.envs.virtualhome.vector:make_vector"
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
HOUSEHOLD: dict[str, Any] = {"task": "household"}
LEVELS: dict[str, dict[str, Any]] = {
    "easy": {**HOUSEHOLD, "rooms": 3, "objects": 6, "distractors": 1, "hidden": 0.0, "goal_length": 1},
    "medium": {
        **HOUSEHOLD, "rooms": 5, "objects": 14, "distractors": 4, "hidden": 0.3, "goal_length": 2, "max_steps": 80,
    },
    "hard": {
        **HOUSEHOLD,
        "rooms": 7,
        "objects": 28,
        "distractors": 8,
        "hidden": 0.5,
        "goal_length": 3,
        "sight": "spot",
        "max_steps": 150,
    },
}  # fmt: skip
SUMMARIES = {
    "easy": "a household generated from the seed: one goal, three rooms, everything in the open",
    "medium": "a household generated from the seed: two goals in turn, five rooms, some things in closed furniture",
    "hard": "a household generated from the seed: three goals, seven rooms, half of the things hidden, a narrow view",
}

HOUSEHOLD_VECTOR = "envsuite.envs.virtualhome.vector:make_household_vector"
HOUSEHOLD_ENTRY_POINT = "envsuite.envs.virtualhome.household.env:HouseholdEnv"
HOUSEHOLD_LEVELS: dict[str, dict[str, Any]] = {
    "easy": {"rooms": 3, "objects": 8, "distractors": 2, "sight": "room", "max_steps": 20},
    "medium": {
        "rooms": 5, "objects": 16, "distractors": 4, "hidden": 0.4, "surprise": 0.05, "goal_length": 2, "max_steps": 60,
    },
    "hard": {
        "rooms": 7,
        "objects": 28,
        "distractors": 8,
        "hidden": 0.5,
        "surprise": 0.1,
        "goal_length": 3,
        "logic": True,
        "max_steps": 150,
    },
}  # fmt: skip
"""Levels of version 1"""
HOUSEHOLD_SUMMARIES = {
    "easy": "a drawn home with common sense: one goal, three rooms, loose things seen from anywhere in their room",
    "medium": "a drawn home with common sense: two goals in order, five rooms, loose things seen only from nearby",
    "hard": "a drawn home with common sense: three goals in order with counts, negation and preference, seven rooms",
}
# The seeds of each split; `household.structure` gives homes, sentences and structures of games to these splits.
HOUSEHOLD_SPLITS = {
    "train": range(0, 1_000_000),
    "valid": range(2_000_000, 2_001_000),
    "test": range(1_000_000, 1_001_000),
}
PAIR_ENTRY_POINT = "envsuite.envs.virtualhome.pair.env:PairEnv"
PAIR_LEVELS: dict[str, dict[str, Any]] = {
    "easy": {
        "rooms": 3,
        "objects": 14,
        "distractors": 2,
        "hidden": 0.2,
        "sight": "room",
        "errands": 2,
        "max_steps": 40,
    },
    "medium": {"rooms": 5, "objects": 24, "distractors": 4, "hidden": 0.4, "errands": 4, "max_steps": 90},
    "hard": {"rooms": 7, "objects": 40, "distractors": 8, "hidden": 0.5, "errands": 6, "max_steps": 130},
}
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
            "household tasks with two hands: eight published tasks, original and corrected, and generated households",
            requires="virtualhome",
            paper="TWOSOME (Tan et al., 2024) and POAD (Wen et al., 2024)",
        )
    )
    for name, description in PAPER_TASKS.items():
        for suffix, mode in (("", "published"), ("-fixed", "fixed")):
            register(
                Task(
                    f"VirtualHome-{name}{suffix}-v0",
                    ENTRY_POINT,
                    {"task": name, "mode": mode},
                    requires="virtualhome",
                    vector_entry_point=VECTOR,
                    summary=f"{description}, {'as published' if mode == 'published' else 'with fixed rules'}",
                )
            )
    for level, knobs in LEVELS.items():
        splits = {split: f"VirtualHome-{level}-{split}-v0" for split in HELD_OUT}
        summary = SUMMARIES[level]
        register(
            Task(
                f"VirtualHome-{level}-v0",
                ENTRY_POINT,
                knobs,
                split_ids=splits,
                requires="virtualhome",
                vector_entry_point=VECTOR,
                level=level,
                summary=summary,
            )
        )
        for split, task_id in splits.items():
            register(
                Task(
                    task_id,
                    ENTRY_POINT,
                    {**knobs, "split": split},
                    requires="virtualhome",
                    vector_entry_point=VECTOR,
                    summary=f"{level} households, {HELD_OUT[split]}",
                )
            )
    for level, knobs in HOUSEHOLD_LEVELS.items():
        splits = {split: f"VirtualHome-{level}-{split}-v1" for split in HELD_OUT}
        register(
            Task(
                f"VirtualHome-{level}-v1",
                HOUSEHOLD_ENTRY_POINT,
                knobs,
                HOUSEHOLD_SPLITS,
                split_ids=splits,
                requires="virtualhome",
                vector_entry_point=HOUSEHOLD_VECTOR,
                level=level,
                summary=HOUSEHOLD_SUMMARIES[level],
            )
        )
        for split, task_id in splits.items():
            register(
                Task(
                    task_id,
                    HOUSEHOLD_ENTRY_POINT,
                    {**knobs, "split": split},
                    {name: HOUSEHOLD_SPLITS[name] for name in ("valid", "test")},
                    requires="virtualhome",
                    vector_entry_point=HOUSEHOLD_VECTOR,
                    summary=f"{level} drawn homes, {HELD_OUT[split]}",
                )
            )
    for level, knobs in PAIR_LEVELS.items():
        register(
            Task(
                f"VirtualHome-pair-{level}-v0",
                PAIR_ENTRY_POINT,
                knobs,
                HOUSEHOLD_SPLITS,
                requires="virtualhome",
                level=level,
                summary=PAIR_SUMMARIES[level],
            )
        )


_register_all()
