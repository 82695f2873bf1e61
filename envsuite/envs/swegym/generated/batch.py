"""Batch building of tasks: many packages, one after another, with a line per package in `jobs.jsonl`.

A package that cannot be used does not stop the others: its line has the reason. A repeated call skips
packages with a line, and retries those whose time was up.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from envsuite.cache import write_atomically
from envsuite.envs.swegym.generated import build, packages, tasks
from envsuite.errors import DataError, EngineFailure, UsageError

JOBS = "jobs.jsonl"


@dataclass
class BuildJob:
    """Line of the list of jobs."""

    package: str
    """as requested"""
    version: str = ""
    licence: str = ""
    tried: int = 0
    """candidates decided, in this and earlier runs"""
    tasks: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    """candidates by the reason for rejecting them"""
    error: str = ""
    """why the package gave no task; '' if it gave some"""
    finished: bool = True
    """False if the time was up before all rounds were full"""
    seconds: float = 0.0
    workers: int = 1

    @property
    def rate(self) -> float:
        """Tasks per core hour."""
        return self.tasks * 3600 / (self.seconds * self.workers) if self.seconds else 0.0


def build_all(
    folder: Path,
    names: Sequence[str],
    workers: int,
    seconds: float,
    rounds: int,
    show: Callable[[BuildJob], None] = lambda job: None,
) -> list[BuildJob]:
    """Builds tasks of packages in `folder` and writes its list of tasks. Returns the jobs of `names`.

    `seconds` are per package. `show` is called with each new job. Raises EngineFailure if no
    sandbox works.
    """
    folder.mkdir(parents=True, exist_ok=True)
    jobs = {job.package: job for job in read_jobs(folder)}
    for name in dict.fromkeys(names):
        earlier = jobs.get(name)
        if earlier is not None and earlier.finished:
            continue
        job = _build_one(folder, name, workers, seconds, rounds, earlier.seconds if earlier else 0.0)
        jobs[name] = job
        lines = "".join(json.dumps(asdict(each)) + "\n" for each in jobs.values())
        write_atomically(folder / JOBS, lines)
        show(job)
    if (folder / packages.DESCRIBED).exists():
        build.write(folder, packages.described(folder).values(), rounds, folder / tasks.MANIFEST.name)
    return [jobs[name] for name in dict.fromkeys(names)]


def read_jobs(folder: Path) -> list[BuildJob]:
    """Returns the jobs in a folder. Raises DataError naming a damaged line."""
    path = folder / JOBS
    jobs = []
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else (), 1):
        try:
            jobs.append(BuildJob(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}, line {number}: not a job ({error}).") from None
    return jobs


def _build_one(folder: Path, name: str, workers: int, seconds: float, rounds: int, spent: float) -> BuildJob:
    job, began = BuildJob(name, workers=workers), time.monotonic()
    try:
        package = build.admit(folder, name)
        job.version, job.licence = package.version, package.licence
        journal = build.build(folder, [package], workers, seconds, rounds)[package.name]
        job.tried, job.tasks = len(journal.rows), len(journal.listed(rounds))
        job.rejected = dict(Counter(row["no"] for row in journal.rows if "no" in row).most_common())
        if unconfirmed := sum(not same for same in journal.confirmed.values()):
            job.rejected["not confirmed by the complete suite"] = unconfirmed
        job.finished = time.monotonic() - began < seconds
        job.error = "" if job.tasks else build.why_empty(journal, seconds)
    except (DataError, UsageError, EngineFailure) as error:
        if isinstance(error, EngineFailure):  # a later run may have more luck
            job.finished = False
        job.error = str(error)
    job.seconds = round(spent + time.monotonic() - began, 1)
    return job
