"""Registered Overcooked tasks: published salads and soups, and kitchens with orders by level."""

from __future__ import annotations

from typing import Any

from envsuite.registry import register, register_family
from envsuite.types import Family, Task

SALADS = ("tomato", "lettuce", "onion", "tomato-lettuce", "tomato-onion", "lettuce-onion", "tomato-lettuce-onion")
LEVELS: dict[str, dict[str, Any]] = {
    "easy": {"size": 6, "foods": 2, "orders": 2, "items": 1},
    "medium": {"size": 6, "foods": 2, "orders": 2, "items": 2, "changes": True},
    "hard": {
        "size": 7, "walls": 0.15, "foods": 3, "stoves": 2, "counters": 2, "orders": 3, "items": 2, "changes": True,
    },
}  # fmt: skip
SUMMARIES = {
    "easy": "two orders of one food each, in time and step by step, in a generated kitchen of 6x6 with one stove",
    "medium": "two orders of up to two foods, in time and step by step, in a generated kitchen of 6x6 with one stove; "
    "one order changes",
    "hard": "three orders of up to two foods, in time and step by step, in a generated kitchen of 7x7, two stoves; one "
    "order changes",
}
SPLITS = {"train": range(10_000, 2**31), "valid": range(5_000, 6_000), "test": range(1_000)}
"""Seeds of the levels. A seed outside of `valid` and `test` draws a kitchen of `train`."""
SOUPS = {
    "cramped_room": "in one small room",
    "asymmetric_advantages": "in two rooms that share the pots",
    "coordination_ring": "in a ring around a counter",
    "forced_coordination": "in two rooms, each with half of what a soup needs",
    "counter_circuit": "around a long counter",
}
"""Layouts of Overcooked-AI in words."""


def _register_all() -> None:
    register_family(
        Family(
            "overcooked",
            "Overcooked-tomato_lettuce_salad-v0",
            "fetch, chop, fill bowls and serve: published salads and soups, and several orders in time, step by step",
            requires="overcooked",
            paper="TWOSOME (Tan et al., 2024) and POAD (Wen et al., 2024)",
        )
    )
    for recipe in SALADS:
        _register(
            f"{recipe.replace('-', '_')}_salad",
            "salad.env:SaladEnv",
            {} if recipe == "tomato" else {"recipe": recipe, "variant": "v3"},  # tomato salad has a separate kitchen
            f"{recipe.replace('-', ', ')} salad in the open kitchen",
        )
    for level, knobs in LEVELS.items():
        _register(level, "orders.env:OrdersEnv", knobs, SUMMARIES[level], level=level, splits=SPLITS)
    for layout, where in SOUPS.items():
        summary = f"Overcooked-AI: two cooks serve onion soups {where}, with simultaneous moves"
        _register(f"AI-{layout}", "soup.env:SoupEnv", {"layout": layout}, summary)


def _register(name: str, entry_point: str, knobs: dict[str, Any], summary: str, **options: Any) -> None:
    entry_point = f"envsuite.envs.overcooked.{entry_point}"
    register(Task(f"Overcooked-{name}-v0", entry_point, knobs, requires="overcooked", summary=summary, **options))


_register_all()
