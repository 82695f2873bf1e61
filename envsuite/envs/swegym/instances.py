"""Panels of SWE-Gym: the instances of a list that fit a task's knobs, in a fixed order."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from envsuite.envs.swegym.mined.tasks import MinedTask, mined_tasks
from envsuite.envs.swegym.planted import packages, tasks
from envsuite.envs.swegym.published import problem as published
from envsuite.envs.swegym.published.records import Record
from envsuite.errors import DataError, MissingData, UsageError, did_you_mean
from envsuite.panels import make_panel
from envsuite.types import Panel


def panel(**settings: Any) -> Panel:
    """Returns the instances that fit a task's settings, in a fixed order.

    Raises DataError, UsageError.
    """
    only = set(settings["instances"])
    named, deny = _denied(settings["deny"])
    if sum(bool(settings[name]) for name in ("records", "tasks", "mined")) > 1:
        raise UsageError(
            "Published records, a folder of tasks and mined tasks are played one at a time: set only one of `records`, "
            "`tasks` and `mined`."
        )
    if settings["published"] and not settings["records"]:
        raise MissingData(
            "SWEGym-records plays published records, and none are named: --set records=FILE "
            "(.jsonl, .json, .parquet, a folder of instances, or a data set on the hub)."
        )
    if settings["mined"]:
        rows = [(task.package, task.record.instance_id, _content(task.record)) for task in _mined(settings)]
        name = f"swegym/mined/{settings['mined']}/{settings['split']}"
    elif settings["records"]:
        known = published_in(settings["records"], settings["data_split"])
        rows = [(record.repo, name, _content(record)) for name, (record, _) in known.items()]
        name = f"swegym/{Path(settings['records']).name}"
    else:
        rows = [(task.package.name, task.instance_id, task.instance_id) for task in _fitting(settings)]
        name = "/".join(["swegym", *Path(settings["tasks"]).parts[-1:], settings["split"]])
    if missing := (only | named) - {row[1] for row in rows}:
        raise UsageError(
            f"There is no instance {min(missing)!r} among these {len(rows)}, nor a file of that name: "
            "check the knobs, split first."
        )
    return make_panel(name, [row for row in rows if (not only or row[1] in only) and row[1] not in named | deny])


def why_none(settings: dict[str, Any]) -> str:
    """Returns advice for settings that no instance fits."""
    if settings["mined"]:
        return "allow another level, more packages, another number of files, or split=all."
    splits = {task.package.split for task in planted_in(settings["tasks"]).values()}
    if settings["tasks"] and settings["split"] not in ("all", *splits):
        names = " and ".join(sorted(splits))
        return f"the packages in {settings['tasks']} belong to the split {names}: set split=all."
    return "allow more packages, or another number of bugs."


def facts(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the entries of a difficulty card about the instances."""
    if settings["records"] or settings["published"]:
        return {}

    def spread(values: list[int]) -> dict[str, float]:
        return {"median": statistics.median(values), "max": max(values)}

    if settings["mined"]:
        mined = _mined(settings)
        return {
            "instances": len(mined),
            "packages": {task.package: task.licence for task in sorted(mined, key=lambda task: task.package)},
            "tests": spread([len(task.record.fail_to_pass) + len(task.record.pass_to_pass) for task in mined]),
            "fail_to_pass": spread([len(task.record.fail_to_pass) for task in mined]),
            "gold_patch_lines": spread([task.lines for task in mined]),
            "gold_patch_files": spread([task.files for task in mined]),
        }
    fitting = _fitting(settings)
    chosen = sorted({task.package for task in fitting}, key=lambda package: package.name)
    return {
        "instances": len(fitting),
        "packages": {package.name: package.licence for package in chosen},
        "package_lines": spread([packages.lines_of_code(package) for package in chosen]),
        "tests": spread([len(task.fail_to_pass) + len(task.pass_to_pass) for task in fitting]),
        "fail_to_pass": spread([len(task.fail_to_pass) for task in fitting]),
        "gold_patch_lines": spread([task.patch_lines for task in fitting]),
        "gold_patch_files": spread([len(task.paths) for task in fitting]),
    }


