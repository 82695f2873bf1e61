"""Makes larger tasks: `python -m envsuite.envs.swegym.larger.build FOLDER [-p PACKAGE] [-s SECONDS]`.

Candidates of the built-in packages are verified like small bugs: the same tests fail in three runs
with different hash seeds. Each task is then graded by the judge, which runs the complete suite: the
gold patch must resolve it; with an empty line exactly the listed tests must fail; no change, and a
function that does nothing in place of a missing one, must not resolve it. Of a compound, every choice
of some bugs is fixed and the failing tests are run: one of them must fail still.

Decisions are logged in FOLDER as they are made, so that an interrupted run continues where it
stopped. `--write` updates the shipped list (`make swe-larger`).
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, islice
from pathlib import Path
from threading import Lock
from typing import Any

from envsuite.cache import write_atomically
from envsuite.envs.swegym.generated import generator, operators, packages, suite, tasks
from envsuite.envs.swegym.generated.generator import Site
from envsuite.envs.swegym.generated.tasks import GeneratedTask
from envsuite.envs.swegym.larger import candidates, features, issue, library
from envsuite.envs.swegym.larger.source import owned
from envsuite.envs.swegym.problems import Changes, GeneratedProblem
from envsuite.errors import EnvsuiteError
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Lease, Pool

SEED = 0
MOST = {"feature": 4, "refactoring": 4, "branch": 4, "compound": 4}
"""tasks per package, by kind"""
PER_FUNCTION = {"compound": 99, "branch": 2, "refactoring": 2, "feature": 1}
"""tasks per function, by kind"""
BATCH = 4
GRADE_SECONDS = 120.0


class LargerLog:
    """Decisions about one package: its baseline, and one line per candidate."""

    def __init__(self, folder: Path, package: packages.Package, driver: str, workers: int) -> None:
        self.driver, self.workers, self.lock = driver, workers, Lock()
        self.pools = suite.pools(driver, workers, package.needs)
        self.lease = Lease(suite.spec(package.needs), driver)  # keeps the judge warm between problems
        path = folder / f"{package.name}.baseline.json"
        if path.exists():
            self.base = generator.Baseline(package, **json.loads(path.read_text()))
        else:
            self.base = generator.baseline(self.pools, package)
            fields = {key: getattr(self.base, key) for key in ("tests", "lines", "hops", "seconds")}
            write_atomically(path, json.dumps(fields))
        self.path = folder / f"{package.name}.larger.jsonl"
        self.rows: list[dict[str, Any]] = read_rows(self.path)
        self.decided = {row["digest"] for row in self.rows}

    def close(self) -> None:
        """Releases the sandboxes."""
        self.lease.close()
        for pool in self.pools:
            pool.close()

    def fill(self, until: float) -> bool:
        """Decides candidates until every kind has its tasks; returns False if the time was up before."""
        with ThreadPoolExecutor(self.workers) as threads:
            return all(list(threads.map(lambda kind: self._fill_kind(kind, until), MOST)))

    def _fill_kind(self, kind: str, until: float) -> bool:
        parts: dict[str, Sequence[frozenset[str]]] = {}
        waiting = self._undecided(kind, parts)
        while (missing := MOST[kind] - sum("task" in row for row in self._of(kind))) > 0:
            if time.monotonic() >= until:
                return False
            batch = list(islice(waiting, min(BATCH, missing)))
            if not batch:
                break
            self._decide(kind, batch, candidates.chooser(self.base, kind, parts))
        return True

    def _of(self, kind: str) -> list[dict[str, Any]]:
        with self.lock:
            return [row for row in self.rows if row["kind"] == kind]

    def _undecided(self, kind: str, parts: dict[str, Sequence[frozenset[str]]]) -> Iterator[list[Site]]:
        bug_sets: Iterator[list[Site]]
        if kind == "compound":
            listed = list(candidates.compounds(self.base, SEED))
            parts.update({generator.name_of(bugs): tests for bugs, tests in listed})
            bug_sets = iter([bugs for bugs, _ in listed])
        else:
            bug_sets = ([site] for site in candidates.sites(self.base, kind, SEED))
        waiting: dict[str, tuple[str, ...]] = {}
        for bugs in bug_sets:
            name, functions = generator.name_of(bugs), tuple(bug.function for _, bug in bugs)
            made = [tuple(row["functions"]) for row in self._of(kind) if "task" in row]
            pending = [planned for digest, planned in waiting.items() if digest not in self.decided]
            if name not in self.decided and [*made, *pending].count(functions) < PER_FUNCTION[kind]:
                waiting[name] = functions
                yield bugs

    def _decide(self, kind: str, batch: Sequence[list[Site]], choose: generator.SymptomChoice) -> None:
        began = time.monotonic()
        decisions = generator.verify(self.pools, self.base, batch, choose)
        partial = partial_fixes(self.pools[1], self.base, [task for task in decisions if not isinstance(task, str)])
        shared = (time.monotonic() - began) / len(batch)
        for bugs, decision in zip(batch, decisions, strict=True):
            began, verdicts = time.monotonic(), {}
            if not isinstance(decision, str):
                verdicts = {**judged(decision, self.driver), **partial[decision.instance_id]}
                if wrong := [name for name, resolved in verdicts.items() if any(resolved) != (name == "gold patch")]:
                    decision = f"wrong verdict: {wrong[0]}"
            row: dict[str, Any] = {
                "digest": generator.name_of(bugs),
                "kind": kind,
                "operators": [bug.operator for _, bug in bugs],
                "functions": [bug.function for _, bug in bugs],
                "seconds": round(shared + time.monotonic() - began, 2),
                "verdicts": verdicts,
            }
            if isinstance(decision, str):
                row["no"] = decision
            else:
                row["task"] = tasks.row(decision, self.base.tests)
            with self.lock:
                self.decided.add(row["digest"])
                self.rows.append(row)
                with self.path.open("a") as file:
                    file.write(json.dumps(row) + "\n")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Returns the complete lines of a log."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def judged(task: GeneratedTask, driver: str) -> dict[str, list[bool]]:
    """Grades the submissions that a task must tell apart; returns by name whether each resolves it.

    An empty line counts as resolving the task if a listed test passes with it, or another one fails.
    """
    problem = GeneratedProblem(task, "nothing", False, driver)
    verdicts = {}
    try:
        for name, listed in submissions(task).items():
            reports = [problem.judge(changes, GRADE_SECONDS) for changes in listed]
            verdicts[name] = [report.resolved for report in reports]
            if name == "empty line":
                verdicts[name] = [
                    any((report.fault, report.fail_to_pass, report.pass_to_pass_broken)) for report in reports
                ]
    finally:
        problem.close()
    return verdicts


def partial_fixes(
    pool: Pool, base: generator.Baseline, compounds: Sequence[GeneratedTask]
) -> dict[str, dict[str, list[bool]]]:
    """Runs the failing tests of compounds with every choice of some, but not all, bugs fixed.

    Returns by id, under the name `partial fix`, whether they pass; nothing for a task of one bug.
    """
    original, variants, owners = packages.tree(base.package), [], []
    for task in compounds:
        for count in range(1, len(task.bugs)):
            for left in combinations(task.bugs, count):
                files = tasks.plant(original, left)
                variants.append(({path: files[path] for path in task.paths}, list(task.fail_to_pass)))
                owners.append(task)
    verdicts: dict[str, dict[str, list[bool]]] = {task.instance_id: {} for task in compounds}
    runs = suite.run_each(pool, base.package, original, variants, GRADE_SECONDS) if variants else []
    for task, run in zip(owners, runs, strict=True):
        passed = run.fate == "exited" and all(run.statuses.get(test) == "PASSED" for test in task.fail_to_pass)
        verdicts[task.instance_id].setdefault("partial fix", []).append(passed)
    return verdicts


def submissions(task: GeneratedTask) -> dict[str, list[Changes]]:
    """Returns the gold patch, and submissions that must not resolve a task, by name."""
    original, path = packages.tree(task.package), task.paths[0]

    def changes(files: dict[str, str]) -> Changes:
        return {path: files[path].encode() for path in task.paths if files[path] != task.files[path]}

    listed: dict[str, list[Changes]] = {
        "gold patch": [changes(original)],
        "no change": [{}],
        "empty line": [{path: f"{task.files[path]}\n".encode()}],
    }
    if library.kind_of(task.bugs) == "feature":
        (bug,) = task.bugs
        source = operators.SourceText(original[bug.path])
        for function, name, _, owner in owned(source.tree):
            if name == bug.function:
                (start, end, text), *_ = next(features.changes(source, function, owner))[2]
                stub = operators.apply(
                    original[path], [(start, end, text.replace("raise NotImplementedError", "pass"))]
                )
                listed["stub"] = [{path: stub.encode()}]
    return listed


def write(folder: Path, path: Path = library.MANIFEST) -> int:
    """Writes the list of the tasks in a folder's logs; returns its size in bytes."""
    listed: list[GeneratedTask] = []
    tests: dict[str, list[str]] = {}
    for package in packages.PACKAGES.values():
        rows = read_rows(folder / f"{package.name}.larger.jsonl")
        if rows:
            tests[package.name] = json.loads((folder / f"{package.name}.baseline.json").read_text())["tests"]
            listed += _distinct(
                [tasks.read(row["task"], package, tests[package.name]) for row in rows if "task" in row]
            )
    tasks.write([task for task in listed if task.fail_to_pass and _told(task)], tests, path)
    return path.stat().st_size


