"""Verification of a stranger's run folder or leaderboard, `envsuite replay --sandbox`.

A program in a sandbox (`inside`) reads, replays and renders the folder. Records whose commands are programs (SWE-Gym,
DataSciCoding) are replayed in this process, and only on request.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import envsuite
from envsuite import sandbox
from envsuite.errors import DataError, EngineFailure, UsageError
from envsuite.installed import version
from envsuite.reading import parse_json
from envsuite.sandbox import drivers
from envsuite.sandbox.protocol import Fate, Limits, Result, Spec
from envsuite.types import knobs_json
from harness import records
from harness.provenance import certificates, inside, replay
from harness.suites import leaderboards

PROGRAM = Path(inside.__file__)
DISTRIBUTIONS = (
    "numpy", "gymnasium", "rich", "filelock", "platformdirs", "jinja2", "httpx", "minigrid", "textworld", "alfworld",
    "pillow", "scikit-learn", "pandas",
)  # fmt: skip
"""packages that replays and reports use, as far as they are installed here"""
DATA = ("ALFWORLD_DATA",)
"""environment variables that name folders of games, which the sandbox may read"""

Findings = dict[str, Any]
"""result of `inside.examine`: entries, differences, differ, rendered_bytes"""
Counter = Callable[[str, int], Callable[[int], None]]
"""gets a title and a total; returns a function that shows how many are done"""


def verify(
    folder: Path, output: Path | None, driver: str, seconds: float, outside: bool, counter: Counter
) -> tuple[Findings, Path | None]:
    """Replays and renders a run folder or leaderboard in a sandbox, and writes a certificate if nothing differs.

    Returns the findings and the certificate's path; None if something differs. `outside` replays records whose
    commands are programs in this process, each program in its own sandbox. Raises DataError, EngineFailure, UsageError.
    """
    if not seconds > 0:
        raise UsageError(f"--seconds must be above 0, not {seconds:g}.")
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder: name a run folder or a leaderboard.")
    if not records.results_file(folder).exists():
        raise UsageError(
            f"{folder} has no results.jsonl: name one run folder, RUNS/TASK--MODEL/RUN_ID, or a leaderboard."
        )
    digests = certificates.file_digests(folder)
    findings, driver = _examine(folder, driver, seconds, outside)
    tasks = {entry["task"] for entry in findings["entries"]}
    programs = set(filter(replay.runs_programs, tasks)) if outside else set()
    if programs:
        replay_outside(folder, findings, programs, counter)
    if certificates.file_digests(folder) != digests:
        raise DataError(f"{folder} changed while it was verified: verify it again when nothing writes to it.")
    findings["records"] = sum(entry["records"] for entry in findings["entries"])
    complete = all(entry["replayed"] == entry["records"] for entry in findings["entries"])
    if findings["differ"] or not findings["records"] or not complete:
        return findings, None
    output = output or folder / certificates.NAME
    certificates.write(
        output,
        {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "envsuite": envsuite.__version__,
            "python": platform.python_version(),
            "sandbox": driver,
            "replayed_outside": sorted(programs),
            "entries": findings["entries"],
            "rendered_bytes": findings["rendered_bytes"],
            "not_verified": list(certificates.NOT_VERIFIED),
            "sha256": certificates.digest_of_files(digests),
            "files": digests,
        },
    )
    return findings, output


def _examine(folder: Path, driver: str, seconds: float, outside: bool) -> tuple[Findings, str]:
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


def replay_outside(folder: Path, findings: Findings, tasks: set[str], counter: Counter) -> None:
    """Replays the records of some tasks in this process and adds the result to `findings`.

    The environments run the records' programs in sandboxes. Raises DataError, EngineFailure.
    """
    title = f"{folder}: {', '.join(sorted(tasks))}, outside of the sandbox"
    show = counter(title, sum(entry["records"] for entry in findings["entries"] if entry["task"] in tasks))
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
