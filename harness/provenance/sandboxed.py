"""Verification of a stranger's run folder or leaderboard: a program in a sandbox reads, replays and renders it.

Records whose commands are programs (SWE-Gym, DataSciCoding) are replayed in this process, and only on request.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import envsuite
from envsuite import sandbox
from envsuite.errors import DataError, EngineFailure
from envsuite.installed import version
from envsuite.reading import parse_json
from envsuite.sandbox import drivers
from envsuite.sandbox.protocol import Fate, Limits, Result, Spec
from envsuite.types import knobs_json
from harness import records
from harness.provenance import inside, replay
from harness.suites import leaderboards

PROGRAM = Path(inside.__file__)
DISTRIBUTIONS = (
    "numpy", "gymnasium", "rich", "filelock", "platformdirs", "jinja2", "httpx", "minigrid", "textworld", "alfworld",
    "pillow", "scikit-learn", "pandas",
)  # fmt: skip
"""packages that replays and reports use; the sandbox lacks what is not installed here"""
DATA = ("ALFWORLD_DATA",)
"""environment variables that name folders of games, which the sandbox may read"""

Findings = dict[str, Any]
"""result of `inside.examine`: entries, differences, differ, rendered_bytes"""


def examine(folder: Path, driver: str, seconds: float, outside: bool) -> tuple[Findings, str]:
    """Returns the findings of `inside` about a folder, and the sandbox's driver.

    With `outside`, records whose commands are programs are left for `replay_outside`; without it they raise DataError.
    Raises DataError, EngineFailure, UsageError.
    """
    root = Path(envsuite.__file__).resolve().parents[1]
    packages = [root / "envsuite", root / "harness"]
    data = {name: os.environ[name] for name in DATA if Path(os.environ.get(name, "")).is_absolute()}
    shared = [*packages, *(Path(path) for path in data.values() if Path(path).is_dir())]
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    limits = Limits(
        seconds=seconds, memory_mb=4096, disk_mb=256 + 2 * (size >> 20), processes=128, files=1024, value_mb=8
    )
    driver = drivers.choose(driver)
    # A sandbox has its own /tmp and /dev/shm, so folders below them are mounted elsewhere. Landlock mounts nothing.
    mounts = {
        path: f"/shared/{number}/{path.name}"
        if driver != "landlock" and str(path).startswith(("/tmp/", "/dev/shm/"))
        else str(path)
        for number, path in enumerate(shared)
    }
    spec = Spec(
        program=PROGRAM,
        distributions=tuple(filter(version, DISTRIBUTIONS)),
        read_only=tuple(mounts.items()),
        workspace="/verified",
        limits=limits,
    )
    with sandbox.open(spec, driver) as session:
        session.copy_in(folder, "folder")
        inner = f"{session.workspace}/folder"
        job = {
            "packages": [mounts[path] for path in packages],
            "folder": inner,
            "environment": {name: mounts.get(Path(path), path) for name, path in data.items()},
            "outside": outside,
        }
        result = session.call(json.dumps(job).encode())
        driver = session.driver
    if result.fate is Fate.TIMEOUT:
        raise DataError(f"{folder} was not verified within {seconds:g} s: allow more with --seconds.")
    return _findings(folder, inner, result), driver


def _findings(folder: Path, inner: str, result: Result) -> Findings:
    """Returns the checked findings of the sandbox, which has read a stranger's files as `inner`."""
    if result.fate is not Fate.EXITED or result.exit_code:
        last = result.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise EngineFailure(f"The verification of {folder} ended early ({result.fate}): {''.join(last)[:300]}")
    try:
        findings: Findings = parse_json(result.value)
        if "error" in findings:
            raise DataError(str(findings["error"]).replace(inner, str(folder)))
        records.check_types(findings, {"entries": list, "differences": list, "differ": int, "rendered_bytes": int})
        for entry in findings["entries"]:
            records.check_types(entry, {"task": str, "model": str, "knobs": dict, "records": int, "replayed": int})
    except (ValueError, LookupError, TypeError) as error:
        raise EngineFailure(f"The sandbox returned no findings about {folder} ({type(error).__name__}).") from error
    return findings


def replay_outside(folder: Path, findings: Findings, tasks: set[str], show: Callable[[int], None]) -> None:
    """Replays the records of some tasks in this process and adds the result to `findings`.

    The environments run the records' programs in sandboxes. `show` is called with the number of episodes that have
    ended. Raises DataError, EngineFailure.
    """
    board = leaderboards.read(folder) if (folder / "metadata.json").exists() else None
    entries = {(entry["task"], knobs_json(entry["knobs"]), entry["model"]): entry for entry in findings["entries"]}
    file = records.results_file(folder)
    verdicts = replay.check(file, players=board.computed if board else (), only=tasks.__contains__)
    for number, verdict in enumerate(verdicts, 1):
        entry = None if verdict.difference else entries.get(leaderboards.entry_key(verdict.record))
        if entry is not None:
            entry["replayed"] += 1
        else:
            findings["differ"] += 1
            if len(findings["differences"]) < inside.MOST_DIFFERENCES:
                difference = verdict.difference or "the sandbox did not report this record"
                findings["differences"].append(f"{verdict.name}: {difference}")
        show(number)
