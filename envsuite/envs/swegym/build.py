"""Makes the list of generated tasks: `python -m envsuite.envs.swegym.build FOLDER`, or `make swe-manifest`.

What was tried is noted in FOLDER as it is decided, so that a run can be cut at any time and goes on where it was. The
packages take turns, and so do tasks of one, two and three bugs. At the end, or when its time is up, the list is written.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Generator
from itertools import chain, repeat
from pathlib import Path

from envsuite.cache import write_atomically
from envsuite.envs.swegym import generator, packages, suite, tasks
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Pool

SEED = 0
ROUND = {1: 12, 2: 2, 3: 1}
"""tasks of so many bugs in a package's turn"""


class Journal:
    """What was decided about a package: its baseline, and one line per candidate."""

    def __init__(self, folder: Path, pool: Pool, name: str) -> None:
        self.pool = pool
        path = folder / f"{name}.baseline.json"
        if path.exists():
            kept = json.loads(path.read_text())
            self.base = generator.Baseline(packages.package(name), **kept)
        else:
            self.base = generator.baseline(pool, name)
            kept = {key: getattr(self.base, key) for key in ("tests", "lines", "hops", "seconds")}
            write_atomically(path, json.dumps(kept))
        self.path = folder / f"{name}.jsonl"
        self.decided: dict[str, tasks.Generated | str] = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            row = json.loads(line)
            self.decided[row["digest"]] = row["no"] if "no" in row else tasks.read(row["task"], self.base.tests)

    def note(self, digest: str, answer: tasks.Generated | str) -> None:
        self.decided[digest] = answer
        row = {"no": answer} if isinstance(answer, str) else {"task": tasks.row(answer, self.base.tests)}
        with self.path.open("a") as file:
            file.write(json.dumps({"digest": digest, **row}) + "\n")

    def made(self, bugs: int) -> Generator[tasks.Generated, None, None]:
        """New tasks of so many bugs, each noted."""
        pool_of = (c for c in generator.candidates(self.base, bugs, SEED) if generator.name_of(c) not in self.decided)
        for digest, answer in generator.verified(self.pool, self.base, pool_of):
            self.note(digest, answer)
            if isinstance(answer, tasks.Generated):
                yield answer


def build(folder: Path, names: list[str], workers: int, seconds: float) -> dict[str, Journal]:
    """Tries candidates until all are decided or the time is up."""
    folder.mkdir(parents=True, exist_ok=True)
    pool = Pool(suite.SPEC, drivers.choose(), workers)
    until = time.monotonic() + seconds
    journals, open_ones = {}, {}
    try:
        while time.monotonic() < until:
            alive = False
            for name in names:
                if name not in journals:
                    journals[name] = Journal(folder, pool, name)
                    open_ones[name] = {bugs: journals[name].made(bugs) for bugs in ROUND}
                for bugs in chain.from_iterable(repeat(bugs, count) for bugs, count in ROUND.items()):
                    if time.monotonic() >= until:
                        break
                    alive |= next(open_ones[name][bugs], None) is not None
            if not alive:
                break
    finally:
        for made in open_ones.values():
            for one in made.values():
                one.close()
        pool.close()
    return journals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-p", "--package", action="append", choices=list(packages.PACKAGES), help="default: all")
    parser.add_argument("-j", "--workers", type=int, default=2)
    parser.add_argument("-s", "--seconds", type=float, default=float("inf"), help="stop then; the next run goes on")
    parser.add_argument("--write", action="store_true", help="write the shipped list from what the folder holds of all")
    args = parser.parse_args()
    began, journals = (
        time.monotonic(),
        build(args.folder, args.package or list(packages.PACKAGES), args.workers, args.seconds),
    )
    for name, journal in journals.items():
        reasons = Counter(
            answer if isinstance(answer, str) else f"{len(answer.bugs)} bug(s)" for answer in journal.decided.values()
        )
        print(f"{name}: {dict(reasons.most_common())}")
    print(f"{time.monotonic() - began:.0f} s")
    if args.write:
        write(args.folder)


def write(folder: Path) -> None:
    """Writes the shipped list from the journals of a folder."""
    found, tests = [], {}
    for name in packages.PACKAGES:
        if (folder / f"{name}.baseline.json").exists():
            journal = Journal(folder, None, name)  # type: ignore[arg-type]  # the baseline is there
            tests[name] = journal.base.tests
            found += [answer for answer in journal.decided.values() if isinstance(answer, tasks.Generated)]
    tasks.write(found, tests)
    print(f"{len(found)} tasks in {tasks.MANIFEST}")


if __name__ == "__main__":
    main()
