"""Training studies: runs of one recipe that differ in settings, as `baselines.studies.run` writes them.

{study}/plan.json     the recipe, what varies, and the seeds
{study}/runs.jsonl    one line per finished run

A plan varies one setting (`vary` and its `variants`) or several factors. A factor has named levels, each a
table of settings. `where` lists further settings for the cells that have certain levels, and "{NAME}" in
any value stands for the cell's level of the factor NAME:

    "factors": {"start": {"wide": {}, "sharp": {}}, "method": {"poad": {"algorithm": "poad"}}},
    "where": [{"if": {"method": "poad"}, "set": {"config.learning_rate": "1e-3"}}],
    "set": {"model.name": "runs/train/{start}/model"}
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import filelock

from envsuite.cache import write_atomically
from envsuite.errors import DataError
from envsuite.reading import read_json
from harness.records import read_lines
from harness.stats.intervals import Interval, student

TrainingRun = dict[str, Any]
"""one line of runs.jsonl"""


class Cell(NamedTuple):
    """One combination of what a plan varies, with all settings of its runs."""

    variant: str
    levels: dict[str, str]
    settings: dict[str, str]


def plan_of(folder: Path) -> dict[str, Any]:
    """Returns the plan of a study. Raises DataError if the folder holds none."""
    try:
        plan: dict[str, Any] = read_json(folder / "plan.json")
        if "factors" in plan:
            plan["vary"] = ", ".join(plan["factors"])
            plan["variants"] = [cell.variant for cell in cells(plan)]
        for key in ("recipe", "vary", "variants", "seeds", "set"):
            plan[key]
    except (DataError, ValueError, LookupError, TypeError) as error:
        raise DataError(
            f"{folder} is not a study ({error}): write one with python -m baselines.studies.run."
        ) from error
    return plan


def cells(plan: dict[str, Any]) -> list[Cell]:
    """Returns the cells of a plan; the levels of its last factor change fastest."""
    if "factors" not in plan:
        key = plan["vary"]
        return [Cell(value, {key: value}, {**plan["set"], key: value}) for value in plan["variants"]]
    factors: dict[str, dict[str, dict[str, str]]] = plan["factors"]
    result = []
    for names in itertools.product(*factors.values()):
        levels = dict(zip(factors, names, strict=True))
        settings = dict(plan["set"])
        for factor, level in levels.items():
            settings.update(factors[factor][level])
        for rule in plan.get("where", ()):
            if rule["if"].items() <= levels.items():
                settings.update(rule["set"])
        for key, value in settings.items():
            for factor, level in levels.items():
                value = value.replace("{" + factor + "}", level)
            settings[key] = value
        result.append(Cell(" ".join(names), levels, settings))
    return result


def seeds(plan: dict[str, Any]) -> range:
    """Returns the seeds of a plan: as many as it says, from its `first_seed` (0)."""
    first = int(plan.get("first_seed", 0))
    return range(first, first + int(plan["seeds"]))


def lock(folder: Path, name: str) -> filelock.FileLock:
    """Returns a lock that processes on this machine share, such as that of one run of a study.

    The system frees it when its process ends, however that happens.
    """
    place = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    locks = Path(tempfile.gettempdir()) / f"envsuite-study-{place}"
    locks.mkdir(exist_ok=True)
    return filelock.FileLock(locks / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.lock")


def read(path: Path) -> list[TrainingRun]:
    """Returns the runs of a study, without a last line that a crash cut short. Raises DataError with file and line."""
    if not path.exists():
        return []
    return read_lines(path, _checked, "run of a study", "remove that line to run it again")


def _checked(run: TrainingRun) -> TrainingRun:
    run["variant"], run["seed"], run["updates"][0], run["evals"][0]
    return run


def append(path: Path, run: TrainingRun) -> None:
    """Appends one run, after removing a last line that a crash cut short.

    Processes on one machine that add to one study wait for each other, so that no run is lost.
    """
    with lock(path.parent, path.name):
        written = path.read_bytes() if path.exists() else b""
        if written and not written.endswith(b"\n"):
            write_atomically(path, "".join(json.dumps(finished) + "\n" for finished in read(path)))
        with path.open("a") as file:
            file.write(json.dumps(run) + "\n")


def held_out(runs: Sequence[TrainingRun], index: int = -1) -> Interval:
    """Returns the success on held-out games at the last evaluation (`index` 0: before training), with runs as units."""
    return student([run["evals"][index]["success"] for run in runs])


def in_words(folder: Path) -> str:
    """Describes a study in one line: the success before and after training for each value of the setting."""
    plan = plan_of(folder)
    runs = read(folder / "runs.jsonl")
    parts = [_variant(value, [run for run in runs if run["variant"] == value]) for value in plan["variants"]]
    line = f"{plan.get('title') or plan['recipe']}: {plan['vary']}: {'; '.join(parts)}"
    games = sorted({run["evals"][-1]["n"] for run in runs})
    return line + (f"; {' or '.join(map(str, games))} held-out games a run" if games else "")


def _variant(value: str, runs: Sequence[TrainingRun]) -> str:
    if not runs:
        return f"{value} not run"
    before, after = held_out(runs, 0).value, held_out(runs)
    change = f"{value} {before:.2f} -> {after.value:.2f}"
    if len(runs) == 1:
        return f"{change} (one seed, no interval)"
    return f"{change} [{max(0.0, after.low):.2f}, {min(1.0, after.high):.2f}] ({len(runs)} seeds)"
