"""Planting of bugs in packages, one after another, with a line per package in `jobs.jsonl`.

The folder is a data set: it has the archives, `packages.json` and `manifest.jsonl.gz`. Decisions are
logged as they are made, so that an interrupted run continues where it stopped. A package that cannot be
used does not stop the others: its line has the reason. Tasks of one, two and three bugs take turns. The
tasks of the first N rounds depend only on the seed, not on time, workers or interruptions.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from envsuite.cache import write_atomically
from envsuite.envs.swegym.judge import suite
from envsuite.envs.swegym.makers import generator, sdists
from envsuite.envs.swegym.makers.sdists import Layout
from envsuite.envs.swegym.planted import packages, tasks
from envsuite.errors import DataError, EngineFailure, UsageError
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Pool

JOBS = "jobs.jsonl"
GUESSED = Layout()
SEED = 0
ROUND = {1: 12, 2: 3, 3: 1}
"""number of tasks per package and round, by number of bugs"""
COMPOUND_SOURCES = 36
"""number of one-bug tasks from which compounds are made"""


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
    layout: Layout = GUESSED,
) -> list[BuildJob]:
    """Builds tasks of packages in `folder` and writes its list of tasks. Returns the jobs of `names`.

    `seconds` are per package. `show` is called with each new job. Raises EngineFailure if no sandbox works.
    """
    folder.mkdir(parents=True, exist_ok=True)
    jobs = {job.package: job for job in read_jobs(folder)}
    for name in dict.fromkeys(names):
        earlier = jobs.get(name)
        if earlier is not None and earlier.finished:
            continue
        job = _build_one(folder, BuildJob(name, workers=workers), seconds, rounds, layout)
        job.seconds = round(job.seconds + (earlier.seconds if earlier else 0.0), 1)
        jobs[name] = job
        write_atomically(folder / JOBS, "".join(json.dumps(asdict(each)) + "\n" for each in jobs.values()))
        show(job)
    if (folder / packages.DESCRIBED).exists():
        _write(folder, rounds)
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


def _build_one(folder: Path, job: BuildJob, seconds: float, rounds: int, layout: Layout) -> BuildJob:
    began = time.monotonic()
    try:
        package = admit(folder, job.package, layout)
        job.version, job.licence = package.version, package.licence
        log = build(folder, package, job.workers, seconds, rounds)
        job.tried, job.tasks = len(log.rows), len(log.listed(rounds))
        job.rejected = dict(log.reasons.most_common())
        job.finished = time.monotonic() - began < seconds
        if not job.tasks:
            counted = ", ".join(f"{reason} {count}" for reason, count in job.rejected.items())
            job.error = f"{package.title} has no task: {counted or 'no candidate was decided'}."
    except (DataError, UsageError, EngineFailure) as error:
        if isinstance(error, EngineFailure):  # a later run may have more luck
            job.finished = False
        job.error = str(error)
    job.seconds = time.monotonic() - began
    return job


def admit(folder: Path, name: str, layout: Layout = GUESSED) -> packages.Package:
    """Adds a package and its archive to `folder`: one already there, a shipped one, or one that
    `sdists.obtain` finds.

    Raises DataError, MissingExtra, UsageError.
    """
    known = packages.described(folder) if (folder / packages.DESCRIBED).exists() else {}
    for package in known.values():
        if name in (package.name, f"{package.name}=={package.version}") and layout == GUESSED:
            return package
    folder.mkdir(parents=True, exist_ok=True)
    if shipped := packages.shipped().get(name):
        added = replace(shipped, folder=folder)
        shutil.copyfile(shipped.archive, added.archive)
    else:
        added = sdists.obtain(name, folder, layout)
    if known.get(added.name, added) != added and (folder / f"{added.name}.baseline.json").exists():
        raise UsageError(
            f"{folder} holds tasks of {known[added.name].title} made with other settings: use another folder."
        )
    packages.describe(folder, {**known, added.name: added}.values())
    return added


def build(folder: Path, package: packages.Package, workers: int, seconds: float, rounds: int) -> BuildLog:
    """Tries candidates until `rounds` rounds are full, all are decided, or the time is up."""
    until = time.monotonic() + seconds
    pools = suite.pools(drivers.choose(), workers, package.needs)
    threads = ThreadPoolExecutor(workers)

    try:
        base = _stored(folder, package) or _measured(folder, package, pools)
        log = BuildLog(folder, base)

        def decide(bugs: Sequence[tasks.PlantedBug]) -> tasks.PlantedTask | str:
            try:
                task = generator.verify(pools, base, bugs)
            except generator.Rejected as reason:
                return str(reason)
            return task if generator.confirmed(pools[0], base, task) else "not confirmed by the complete suite"

        for number in range(1, rounds + 1):
            for kinds in ([1], [bugs for bugs in ROUND if bugs > 1]):
                waiting = {bugs: log.undecided(bugs, number) for bugs in kinds}
                while time.monotonic() < until:
                    batch = [each for bugs in kinds for each in islice(waiting[bugs], log.lacking(bugs, number))]
                    if not batch:
                        break
                    for candidate, decision in zip(batch, threads.map(decide, batch), strict=True):
                        log.note(candidate, decision)
        return log
    finally:
        threads.shutdown(cancel_futures=True)
        for pool in pools:
            pool.close()


def _stored(folder: Path, package: packages.Package) -> generator.Baseline | None:
    """Returns the baseline that an earlier build measured; None without one."""
    path = folder / f"{package.name}.baseline.json"
    return generator.Baseline(package, **json.loads(path.read_text())) if path.exists() else None


def _measured(folder: Path, package: packages.Package, pools: Sequence[Pool]) -> generator.Baseline:
    """Measures the baseline of a package and stores it. Raises DataError."""
    base = generator.baseline(pools, package)
    fields = {key: getattr(base, key) for key in ("tests", "lines", "seconds")}
    write_atomically(folder / f"{package.name}.baseline.json", json.dumps(fields))
    return base


class BuildLog:
    """Decisions about the candidates of one package, one line each."""

    def __init__(self, folder: Path, base: generator.Baseline) -> None:
        self.base, package = base, base.package
        self.path = folder / f"{package.name}.jsonl"
        self.rows = [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []
        self.decided = {row["digest"] for row in self.rows}
        self.tasks: dict[int, list[tasks.PlantedTask]] = {bugs: [] for bugs in ROUND}
        for row in self.rows:
            if "task" in row:
                task = tasks.read(row["task"], package, self.base.tests)
                self.tasks[len(task.bugs)].append(task)

    def note(self, bugs: Sequence[tasks.PlantedBug], decision: tasks.PlantedTask | str) -> None:
        """Records the decision on a candidate: its task, or the reason for rejecting it."""
        row: dict[str, Any] = {"digest": tasks.digest(bugs), "operators": [bug.operator for bug in bugs]}
        if isinstance(decision, str):
            row["no"] = decision
        else:
            row["task"] = tasks.row(decision, self.base.tests)
            self.tasks[len(bugs)].append(decision)
        self.decided.add(row["digest"])
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    @property
    def reasons(self) -> Counter[str]:
        """Numbers of rejected candidates by reason."""
        return Counter(row["no"] for row in self.rows if "no" in row)

    def lacking(self, bugs: int, rounds: int) -> int:
        """Returns how many tasks of a number of bugs the first `rounds` rounds lack."""
        return max(0, rounds * ROUND[bugs] - len(self.tasks[bugs]))

    @cached_property
    def _singles(self) -> list[list[tasks.PlantedBug]]:
        return list(generator.singles(self.base, SEED))

    def undecided(self, bugs: int, rounds: int) -> Iterator[list[tasks.PlantedBug]]:
        """Yields a round's candidates without a decision.

        Compounds use the latest one-bug tasks at the end of this round.
        """
        sources = self.tasks[1][: rounds * ROUND[1]][-COMPOUND_SOURCES:]
        seed = f"{SEED}/{rounds}"
        candidates = self._singles if bugs == 1 else generator.compounds(self.base, sources, bugs, seed)
        return (candidate for candidate in candidates if tasks.digest(candidate) not in self.decided)

    def listed(self, rounds: int) -> list[tasks.PlantedTask]:
        """Returns the tasks of the first `rounds` rounds."""
        built = [task for bugs, of_kind in self.tasks.items() for task in of_kind[: rounds * ROUND[bugs]]]
        return [task for task in built if task.fail_to_pass]  # a bug may break only tests that the package leaves out


def _write(folder: Path, rounds: int) -> None:
    """Writes the list of tasks: the first `rounds` rounds in a folder's logs."""
    listed, tests = [], {}
    for package in packages.described(folder).values():
        if base := _stored(folder, package):
            tests[package.name] = base.tests
            listed += BuildLog(folder, base).listed(rounds)
    tasks.write(listed, tests, folder / tasks.MANIFEST)
