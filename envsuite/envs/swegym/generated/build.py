"""Generates tasks: `python -m envsuite.envs.swegym.generated.build FOLDER [-p PACKAGE]`.

PACKAGE is a built-in package, NAME or NAME==VERSION of the package index, or the path of a source
archive (.tar.gz). Use the result with `--set tasks=FOLDER`: it holds the archives, `packages.json`
and `manifest.jsonl.gz`. Without -p all built-in packages are used, and `--write` updates the
shipped list from theirs (`make swe-manifest`).

Decisions are logged in FOLDER as they are made, so that an interrupted run continues where it
stopped. Packages take turns, and so do tasks of one, two and three bugs. The tasks of the first N
rounds depend only on the seed, not on time, workers or interruptions.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

from envsuite.cache import write_atomically
from envsuite.envs.swegym.generated import generator, packages, sdists, suite, tasks
from envsuite.errors import EnvsuiteError, UsageError
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Pool

SEED = 0
ROUND = {1: 12, 2: 3, 3: 1}
"""number of tasks per package and round, by number of bugs"""
ROUNDS = 9
COMPOUND_SOURCES = 36
"""number of one-bug tasks from which compounds are made"""


class BuildLog:
    """Decisions about one package: its baseline, and one line per candidate."""

    def __init__(self, folder: Path, pools: Sequence[Pool], package: packages.Package) -> None:
        self.pools, self.lock = pools, Lock()
        name = package.name
        path = folder / f"{name}.baseline.json"
        if path.exists():
            fields = json.loads(path.read_text())
            self.base = generator.Baseline(package, **fields)
        else:
            self.base = generator.baseline(pools, package)
            fields = {key: getattr(self.base, key) for key in ("tests", "lines", "hops", "seconds")}
            write_atomically(path, json.dumps(fields))
        self.path = folder / f"{name}.jsonl"
        self.rows = [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []
        self.initial_rows = len(self.rows)
        self.decided = {row["digest"] for row in self.rows}
        self.full_suite_path = folder / f"{name}.whole.jsonl"
        rows = (
            [json.loads(line) for line in self.full_suite_path.read_text().splitlines()]
            if self.full_suite_path.exists()
            else []
        )
        self.confirmed: dict[str, bool] = {row["id"]: row["confirmed"] for row in rows}
        self.tasks: dict[int, list[tasks.GeneratedTask]] = {bugs: [] for bugs in ROUND}
        for row in self.rows:
            if "task" in row:
                task = tasks.read(row["task"], package, self.base.tests)
                self.tasks[len(task.bugs)].append(task)

    def note(self, sites: Sequence[generator.Site], decision: tasks.GeneratedTask | str) -> None:
        """Records the decision on a candidate: its task, or the reason for rejecting it."""
        digest = generator.name_of(sites)
        row: dict[str, Any] = {"digest": digest, "operators": [bug.operator for _, bug in sites]}
        if isinstance(decision, str):
            row["no"] = decision
        else:
            row["task"] = tasks.row(decision, self.base.tests)
            self.tasks[len(decision.bugs)].append(decision)
        self.decided.add(digest)
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    @cached_property
    def singles(self) -> list[list[generator.Site]]:
        return list(generator.singles(self.base, SEED))

    def undecided(self, bugs: int, rounds: int) -> Iterator[list[generator.Site]]:
        """Yields a round's candidates without a decision.

        Compounds use the latest one-bug tasks at the end of this round.
        """
        sources = self.tasks[1][: rounds * ROUND[1]][-COMPOUND_SOURCES:]
        seed = f"{SEED}/{rounds}"
        candidates = self.singles if bugs == 1 else generator.compounds(self.base, sources, bugs, seed)
        return (sites for sites in candidates if generator.name_of(sites) not in self.decided)

    def fill(self, rounds: int, until: float) -> None:
        """Generates this package's missing tasks of the first `rounds` rounds."""

        def lacking(bugs: int) -> int:
            return max(0, rounds * ROUND[bugs] - len(self.tasks[bugs]))

        with self.lock:
            for kinds in ([1], [bugs for bugs in ROUND if bugs > 1]):
                if not any(map(lacking, kinds)):
                    continue
                candidates = {bugs: self.undecided(bugs, rounds) for bugs in kinds}
                while time.monotonic() < until:
                    batch = [sites for bugs in kinds for sites in islice(candidates[bugs], lacking(bugs))]
                    if not batch:
                        break
                    for sites, decision in zip(batch, generator.verify(self.pools, self.base, batch), strict=True):
                        self.note(sites, decision)

    def confirm(self, listed: Sequence[tasks.GeneratedTask], threads: ThreadPoolExecutor, until: float) -> None:
        """Runs the complete suite once on every task not yet confirmed, and records whether the same
        tests fail.
        """
        pool = self.pools[0]

        def run_suite(task: tasks.GeneratedTask) -> tuple[str, bool | None]:
            expired = time.monotonic() >= until
            return task.instance_id, None if expired else generator.confirmed(pool, self.base, task)

        for name, same in threads.map(run_suite, [task for task in listed if task.instance_id not in self.confirmed]):
            if same is not None:
                self.confirmed[name] = same
                with self.full_suite_path.open("a") as file:
                    file.write(json.dumps({"id": name, "confirmed": same}) + "\n")

    def listed(self, rounds: int) -> list[tasks.GeneratedTask]:
        """Returns the tasks of the first `rounds` rounds that the complete suite has not contradicted."""
        generated = [task for bugs, of_kind in self.tasks.items() for task in of_kind[: rounds * ROUND[bugs]]]
        # A bug may break only tests that the package leaves out.
        return [task for task in generated if task.fail_to_pass and self.confirmed.get(task.instance_id, True)]