@lru_cache(maxsize=4)
def planted_in(folder: str) -> dict[str, tasks.PlantedTask]:
    """Returns the planted tasks in a folder, or for '' the shipped ones, by id. Raises DataError."""
    return {
        task.instance_id: task for task in tasks.manifest(Path(folder).expanduser() if folder else packages.SHIPPED)
    }


@lru_cache(maxsize=4)
def published_in(source: str, split: str = "") -> dict[str, Any]:
    """Returns (record, setup) of each published instance of a source, by id. Raises DataError."""
    return published.find(source, split)


def recorded(name: str, settings: dict[str, Any]) -> tuple[Record, dict[str, Any] | None, str] | None:
    """Returns record, setup and issue text of a mined or published instance; None for a generated one."""
    if settings["mined"]:
        task = mined_tasks()[name]
        return task.record, task.setup, task.statement(settings["statement"])
    if settings["records"]:
        record, setup = published_in(settings["records"], settings["data_split"])[name]
        return record, setup, record.problem_statement
    return None


def _mined(settings: dict[str, Any]) -> list[MinedTask]:
    """Returns the mined tasks that fit. Raises UsageError for a package without tasks."""
    listed = mined_tasks().values()
    known = dict.fromkeys(task.package for task in listed)
    if wrong := [name for name in settings["package"] if name not in known]:
        raise UsageError(
            f"There are no mined tasks of the package {wrong[0]!r}, only of {', '.join(known)}."
            f"{did_you_mean(wrong[0], known)} For other packages: `envsuite swe mine NAME -o FOLDER`, then "
            "records=FOLDER/records.jsonl."
        )
    return [
        task
        for task in listed
        if settings["mined"] in ("all", task.level)
        and settings["split"] in ("all", task.split)
        and (not settings["package"] or task.package in settings["package"])
        and settings["files"] in (0, task.files)
    ]


def _fitting(settings: dict[str, Any]) -> list[tasks.PlantedTask]:
    """Returns the planted tasks that fit. Raises UsageError for a package without tasks."""
    listed = planted_in(settings["tasks"]).values()
    known = dict.fromkeys(task.package.name for task in listed)
    if wrong := [name for name in settings["package"] if name not in known]:
        raise UsageError(
            f"There are no tasks of the package {wrong[0]!r} here, only of {', '.join(known)}."
            f"{did_you_mean(wrong[0], known)} For other packages generate tasks: "
            "`envsuite swe build NAME -o FOLDER`, then tasks=FOLDER."
        )
    return [
        task
        for task in listed
        if (not settings["package"] or task.package.name in settings["package"])
        and settings["split"] in ("all", task.package.split)
        and settings["bugs"] in (0, len(task.bugs))
        and settings["files"] in (0, len(task.paths))
        and (not settings["size"] or packages.lines_of_code(task.package) <= settings["size"])
    ]


def _denied(entries: Sequence[str]) -> tuple[set[str], set[str]]:
    """Returns ids, and the ids in files among `given`: one per line, reasons after `#` (written by
    `envsuite check --gold`).
    """
    named: set[str] = set()
    from_files: set[str] = set()
    for entry in entries:
        file = Path(entry).expanduser()
        if file.is_file():
            try:
                lines = file.read_text().splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise DataError(f"The list of denied instances {entry} cannot be read: {error}.") from None
            from_files |= {line.partition("#")[0].strip() for line in lines}
        elif "/" in entry:
            raise DataError(f"The list of denied instances {entry} does not exist: name ids, or a file of ids.")
        else:
            named.add(entry)
    return named, from_files


def _content(record: Any) -> str:
    return hashlib.sha256(json.dumps(record.plain(), sort_keys=True, default=str).encode()).hexdigest()
