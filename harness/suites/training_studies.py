"""Studies: several training runs of one recipe side by side, as `baselines.studies.run` leaves them.

{study}/plan.json     what is compared: recipe, the setting that varies and its values, seeds
{study}/runs.jsonl    a line per finished run
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envsuite.cache import write_atomically
from envsuite.errors import DataError
from harness.records import read_lines
from harness.stats.intervals import Interval, student

Record = dict[str, Any]


def plan_of(folder: Path) -> Record:
    """What a study is to run. DataError where there is none."""
    try:
        plan: Record = json.loads((folder / "plan.json").read_text())
        plan["recipe"], plan["vary"], plan["variants"], plan["seeds"], plan["set"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{folder} is no study ({error}): write one with python -m baselines.studies.run.") from error
    return plan


def read(path: Path) -> list[Record]:
    """The records of a study; a last line that a crash cut short is left out. Raises DataError naming file and line."""
    if not path.exists():
        return []
    return read_lines(path, _run, "run of a study", "remove that line to run it again")


def _run(one: Record) -> Record:
    one["variant"], one["seed"], one["updates"][0], one["evals"][0]
    return one


def append(path: Path, record: Record) -> None:
    """One more record at the end. What a crash left half-written there goes first; else nothing is written again, so that
    of two processes that add to a study neither loses the other's runs."""
    written = path.read_bytes() if path.exists() else b""
    if written and not written.endswith(b"\n"):
        write_atomically(path, "".join(json.dumps(one) + "\n" for one in read(path)))
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def held_out(runs: Sequence[Record], place: int = -1) -> Interval:
    """Success on held-out games at the last measurement (`place` 0: before the first update), over runs as units."""
    return student([run["evals"][place]["success"] for run in runs])


def in_words(folder: Path) -> str:
    """A study in one line: what each value of its setting came to."""
    plan, runs = plan_of(folder), read(folder / "runs.jsonl")
    said = []
    for value in plan["variants"]:
        mine = [run for run in runs if run["variant"] == value]
        if mine:
            found, before = held_out(mine), held_out(mine, 0).value
            bounds = f" [{max(0.0, found.low):.2f}, {min(1.0, found.high):.2f}]" if len(mine) > 1 else ""
            seeds = f"{len(mine)} seeds" if len(mine) > 1 else "one seed, no interval"
            said.append(f"{value} {before:.2f} -> {found.value:.2f}{bounds} ({seeds})")
        else:
            said.append(f"{value} not run")
    games = sorted({run["evals"][-1]["n"] for run in runs})
    told = f"{plan.get('title') or plan['recipe']}: {plan['vary']}: {'; '.join(said)}"
    return told + (f"; {' or '.join(map(str, games))} held-out games a run" if games else "")
