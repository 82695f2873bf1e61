"""Training studies: runs of one recipe that differ in settings, as `baselines.studies.run` writes them.

{study}/plan.json     the recipe, what varies, and the seeds
{study}/runs.jsonl    one line per finished run

A plan varies one factor or several. A factor has named levels, each a table of settings. `where` lists further
settings for the cells that have certain levels, and "{NAME}" in any value stands for the cell's level of the
factor NAME:

    "factors": {"start": {"wide": {}, "sharp": {}}, "method": {"poad": {"algorithm": "poad"}}},
    "where": [{"if": {"method": "poad"}, "set": {"config.learning_rate": "1e-3"}}],
    "set": {"model.name": "runs/train/{start}/model"}
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
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
        _check(plan)
        plan["vary"] = ", ".join(plan["factors"])
        plan["variants"] = [cell.variant for cell in cells(plan)]
    except (DataError, ValueError, TypeError) as error:
        raise DataError(
            f"{folder} is not a study ({error}): correct its plan.json, or copy one from leaderboards/training."
        ) from error
    return plan


def _check(plan: Any) -> None:
    """Raises ValueError with the field of a plan that is missing or names what the plan does not have."""
    if not isinstance(plan, dict):
        raise ValueError("its plan.json is not an object")
    if missing := [name for name in ("title", "recipe", "factors", "compare", "seeds", "set") if name not in plan]:
        raise ValueError(f"field {missing[0]!r} is missing")
    first = plan.get("first_seed", 0)
    if type(plan["seeds"]) is not int or type(first) is not int or plan["seeds"] < 1 or first < 0:
        raise ValueError(f"'seeds' and 'first_seed' are whole numbers from 1 and 0, not {plan['seeds']!r}, {first!r}")
    if not _are_settings(plan["set"]):
        raise ValueError("field 'set' is not an object of texts")
    _check_factors(plan, plan["factors"])
    compared = list(plan["factors"][plan["compare"]])
    for pair in plan.get("pairs", []):
        if not isinstance(pair, list) or len(pair) != 2 or any(name not in compared for name in pair):
            raise ValueError(f"{pair!r} of 'pairs' is not two of {', '.join(compared)}")


def _check_factors(plan: dict[str, Any], factors: Any) -> None:
    """Raises ValueError for factors that contradict the plan, as `_check` does."""
    if not isinstance(factors, dict) or not all(
        isinstance(levels, dict) and levels and all(map(_are_settings, levels.values())) for levels in factors.values()
    ):
        raise ValueError("field 'factors' is not an object of levels with their settings")
    compare, outer, rules = plan["compare"], plan.get("outer"), plan.get("where", [])
    if compare not in factors or outer not in (None, *factors) or compare == outer:
        raise ValueError(f"'compare' and 'outer' are two of {', '.join(factors)}, not {compare!r} and {outer!r}")
    if not isinstance(rules, list) or not all(
        isinstance(rule, dict) and _are_settings(rule.get("if")) and _are_settings(rule.get("set")) for rule in rules
    ):
        raise ValueError("field 'where' is not a list of objects with 'if' and 'set'")
    for factor, level in itertools.chain.from_iterable(rule["if"].items() for rule in rules):
        if level not in factors.get(factor, ()):
            raise ValueError(f"a rule of 'where' is for {factor} = {level}, which no cell has")
    made = cells(plan)
    for value in itertools.chain.from_iterable(cell.settings.values() for cell in made):
        if unknown := re.search(r"\{\w+\}", value):
            raise ValueError(f"{unknown[0]} in the setting {value!r} is no factor")
    if len({cell.variant for cell in made}) < len(made):
        raise ValueError("two cells have the same levels when joined by blanks: rename one")


def _are_settings(table: Any) -> bool:
    return isinstance(table, dict) and all(isinstance(value, str) for value in table.values())


def cells(plan: dict[str, Any]) -> list[Cell]:
    """Returns the cells of a plan; the levels of its last factor change fastest."""
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


def stored_runs(folder: Path, plan: dict[str, Any]) -> list[TrainingRun]:
    """Returns the runs of a plan that were run. Raises DataError for one that had other settings than the plan has."""
    planned = {cell.variant: cell.settings for cell in cells(plan)}
    of_plan = [run for run in read(folder / "runs.jsonl") if run["variant"] in planned and run["seed"] in seeds(plan)]
    for run in of_plan:
        now = planned[run["variant"]]
        before = run.get("settings", now)  # older records have none
        if before != now:
            names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
            raise DataError(
                f"{folder / 'runs.jsonl'}: {run['variant']!r}, seed {run['seed']}, was run with another "
                f"{', '.join(names)} than the plan has: remove these runs, or give the new settings another name."
            )
    return of_plan


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
    runs = stored_runs(folder, plan)
    parts = [_variant(value, [run for run in runs if run["variant"] == value]) for value in plan["variants"]]
    line = f"{plan['title']}: {plan['vary']}: {'; '.join(parts)}"
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
