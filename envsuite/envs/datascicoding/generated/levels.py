"""Tasks of generated tables: the difficulty levels, and one task each for classes and for numbers."""

from __future__ import annotations

from typing import Any

from envsuite.envs.datascicoding.generated.graphs import SPLITS
from envsuite.types import Seeds, Task

ENTRY = "envsuite.envs.datascicoding.generated.env:GeneratedTables"
LEVELS: dict[str, dict[str, Any]] = {
    "easy": {
        "columns": 8,
        "unrelated": 2,
        "causes": 3,
        "interactions": 0.3,
        "nonlinear": 0.6,
        "categories": 0.25,
        "codes": 0.0,
        "missing": 0.05,
        "drift": 0.4,
    },
    "medium": {},
    "hard": {
        "columns": 16,
        "unrelated": 5,
        "causes": 6,
        "interactions": 1.0,
        "nonlinear": 0.9,
        "categories": 0.25,
        "codes": 0.15,
        "missing": 0.3,
        "traps": 6,
        "drift": 1.0,
    },
}
_SUMMARIES = {
    "easy": "generated tables: few columns, additive causes, little drift",
    "medium": "generated tables: interactions, text codes, missing values, drift",
    "hard": "generated tables: many columns and traps, few rows, strong interactions and drift",
}


def _task(name: str, summary: str, level: str = "", **knobs: Any) -> Task:
    splits: dict[str, range | Seeds] = dict(SPLITS)
    return Task(
        f"DataSciCoding-generated-{name}-v0",
        ENTRY,
        kwargs=knobs,
        splits=splits,
        requires="datascicoding",
        level=level,
        summary=summary,
    )


TASKS = (
    *(_task(level, _SUMMARIES[level], level, **knobs) for level, knobs in LEVELS.items()),
    _task("classes", "generated tables of medium difficulty, two classes", outcome="classes"),
    _task("numbers", "generated tables of medium difficulty, a number (R2, RMSE)", outcome="number"),
    _task("improve", "generated tables of medium difficulty, five programs, the best shown counts", mode="improve"),
)
