"""Tasks of SWE-Gym: generated tasks by difficulty and their train splits, compounds of three bugs,
larger bugs and missing features, mined tasks, published records.
"""

from typing import Any

from envsuite.registry import register, register_family
from envsuite.types import Family, Task

ENTRY = "envsuite.envs.swegym.env:SWEGym"
PANEL = "envsuite.envs.swegym.instances:panel"
EXTRA = "swegym"

LARGER: dict[str, dict[str, Any]] = {
    "larger": {"larger": ("compound", "branch", "refactoring"), "tests": "hidden"},
    "feature": {"larger": ("feature",)},
}
LARGER_SUMMARIES = {
    "larger": "two to four independent bugs, a lost branch or a wrong refactoring; failing tests held out",
    "feature": "a function or method is missing; the issue tells what it must do, its tests are the specification",
}
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


def _add(
    name: str, summary: str, level: str = "", splits: dict[str, str] | None = None, version: int = 0, **knobs: Any
) -> None:
    """Registers a task; version 1 has the issue texts of version 1."""
    wording = {"wording": version} if version else {}
    register(
        Task(
            f"SWEGym-{name}-v{version}",
            ENTRY,
            kwargs={**knobs, **wording},
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
        default="SWEGym-medium-v1",
        summary="repair a repository with a shell until its tests pass",
        requires=EXTRA,
        paper="SWE-Gym (Pan et al., 2025), SWE-bench (Jimenez et al., 2024), SWE-smith (Yang et al., 2025)",
    )
)
for _version in (0, 1):
    _known = f", issues of version {_version}" if _version else ""
    for _level, _knobs in LADDER.items():
        _ids = {"test": f"SWEGym-{_level}-v{_version}", "train": f"SWEGym-{_level}-train-v{_version}"}
        _text = f"{SUMMARIES[_level]}{_known}"
        _add(_level, _text, _level, _ids, _version, **_knobs)
        _add(f"{_level}-train", f"{_text}; the packages to train on", "", _ids, _version, **_knobs, split="train")
    _add("b3", f"three bugs, each of them needed{_known}", version=_version, bugs=3, split="all")
_ids = {"test": "SWEGym-larger-v0", "train": "SWEGym-larger-train-v0"}
_text, _knobs = LARGER_SUMMARIES["larger"], LARGER["larger"]
_add("larger", _text, "larger", _ids, **_knobs, statement="symptom")
_add("larger-train", f"{_text}; the packages to train on", "", _ids, **_knobs, statement="symptom", split="train")
_add("feature", LARGER_SUMMARIES["feature"], "feature", **LARGER["feature"], statement="symptom", split="all")
for _level, _knobs in MINED_LADDER.items():
    _add(f"mined-{_level}", MINED[_level], split="all", **_knobs)
_add("records", "records of SWE-Gym or SWE-bench: --set records=FILE", split="all", published=True)
