"""Training studies: runs of one recipe that differ in one setting, as `baselines.studies.run` writes them.

{study}/plan.json     the recipe, the setting that varies, its values, and the seeds
{study}/runs.jsonl    one line per finished run
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envsuite.cache import write_atomically
from envsuite.errors import DataError
from envsuite.reading import read_json
from harness.records import read_lines
from harness.stats.intervals import Interval, student

TrainingRun = dict[str, Any]
"""one line of runs.jsonl"""


def plan_of(folder: Path) -> dict[str, Any]:
    """Returns the plan of a study. Raises DataError if the folder holds none."""
    try:
        plan: dict[str, Any] = read_json(folder / "plan.json")
        for key in ("recipe", "vary", "variants", "seeds", "set"):
            plan[key]
    except (DataError, ValueError, LookupError, TypeError) as error:
        raise DataError(
            f"{folder} is not a study ({error}): write one with python -m baselines.studies.run."
        ) from error
    return plan


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

    Otherwise the file is only appended to, so that two processes that add to one study keep each other's runs.
    """
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
