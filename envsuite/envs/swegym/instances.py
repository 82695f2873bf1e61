"""Which instances a task plays: those of a list that fit its knobs, in a fixed order."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from envsuite.envs.swegym import packages, published, tasks
from envsuite.errors import DataError, MissingData, UsageError, did_you_mean
from envsuite.panels import make_panel
from envsuite.types import Panel


def panel(**settings: Any) -> Panel:
    """The instances that fit a task's settings, in a fixed order. Raises DataError, UsageError."""
    only = set(settings["instances"])
    named, deny = _denied(settings["deny"])
    if settings["records"] and settings["tasks"]:
        raise UsageError("Published records and generated tasks are played one at a time: set `records` or `tasks`.")
    if settings["published"] and not settings["records"]:
        raise MissingData(
            "SWEGym-records plays published records, and none are named: --set records=FILE (.jsonl, .json, .parquet, a folder of "
            "instances, or a data set on the hub)."
        )
    if settings["records"]:
        known = published_in(settings["records"], settings["data_split"])
        rows = [(record.repo, name, _content(record)) for name, (record, _) in known.items()]
        name = f"swegym/{Path(settings['records']).name}"
    else:
        found = _fitting(settings)
        rows = [(task.package.name, task.instance_id, task.instance_id) for task in found]
        name = "/".join(["swegym", *Path(settings["tasks"]).parts[-1:], settings["split"]])
    if missing := (only | named) - {row[1] for row in rows}:
        raise UsageError(
            f"There is no instance {min(missing)!r} among these {len(rows)}, nor a file of that name: look at the knobs, "
            "split first."
        )
    return make_panel(name, [row for row in rows if (not only or row[1] in only) and row[1] not in named | deny])


def why_none(settings: dict[str, Any]) -> str:
    """What to do where nothing fits."""
    splits = {task.package.split for task in generated_in(settings["tasks"]).values()}
    if settings["tasks"] and settings["split"] not in ("all", *splits):
        return f"the packages in {settings['tasks']} are to {' and '.join(sorted(splits))} on: set split=all."
    return "allow more packages, another number of bugs or fewer hops."


def facts(settings: dict[str, Any]) -> dict[str, Any]:
    """What a difficulty card says of the instances."""
    if settings["records"] or settings["published"]:
        return {}
    found = _fitting(settings)

    def spread(values: list[int]) -> dict[str, float]:
        return {"median": statistics.median(values), "max": max(values)}

    chosen = sorted({task.package for task in found}, key=lambda package: package.name)
    return {
        "instances": len(found),
        "packages": {package.name: package.licence for package in chosen},
        "package_lines": spread([packages.lines_of_code(package) for package in chosen]),
        "tests": spread([len(task.fail_to_pass) + len(task.pass_to_pass) for task in found]),
        "fail_to_pass": spread([len(task.fail_to_pass) for task in found]),
        "gold_patch_lines": spread([task.patch_lines for task in found]),
        "gold_patch_files": spread([len(task.paths) for task in found]),
        "hops": spread([task.hops for task in found]),
    }


@lru_cache(maxsize=4)
def generated_in(folder: str) -> dict[str, tasks.Generated]:
    """The generated tasks in a folder, or for '' those that are shipped, by id. Raises DataError."""
    return {task.instance_id: task for task in tasks.manifest(Path(folder).expanduser() if folder else None)}


@lru_cache(maxsize=4)
def published_in(source: str, split: str = "") -> dict[str, Any]:
    """(record, recipe) of each published instance of a source, by id. Raises DataError."""
    return published.find(source, split)


def _fitting(settings: dict[str, Any]) -> list[tasks.Generated]:
    """The generated tasks that fit. Raises UsageError for a package that none is of."""
    listed = generated_in(settings["tasks"]).values()
    known = dict.fromkeys(task.package.name for task in listed)
    if wrong := [name for name in settings["package"] if name not in known]:
        raise UsageError(
            f"There are no tasks of the package {wrong[0]!r} here, but of {', '.join(known)}.{did_you_mean(wrong[0], known)} "
            "For another one make them: `python -m envsuite.envs.swegym.build FOLDER -p NAME`, then tasks=FOLDER."
        )
    return [task for task in listed if _fits(task, settings)]


def _fits(task: tasks.Generated, settings: dict[str, Any]) -> bool:
    return (
        (not settings["package"] or task.package.name in settings["package"])
        and settings["split"] in ("all", task.package.split)
        and settings["bugs"] in (0, len(task.bugs))
        and settings["files"] in (0, len(task.paths))
        and task.hops >= settings["hops"]
        and (not settings["size"] or packages.lines_of_code(task.package) <= settings["size"])
    )


def _denied(given: Sequence[str]) -> tuple[set[str], set[str]]:
    """Ids, and those in the files named among them: an id a line, a reason after `#` (`envsuite-check --gold` writes it)."""
    named: set[str] = set()
    found: set[str] = set()
    for word in given:
        file = Path(word).expanduser()
        if file.is_file():
            try:
                lines = file.read_text().splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise DataError(f"The list of denied instances {word} cannot be read: {error}.") from None
            found |= {line.partition("#")[0].strip() for line in lines}
        elif "/" in word:
            raise DataError(f"The list of denied instances {word} does not exist: name ids, or a file of ids.")
        else:
            named.add(word)
    return named, found


def _content(record: Any) -> str:
    return hashlib.sha256(json.dumps(record.plain(), sort_keys=True, default=str).encode()).hexdigest()
