"""Tasks of SWE-Gym: planted bugs by difficulty and their train splits, mined bugs, published records."""

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
MINED = {
    "easy": "a real bug between two releases of a package, mended in one file by few lines; the tests are named",
    "medium": "a real bug between two releases of a package, mended in one file; the issue tells a symptom",
    "hard": "a real bug between two releases of a package, mended by many lines or in several files",
}

MINED_LADDER: dict[str, dict[str, Any]] = {
    level: {"mined": level, "statement": "full" if level == "easy" else "symptom"} for level in MINED
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
        summary="repair a repository with a shell until its tests pass",
        requires=EXTRA,
        paper="SWE-Gym (Pan et al., 2025), SWE-bench (Jimenez et al., 2024), SWE-smith (Yang et al., 2025)",
    )
)
for _level, _knobs in LADDER.items():
    _ids = {"test": f"SWEGym-{_level}-v0", "train": f"SWEGym-{_level}-train-v0"}
    _add(_level, SUMMARIES[_level], _level, _ids, **_knobs)
    _add(f"{_level}-train", f"{SUMMARIES[_level]}; the packages to train on", "", _ids, **_knobs, split="train")
for _level, _knobs in MINED_LADDER.items():
    _add(f"mined-{_level}", MINED[_level], split="all", **_knobs)
_add("records", "records of SWE-Gym or SWE-bench: --set records=FILE", split="all", published=True)
