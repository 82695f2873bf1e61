"""Tasks of SWE-Gym: generated tasks by difficulty and their train splits, compounds of three bugs,
published records.
"""

from typing import Any

from envsuite.registry import register, register_family
from envsuite.types import Family, Task

ENTRY = "envsuite.envs.swegym.env:SWEGym"
PANEL = "envsuite.envs.swegym.instances:panel"
EXTRA = "swegym"

LADDER: dict[str, dict[str, Any]] = {
    "easy": {"bugs": 1, "statement": "full"},
    "medium": {"bugs": 1, "statement": "symptom"},
    "hard": {"bugs": 2, "statement": "symptom", "tests": "hidden", "max_steps": 40},
}
SUMMARIES = {
    "easy": "one bug in a small package; the failing tests are named and quoted",
    "medium": "one bug in a small package; the issue tells a symptom",
    "hard": "two bugs in a small package; the issue tells symptoms, the failing tests are held out",
}


def _add(name: str, summary: str, level: str = "", splits: dict[str, str] | None = None, **knobs: Any) -> None:
    register(
        Task(
            f"SWEGym-{name}-v0",
            ENTRY,
            kwargs=knobs,
            split_ids=splits or {},
            panel=PANEL,
            requires=EXTRA,
            level=level,
            summary=summary,
        )
    )


register_family(
    Family(
        "swegym",
        default="SWEGym-medium-v0",
        summary="mend a repository with a shell, paid by its tests",
        requires=EXTRA,
        paper="SWE-Gym (Pan et al., 2025), SWE-bench (Jimenez et al., 2024), SWE-smith (Yang et al., 2025)",
    )
)
for _level, _knobs in LADDER.items():
    _splits = {"test": f"SWEGym-{_level}-v0", "train": f"SWEGym-{_level}-train-v0"}
    _add(_level, SUMMARIES[_level], _level, _splits, **_knobs)
    _add(f"{_level}-train", f"{SUMMARIES[_level]}; the packages to train on", "", _splits, **_knobs, split="train")
_add("b3", "three bugs, each of them needed", bugs=3, split="all")
_add("records", "records of SWE-Gym or SWE-bench: --set records=FILE", split="all", published=True)
