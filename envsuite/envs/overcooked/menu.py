"""Registered Overcooked tasks: the two published tasks, every recipe on every map, and generated kitchens by level.

Versions 1 and 2 of the levels are another game, in the folder `service`.
"""

from __future__ import annotations

from typing import Any

from envsuite.registry import register, register_family
from envsuite.types import Family, Task

ENTRY_POINT = "envsuite.envs.overcooked.env:OvercookedEnv"
VECTOR = "envsuite.envs.overcooked.vector:make_vector"
SERVICE_VECTOR = "envsuite.envs.overcooked.vector:make_service_vector"
SOUP_ENTRY_POINT = "envsuite.envs.overcooked.soup.env:SoupEnv"
SERVICE_ENTRY_POINT = "envsuite.envs.overcooked.service.env:ServiceEnv"
RECIPES = ("tomato", "lettuce", "onion", "tomato-lettuce", "tomato-onion", "lettuce-onion", "tomato-lettuce-onion")
KITCHENS: dict[str, tuple[str, dict[str, Any]]] = {  # suffix of the task name -> (place, knobs)
    "": ("in the open kitchen", {}),
    "9x9": ("in the open kitchen of 9x9", {"size": 9}),
    "c": ("in the kitchen with a gap", {"layout": "c"}),
    "2cooks": ("by two cooks in the open kitchen", {"cooks": 2}),
    "3cooks": ("by three cooks in the open kitchen", {"cooks": 3}),
    "b-2cooks": ("by two cooks in the divided kitchen", {"layout": "b", "cooks": 2}),
    "b-3cooks": ("by three cooks in the divided kitchen", {"layout": "b", "cooks": 3}),
    "c-2cooks": ("by two cooks in the kitchen with a gap", {"layout": "c", "cooks": 2}),
    "c-3cooks": ("by three cooks in the kitchen with a gap", {"layout": "c", "cooks": 3}),
}
DRAWN = {"layout": "random", "recipe": "random"}
LEVELS: dict[str, dict[str, Any]] = {
    "easy": {**DRAWN, "recipe_size": 1, "size": 6, "foods": 2, "boards": 1, "walls": 0.0},
    "medium": {**DRAWN, "recipe_size": 2, "size": 7, "foods": 3, "boards": 2, "walls": 0.1},
    "hard": {**DRAWN, "recipe_size": 3, "size": 9, "foods": 5, "boards": 2, "bowls": 2, "walls": 0.15},
}
LEVELS_V1: dict[str, dict[str, Any]] = {
    "easy": {"size": 6, "foods": 2, "orders": 2, "items": 1},
    "medium": {"size": 6, "foods": 2, "orders": 2, "items": 2},
    "hard": {"size": 7, "walls": 0.15, "foods": 3, "stoves": 2, "counters": 2, "orders": 3, "items": 2},
}
SUMMARIES_V1 = {
    "easy": "two orders of one food each, in time and step by step, in a generated kitchen of 6x6 with one stove",
    "medium": "two orders of up to two foods, in time and step by step, in a generated kitchen of 6x6 with one stove",
    "hard": "three orders of up to two foods, in time and step by step, in a generated kitchen of 7x7, two stoves",
}
LEVELS_V2: dict[str, dict[str, Any]] = {
    level: {**knobs, "rejects": "interleaved", "changes": level != "easy"} for level, knobs in LEVELS_V1.items()
}
SPLITS_V1 = {"train": range(10_000, 2**31), "valid": range(5_000, 6_000), "test": range(1_000)}
"""Seeds of versions 1 and 2. A seed outside of `valid` and `test` draws a kitchen of `train`."""
SUMMARIES = {
    "easy": "a kitchen of 6x6 generated from the seed: one food to chop, one board",
    "medium": "a kitchen of 7x7 generated from the seed: two foods of three, some walls",
    "hard": "a kitchen of 9x9 generated from the seed: three foods of five, two bowls, more walls",
}
LAYOUTS_AI = {
    "cramped_room": "in one small room",
    "asymmetric_advantages": "in two rooms that share the pots",
    "coordination_ring": "in a ring around a counter",
    "forced_coordination": "in two rooms, each with half of what a soup needs",
    "counter_circuit": "around a long counter",
}
"""Layouts of Overcooked-AI, with the place in words."""


def _register_all() -> None:
    register_family(
        Family(
            "overcooked",
            "Overcooked-tomato_lettuce_salad-v0",
            "fetch, chop, fill bowls and serve: one order with 1 to 3 cooks, or several orders in time, step by step",
            requires="overcooked",
            paper="TWOSOME (Tan et al., 2024) and POAD (Wen et al., 2024)",
        )
    )
    for recipe in RECIPES:
        dish = recipe.replace("-", "_") + "_salad"
        base = {} if recipe == "tomato" else {"recipe": recipe, "variant": "v3"}  # tomato salad has a separate kitchen
        for suffix, (where, knobs) in KITCHENS.items():
            task_id = f"Overcooked-{'-'.join(filter(None, (dish, suffix)))}-v0"
            summary = f"{recipe.replace('-', ', ')} salad {where}"
            register(
                Task(
                    task_id,
                    ENTRY_POINT,
                    {**base, **knobs},
                    requires="overcooked",
                    summary=summary,
                    vector_entry_point=VECTOR,
                )
            )
    for level, knobs in LEVELS.items():
        summary = SUMMARIES[level]
        register(
            Task(
                f"Overcooked-{level}-v0",
                ENTRY_POINT,
                knobs,
                requires="overcooked",
                level=level,
                summary=summary,
                vector_entry_point=VECTOR,
            )
        )
    for version, levels in ((1, LEVELS_V1), (2, LEVELS_V2)):
        for level, knobs in levels.items():
            changes = "; one order changes" if knobs.get("changes") else ""
            register(
                Task(
                    f"Overcooked-{level}-v{version}",
                    SERVICE_ENTRY_POINT,
                    knobs,
                    SPLITS_V1,
                    requires="overcooked",
                    level=level,
                    summary=SUMMARIES_V1[level] + changes,
                    vector_entry_point=SERVICE_VECTOR,
                )
            )
    for layout, where in LAYOUTS_AI.items():
        summary = f"Overcooked-AI: two cooks serve onion soups {where}, with simultaneous moves"
        register(
            Task(
                f"Overcooked-AI-{layout}-v0",
                SOUP_ENTRY_POINT,
                {"layout": layout},
                requires="overcooked",
                summary=summary,
            )
        )


_register_all()