def _distinct(listed: Sequence[GeneratedTask]) -> list[GeneratedTask]:
    """Returns the tasks without those beyond `PER_FUNCTION`."""
    counts = Counter[tuple[str, ...]]()
    kept = []
    for task in listed:
        kind = library.kind_of(task.bugs)
        place = (kind, *(bug.function for bug in task.bugs))
        counts[place] += 1
        if counts[place] <= PER_FUNCTION[kind]:
            kept.append(task)
    return kept


def _told(task: GeneratedTask) -> bool:
    """Returns True if the issue shows a telling check of each bug."""
    telling = sum(issue.tells(issue.explain(task, symptom)) for symptom in task.symptoms)
    return telling >= len(task.bugs)


def main() -> None:
    """Parses the command line and runs the build."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-p", "--package", action="append", choices=list(packages.PACKAGES), help="default: all")
    parser.add_argument("-j", "--workers", type=int, default=2)
    parser.add_argument(
        "-s", "--seconds", type=float, default=float("inf"), help="stop after this time; the next run continues"
    )
    parser.add_argument("--write", action="store_true", help="update the shipped list from this folder")
    args = parser.parse_args()
    until = time.monotonic() + args.seconds
    args.folder.mkdir(parents=True, exist_ok=True)
    try:
        for name in args.package or packages.PACKAGES:
            if time.monotonic() >= until:
                break
            log = LargerLog(args.folder, packages.PACKAGES[name], drivers.choose(), args.workers)
            try:
                finished = log.fill(until)
            finally:
                log.close()
            counts = Counter(row.get("no", row["kind"]) for row in log.rows)
            print(f"{name}: {dict(counts.most_common())}{'' if finished else ' (not finished)'}", flush=True)
    except EnvsuiteError as error:
        parser.exit(2, f"error: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, "stopped; run the same command again to continue\n")
    if args.write:
        print(f"{library.MANIFEST} takes {write(args.folder)} bytes.")


if __name__ == "__main__":
    main()
