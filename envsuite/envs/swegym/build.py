"""Makes generated tasks: `python -m envsuite.envs.swegym.build FOLDER [-p PACKAGE]`.

PACKAGE is a built-in one, NAME or NAME==VERSION of the package index, or the path of a source archive (.tar.gz). Then
FOLDER is played by `--set tasks=FOLDER`: it holds the archives, `packages.json` and `manifest.jsonl.gz`. Without -p all
built-in ones are taken, and `--write` makes of theirs the shipped list (`make swe-manifest`).

What was tried is noted in FOLDER as it is decided, so that a run can be cut at any time and goes on where it was. The
packages take turns, and so do tasks of one, two and three bugs. Which tasks the first so many rounds give hangs on the
seed alone, not on time, workers or how often the run was cut.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
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
from envsuite.envs.swegym import generator, packages, sdists, suite, tasks
from envsuite.errors import EnvsuiteError, UsageError
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Pool

SEED = 0
ROUND = {1: 12, 2: 3, 3: 1}
"""tasks of so many bugs in a package's turn"""
ROUNDS = 9
MATERIAL = 36
"""tasks of one bug that compounds are made of"""


class Journal:
    """What was decided about a package: its baseline, and one line per candidate."""

    def __init__(self, folder: Path, pools: Sequence[Pool], package: packages.Package) -> None:
        self.pools, self.lock = pools, Lock()
        name = package.name
        path = folder / f"{name}.baseline.json"
        if path.exists():
            kept = json.loads(path.read_text())
            self.base = generator.Baseline(package, **kept)
        else:
            self.base = generator.baseline(pools, package)
            kept = {key: getattr(self.base, key) for key in ("tests", "lines", "hops", "seconds")}
            write_atomically(path, json.dumps(kept))
        self.path = folder / f"{name}.jsonl"
        self.rows = [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []
        self.found_there = len(self.rows)
        self.decided = {row["digest"] for row in self.rows}
        self.whole = folder / f"{name}.whole.jsonl"
        rows = [json.loads(line) for line in self.whole.read_text().splitlines()] if self.whole.exists() else []
        self.confirmed: dict[str, bool] = {row["id"]: row["confirmed"] for row in rows}
        self.tasks: dict[int, list[tasks.Generated]] = {bugs: [] for bugs in ROUND}
        for row in self.rows:
            if "task" in row:
                task = tasks.read(row["task"], package, self.base.tests)
                self.tasks[len(task.bugs)].append(task)

    def note(self, sites: Sequence[generator.Site], answer: tasks.Generated | str) -> None:
        digest = generator.name_of(sites)
        row: dict[str, Any] = {"digest": digest, "operators": [bug.operator for _, bug in sites]}
        if isinstance(answer, str):
            row["no"] = answer
        else:
            row["task"] = tasks.row(answer, self.base.tests)
            self.tasks[len(answer.bugs)].append(answer)
        self.decided.add(digest)
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    @cached_property
    def singles(self) -> list[list[generator.Site]]:
        return list(generator.singles(self.base, SEED))

    def tried(self, bugs: int, rounds: int) -> Iterator[list[generator.Site]]:
        """Candidates of a round that are not decided yet. Compounds are of the latest bugs at the end of this round."""
        material = self.tasks[1][: rounds * ROUND[1]][-MATERIAL:]
        seed = f"{SEED}/{rounds}"
        found = self.singles if bugs == 1 else generator.compounds(self.base, material, bugs, seed)
        return (sites for sites in found if generator.name_of(sites) not in self.decided)

    def fill(self, rounds: int, until: float) -> None:
        """Makes what this package lacks of its tasks of so many rounds."""

        def lacking(bugs: int) -> int:
            return max(0, rounds * ROUND[bugs] - len(self.tasks[bugs]))

        with self.lock:
            for kinds in ([1], [bugs for bugs in ROUND if bugs > 1]):
                if not any(map(lacking, kinds)):
                    continue
                tried = {bugs: self.tried(bugs, rounds) for bugs in kinds}
                while time.monotonic() < until:
                    some = [sites for bugs in kinds for sites in islice(tried[bugs], lacking(bugs))]
                    if not some:
                        break
                    for sites, answer in zip(some, generator.verify(self.pools, self.base, some)):
                        self.note(sites, answer)

    def confirm(self, listed: Sequence[tasks.Generated], threads: ThreadPoolExecutor, until: float) -> None:
        """Runs the whole suite once on every task that has not had it yet, and notes whether it says the same."""
        pool = self.pools[0]

        def look(task: tasks.Generated) -> tuple[str, bool | None]:
            late = time.monotonic() >= until
            return task.instance_id, None if late else generator.confirmed(pool, self.base, task)

        for name, same in threads.map(look, [task for task in listed if task.instance_id not in self.confirmed]):
            if same is not None:
                self.confirmed[name] = same
                with self.whole.open("a") as file:
                    file.write(json.dumps({"id": name, "confirmed": same}) + "\n")

    def listed(self, rounds: int) -> list[tasks.Generated]:
        """What the first `rounds` rounds have made, without what the whole suite has not confirmed."""
        made = [task for bugs, found in self.tasks.items() for task in found[: rounds * ROUND[bugs]]]
        # Tests that a package leaves out may be all that a bug breaks.
        return [task for task in made if task.fail_to_pass and self.confirmed.get(task.instance_id, True)]


def build(
    folder: Path, chosen: Sequence[packages.Package], workers: int, seconds: float, rounds: int
) -> dict[str, Journal]:
    """Tries candidates until `rounds` rounds are full, all are decided, or the time is up; notes how long that took.

    Then the whole suite is run on what was made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    driver, threads = drivers.choose(), ThreadPoolExecutor(workers)
    pools = {needs: suite.pools(driver, workers, needs) for needs in {one.needs for one in chosen}}
    began, load = time.monotonic(), os.getloadavg()[0]
    until = began + seconds
    try:
        found = threads.map(lambda one: Journal(folder, pools[one.needs], one), chosen)
        journals = {journal.base.package.name: journal for journal in found}
        jobs = [(journal, number) for number in range(1, rounds + 1) for journal in journals.values()]
        for _ in threads.map(lambda job: job[0].fill(job[1], until), jobs):
            pass  # raises what a job has raised
        new = [row for journal in journals.values() for row in journal.rows[journal.found_there :]]
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
        for pool in (pool for three in pools.values() for pool in three):
            pool.close()
    return journals


def admit(folder: Path, wanted: str, **said: Any) -> packages.Package:
    """A package and its archive in `folder`: what is there already, a built-in one, or what `sdists.obtain` finds.

    Raises DataError, MissingExtra, UsageError.
    """
    known = packages.described(folder) if (folder / packages.DESCRIBED).exists() else {}
    for one in known.values():
        if wanted in (one.name, f"{one.name}=={one.version}") and not any(said.values()):
            return one
    folder.mkdir(parents=True, exist_ok=True)
    built_in = packages.PACKAGES.get(wanted)
    if built_in is not None:
        found = replace(built_in, folder=folder)
        shutil.copyfile(built_in.archive, found.archive)
    else:
        found = sdists.obtain(wanted, folder, **said)
    if known.get(found.name, found) != found and (folder / f"{found.name}.baseline.json").exists():
        raise UsageError(f"{folder} holds tasks of {known[found.name].title} made otherwise: take another folder.")
    packages.describe(folder, {**known, found.name: found}.values())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-p", "--package", action="append", metavar="PACKAGE", help="default: all built-in ones")
    guessed = parser.add_argument_group("where a package of the index is not understood by itself")
    guessed.add_argument("--code", action="append", default=[], metavar="PATH", help="of it may be mutated: src/foo")
    guessed.add_argument("--tests", action="append", default=[], metavar="PATH", help="what pytest is given: tests")
    guessed.add_argument(
        "--with",
        dest="needs",
        action="append",
        default=[],
        metavar="NAME",
        help="an installed package that its tests need",
    )
    guessed.add_argument("--split", choices=("train", "test"), help="what it is to be used for (test)")
    parser.add_argument("-j", "--workers", type=int, default=2)
    parser.add_argument("-r", "--rounds", type=int, default=ROUNDS, help=f"of {ROUND} tasks per package ({ROUNDS})")
    parser.add_argument("-s", "--seconds", type=float, default=float("inf"), help="stop then; the next run goes on")
    parser.add_argument("--write", action="store_true", help="write the shipped list from what the folder holds of all")
    args = parser.parse_args()
    said = {"code": args.code, "tests": args.tests, "needs": args.needs, "split": args.split or ""}
    if any(said.values()) and len(args.package or ()) != 1:
        parser.error("--code, --tests, --with and --split are about one package: name it alone with -p")
    try:
        run(args, said)
    except EnvsuiteError as error:
        parser.exit(2, f"error: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, "stopped; the same command goes on from here\n")


def run(args: argparse.Namespace, said: dict[str, Any]) -> None:
    """Does what the command line asks for."""
    chosen = [admit(args.folder, name, **said) for name in args.package or packages.PACKAGES]
    journals = build(args.folder, chosen, args.workers, args.seconds, args.rounds)
    for name, journal in journals.items():
        reasons = Counter(row.get("no", f"{len(row['operators'])} bug(s)") for row in journal.rows)
        print(f"{name}: {dict(reasons.most_common())}")
    write(args.folder, packages.described(args.folder).values(), args.rounds, args.folder / tasks.MANIFEST.name)
    if args.write:
        write(args.folder, packages.PACKAGES.values(), args.rounds, tasks.MANIFEST)


def write(folder: Path, chosen: Iterable[packages.Package], rounds: int, path: Path) -> None:
    """Writes a list: what the first `rounds` rounds have of the journals of a folder."""
    found, tests, whole = [], {}, 0
    for package in chosen:
        if (folder / f"{package.name}.baseline.json").exists():
            journal = Journal(folder, (), package)
            tests[package.name] = journal.base.tests
            made = journal.listed(rounds)
            found += made
            whole += sum(task.instance_id in journal.confirmed for task in made)
    tasks.write(found, tests, path)
    print(f"{len(found)} tasks in {path}; of {whole} the whole suite was run too")


if __name__ == "__main__":
    main()
