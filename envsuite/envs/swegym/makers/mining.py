"""Mining of packages: a journal with one line per pair of releases, so that an interrupted run loses at most
the pairs in hand.

`mine` searches packages in parallel and resumes from the journal in its folder. `records` returns the
instances of a journal, `yields` its table.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from threading import Event, Lock
from typing import Any

from envsuite import reading
from envsuite.cache import write_atomically
from envsuite.envs.swegym.judge import suite
from envsuite.envs.swegym.makers.releases import Hopeless, Release, ReleasePair, archives_of, check_licence, obtain
from envsuite.envs.swegym.makers.search import Search
from envsuite.envs.swegym.makers.verification import CandidateRejected, verify
from envsuite.envs.swegym.published.archives import IndexFailure
from envsuite.errors import DataError, EngineFailure
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Pool

JOURNAL = "journal.jsonl"
RECORDS = "records.jsonl"
FORMAT = 2
"""version of the miner; a journal of another version is not continued"""
HOPELESS = 3
"""pairs of which no test runs, after which the package is given up"""


@dataclass
class PairResult:
    """Line of the journal: what became of one pair of releases, or, with `new` empty, of a package."""

    package: str
    old: str = ""
    new: str = ""
    licence: str = ""
    reason: str = ""
    """why there are no candidates at all; '' if there are"""
    repaired: int = 0
    """tests that fail on the old code and pass on the new one"""
    candidates: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    format: int = FORMAT
    lasting: bool = True
    """False if the next run tries again"""


Show = Callable[[PairResult], None]


class MiningJournal:
    """The results in a folder. Every result is appended as one line, and written to disk at once."""

    def __init__(self, folder: Path) -> None:
        """Raises DataError if the folder's journal is damaged before its last line."""
        self.path, self._lock = folder / JOURNAL, Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self.results: list[PairResult] = []
        for number, line in reading.resume_lines(self.path) if self.path.exists() else ():
            try:
                result = PairResult(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise DataError(f"{self.path}, line {number}: not a result of mining ({error}).") from None
            if result.format != FORMAT:
                raise DataError(f"{self.path} is of version {result.format}, not {FORMAT}: mine into a new folder.")
            self.results.append(result)
        self.done = {(result.package, result.old, result.new) for result in self.results}

    def add(self, result: PairResult) -> None:
        line = json.dumps(asdict(result), ensure_ascii=False, separators=(",", ":")) + "\n"
        with self._lock, self.path.open("ab") as file:
            file.write(line.encode(errors="replace"))
            file.flush()
            self.results.append(result)
            self.done.add((result.package, result.old, result.new))

    def count(self, package: str) -> int:
        return sum(len(result.records) for result in self.results if result.package == package)


@dataclass(frozen=True)
class MiningPlan:
    """Order to mine the latest `releases` of each package, until it gives `most` instances or the time is up."""

    packages: Sequence[str]
    releases: int = 10
    most: int = 12
    workers: int = 1
    archives: Path | None = None
    """folder of source archives, instead of the package index"""
    seconds: float = float("inf")
    suite_seconds: float = 30.0
    """that one run of a package's tests may take"""


def mine(plan: MiningPlan, folder: Path, show: Show = lambda result: None) -> MiningJournal:
    """Mines packages in parallel, resumes an earlier run in `folder`, and writes its records.

    `show` is called with each new result. A pair on which a sandbox or the index fails is not recorded,
    and the next run tries it again. Raises EngineFailure if no sandbox works.
    """
    journal, driver, end = MiningJournal(folder), drivers.choose(), time.monotonic() + plan.seconds
    stopped = Event()

    def is_over() -> bool:
        return stopped.is_set() or time.monotonic() >= end

    def mine_package(name: str) -> None:
        if (name, "", "") in journal.done or is_over():
            return
        for result in _PackageMiner(name, plan, journal, driver, stopped).results(is_over):
            if stopped.is_set():  # the signal may have ended programs that the pair needed
                return
            if result.lasting:
                journal.add(result)
            show(result)

    with ThreadPoolExecutor(plan.workers) as threads:
        try:
            for _ in threads.map(mine_package, dict.fromkeys(plan.packages)):
                pass  # raises the errors of workers
        finally:
            stopped.set()  # after Ctrl-C or an error, the workers end with the next run of tests
            threads.shutdown(cancel_futures=True)
            write_records(journal, folder / RECORDS)
    return journal


class _PackageMiner:
    """Mines the pairs of one package, newest first."""

    def __init__(self, name: str, plan: MiningPlan, journal: MiningJournal, driver: str, stopped: Event) -> None:
        self.name, self.plan, self.journal, self.driver, self.stopped = name, plan, journal, driver, stopped
        self.pools: dict[tuple[str, ...], list[Pool]] = {}
        self.newer: tuple[str | Path, Release] | None = None
        """the release that was read last, which is the newer one of the next pair"""
        self.hopeless = 0
        """pairs of which no test can run"""

    def results(self, is_over: Callable[[], bool]) -> Iterator[PairResult]:
        """Yields the results of pairs; `lasting` is False where the next run tries again."""
        try:
            sources = archives_of(self.name, self.plan.archives, self.plan.releases + 1)
        except DataError as error:
            yield PairResult(self.name, reason=str(error), lasting=not isinstance(error, IndexFailure))
            return
        try:
            for old, new in reversed(list(pairwise(sources))):
                if is_over() or self.journal.count(self.name) >= self.plan.most:
                    return
                if (self.name, _version(old), _version(new)) not in self.journal.done:
                    yield self._mine(old, new)
                if self.hopeless >= HOPELESS:
                    yield PairResult(self.name, reason=f"given up after {HOPELESS} pairs of which no test runs")
                    return
        finally:
            for pool in (pool for group in self.pools.values() for pool in group):
                pool.close()

    def _mine(self, old: str | Path, new: str | Path) -> PairResult:
        """Returns the result of one pair."""
        began = time.monotonic()
        result = PairResult(self.name, _version(old), _version(new))
        try:
            pair = self._read(old, new)
            result.licence = pair.old.package.licence
            check_licence(result.licence, pair.old.package.title)
            pair.check()
            needs = tuple(sorted({*pair.old.package.needs, *pair.new.package.needs}))
            if needs not in self.pools:
                self.pools[needs] = suite.pools(self.driver, 1, needs)[:2]
            search = Search(pair, self.pools[needs], self.plan.suite_seconds, self.stopped.is_set)
            _mine_pair(search, self.driver, self.plan.most - self.journal.count(self.name), result)
        except (DataError, EngineFailure) as error:
            result.reason = str(error)
            result.lasting = not isinstance(error, (IndexFailure, EngineFailure))
            self.hopeless += isinstance(error, Hopeless)
        result.seconds = round(time.monotonic() - began, 1)
        return result

    def _read(self, old: str | Path, new: str | Path) -> ReleasePair:
        known, self.newer = self.newer, None
        release = known[1] if known and known[0] == new else obtain(new)
        self.newer = old, obtain(old)
        return ReleasePair(self.newer[1], release)


def _mine_pair(search: Search, driver: str, most: int, result: PairResult) -> None:
    """Fills in a pair's result. Raises DataError if it has no candidates."""
    rejected: Counter[str] = Counter()
    try:
        for candidate in search.candidates():
            if len(result.records) >= most:
                break
            result.candidates += 1
            try:
                result.records.append(verify(candidate, driver))
            except (CandidateRejected, DataError) as reason:
                rejected[str(reason)[:120]] += 1
    finally:
        result.repaired = len(search.repaired)
        result.rejected = dict(rejected + search.rejected)


def _version(source: str | Path) -> str:
    if isinstance(source, Path):
        return source.name.removesuffix(".tar.gz").rpartition("-")[2]
    return source.partition("==")[2]


def records(results: Iterable[PairResult]) -> list[dict[str, Any]]:
    """Returns the records of results, without two of one id or of one gold patch."""
    unique: dict[str, dict[str, Any]] = {}
    patches: set[tuple[str, str]] = set()
    for result in results:
        for record in result.records:
            changed = "\n".join(line for line in record["patch"].splitlines() if line[:1] in "+-")
            if record["instance_id"] not in unique and (result.package, changed) not in patches:
                unique[record["instance_id"]] = record
                patches.add((result.package, changed))
    return sorted(unique.values(), key=lambda record: str(record["instance_id"]))


def write_records(journal: MiningJournal, path: Path) -> None:
    """Writes the records of a journal as JSON Lines."""
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records(journal.results)]
    write_atomically(path, "".join(lines).encode(errors="replace"))


def yields(results: Sequence[PairResult]) -> list[dict[str, Any]]:
    """Returns the yield of each package: pairs, candidates, kept instances, reasons of rejection and seconds."""
    table = []
    for name in dict.fromkeys(result.package for result in results):
        of_package = [result for result in results if result.package == name]
        reasons: Counter[str] = Counter()
        for result in of_package:
            reasons.update(result.rejected)
            if result.reason:
                reasons[result.reason] += 1
        table.append(
            {
                "package": name,
                "licence": next((result.licence for result in of_package if result.licence), ""),
                "pairs": sum(bool(result.new) for result in of_package),
                "repaired": sum(result.repaired for result in of_package),
                "candidates": sum(result.candidates for result in of_package),
                "kept": len(records(of_package)),
                "seconds": round(sum(result.seconds for result in of_package), 1),
                "reasons": dict(reasons.most_common()),
            }
        )
    return table