def build(
    folder: Path, chosen: Sequence[packages.Package], workers: int, seconds: float, rounds: int
) -> dict[str, BuildLog]:
    """Tries candidates until `rounds` rounds are full, all are decided, or the time is up; logs the
    duration.

    Then runs the complete suite on the generated tasks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    driver, threads = drivers.choose(), ThreadPoolExecutor(workers)
    pools = {needs: suite.pools(driver, workers, needs) for needs in {package.needs for package in chosen}}
    began, load = time.monotonic(), os.getloadavg()[0]
    until = began + seconds
    try:
        opened = threads.map(lambda package: BuildLog(folder, pools[package.needs], package), chosen)
        journals = {journal.base.package.name: journal for journal in opened}
        jobs = [(journal, number) for number in range(1, rounds + 1) for journal in journals.values()]
        for _ in threads.map(lambda job: job[0].fill(job[1], until), jobs):
            pass  # raises the errors of jobs
        new = [row for journal in journals.values() for row in journal.rows[journal.initial_rows :]]
        run = {
            "seconds": round(time.monotonic() - began, 1),
            "workers": workers,
            "load": [round(load, 1), round(os.getloadavg()[0], 1)],
            "tried": len(new),
            "tasks": sum("task" in row for row in new),
        }
        if new:
            with (folder / "runs.jsonl").open("a") as file:
                file.write(json.dumps(run) + "\n")
        for journal in journals.values():
            journal.confirm(journal.listed(rounds), threads, until)
    finally:
        threads.shutdown(cancel_futures=True)
        for pool in (pool for group in pools.values() for pool in group):
            pool.close()
    return journals


def admit(folder: Path, name: str, **options: Any) -> packages.Package:
    """Adds a package and its archive to `folder`: one already there, a built-in one, or one that
    `sdists.obtain` finds.

    Raises DataError, MissingExtra, UsageError.
    """
    known = packages.described(folder) if (folder / packages.DESCRIBED).exists() else {}
    for package in known.values():
        if name in (package.name, f"{package.name}=={package.version}") and not any(options.values()):
            return package
    folder.mkdir(parents=True, exist_ok=True)
    built_in = packages.PACKAGES.get(name)
    if built_in is not None:
        package_added = replace(built_in, folder=folder)
        shutil.copyfile(built_in.archive, package_added.archive)
    else:
        package_added = sdists.obtain(name, folder, **options)
    if (
        known.get(package_added.name, package_added) != package_added
        and (folder / f"{package_added.name}.baseline.json").exists()
    ):
        raise UsageError(
            f"{folder} holds tasks of {known[package_added.name].title} made with other settings: use another folder."
        )
    packages.describe(folder, {**known, package_added.name: package_added}.values())
    return package_added


def main() -> None:
    """Parses the command line and runs the build."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-p", "--package", action="append", metavar="PACKAGE", help="default: all built-in ones")
    guessed = parser.add_argument_group("for a package of the index whose layout cannot be guessed")
    guessed.add_argument(
        "--code", action="append", default=[], metavar="PATH", help="code that may be mutated: src/foo"
    )
    guessed.add_argument("--tests", action="append", default=[], metavar="PATH", help="arguments for pytest: tests")
    guessed.add_argument(
        "--with",
        dest="needs",
        action="append",
        default=[],
        metavar="NAME",
        help="an installed package that the tests need",
    )
    guessed.add_argument("--split", choices=("train", "test"), help="split of the tasks (default: test)")
    parser.add_argument("-j", "--workers", type=int, default=2)
    parser.add_argument(
        "-r", "--rounds", type=int, default=ROUNDS, help=f"rounds of {ROUND} tasks per package ({ROUNDS})"
    )
    parser.add_argument(
        "-s", "--seconds", type=float, default=float("inf"), help="stop after this time; the next run continues"
    )
    parser.add_argument("--write", action="store_true", help="update the shipped list from this folder")
    args = parser.parse_args()
    options = {"code": args.code, "tests": args.tests, "needs": args.needs, "split": args.split or ""}
    if any(options.values()) and len(args.package or ()) != 1:
        parser.error("--code, --tests, --with and --split apply to one package: name it with -p")
    try:
        if code := run(args, options):
            sys.exit(code)
    except EnvsuiteError as error:
        parser.exit(2, f"error: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, "stopped; run the same command again to continue\n")


def why_empty(journal: BuildLog, seconds: float) -> str:
    """Returns why a package has no task, in one line."""
    reasons = Counter(row["no"] for row in journal.rows if "no" in row)
    title, suite_seconds = journal.base.package.title, journal.base.seconds
    if reasons:
        counted = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
        return f"{title} has no task: {counted}."
    if not journal.base.sites:
        return f"{title} has no task: no operator finds a place for a bug that a test reaches."
    return (
        f"{title} has no task: the {seconds:g} s were up before a candidate was decided. One run of its suite takes "
        f"{suite_seconds:.1f} s: give it more time with --seconds."
    )


def run(args: argparse.Namespace, options: dict[str, Any]) -> int:
    """Runs the build that the command line asks for; returns the exit code, 1 if a package has no task."""
    chosen = [admit(args.folder, name, **options) for name in args.package or packages.PACKAGES]
    journals = build(args.folder, chosen, args.workers, args.seconds, args.rounds)
    for name, journal in journals.items():
        reasons = Counter(row.get("no", f"{len(row['operators'])} bug(s)") for row in journal.rows)
        print(f"{name}: {dict(reasons.most_common())}")
        if not journal.listed(args.rounds):
            print(why_empty(journal, args.seconds), file=sys.stderr)
    write(args.folder, packages.described(args.folder).values(), args.rounds, args.folder / tasks.MANIFEST.name)
    if args.write:
        write(args.folder, packages.PACKAGES.values(), args.rounds, tasks.MANIFEST)
    return int(any(not journal.listed(args.rounds) for journal in journals.values()))


def write(folder: Path, chosen: Iterable[packages.Package], rounds: int, path: Path) -> None:
    """Writes a list of tasks: the first `rounds` rounds in a folder's logs."""
    listed, tests, confirmed = [], {}, 0
    for package in chosen:
        if (folder / f"{package.name}.baseline.json").exists():
            journal = BuildLog(folder, (), package)
            tests[package.name] = journal.base.tests
            of_package = journal.listed(rounds)
            listed += of_package
            confirmed += sum(task.instance_id in journal.confirmed for task in of_package)
    tasks.write(listed, tests, path)
    print(f"{len(listed)} tasks in {path}; {confirmed} of them confirmed by the complete suite")


if __name__ == "__main__":
    main()
