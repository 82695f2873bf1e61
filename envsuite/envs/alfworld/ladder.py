"""Settings of generated games from easy to hard, for `harness.stats.curriculum.Curriculum`."""

from __future__ import annotations

from typing import Any

from envsuite.envs.alfworld.games.floorplans import TASK_TYPES

_LOOK, _PICK, _CLEAN, _COOL, _HEAT, _TWO = TASK_TYPES

LADDER: tuple[dict[str, Any], ...] = (
    {"task_types": (_PICK,), "receptacles": 4, "objects": 3, "hidden": 0.0},
    {"task_types": (_PICK, _LOOK), "receptacles": 6, "objects": 6, "hidden": 0.0},
    {"task_types": (_PICK, _LOOK, _CLEAN), "receptacles": 8, "objects": 10, "hidden": 0.0},
    {"task_types": (_PICK, _LOOK, _CLEAN, _HEAT, _COOL), "receptacles": 10, "objects": 14, "hidden": 0.25},
    {"receptacles": 14, "objects": 20},
    {},  # like the official games
    {"task_types": (_CLEAN, _HEAT, _COOL, _TWO), "hidden": 0.5},
    {"task_types": (_CLEAN, _HEAT, _COOL, _TWO), "hidden": 1.0},
)
"""Settings from the easiest to the hardest; each is harder than the one before."""
