"""Cost of grading in SWE-Gym: the judge of a gold patch, paired with one run of the same tests.

    python -m benchmarks.swegym_grading [-n 5] [-s SECONDS] [--packages NAME ...] [--markdown FILE]

One task of each package with planted bugs and one mined instance of each package, both drawn by a hash of their ids.
A run applies the gold patch and the held-out tests in a fresh sandbox and runs the tests once. The judge does the
same, and sabotages the failing tests and a sample of the others. Both take turns; the ratio is that of the sums over
all turns, by the clock.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

from envsuite.envs.swegym import preflight
from envsuite.envs.swegym.judge import suite
from envsuite.envs.swegym.mined.tasks import mined_tasks
from envsuite.envs.swegym.planted import packages, tasks
from envsuite.envs.swegym.planted.problem import PlantedProblem
from envsuite.envs.swegym.published.problem import PublishedProblem
from envsuite.sandbox import drivers

SECONDS = 600.0
GOAL = 1.5
"""grading may cost this many runs"""


@dataclass
class Cost:
    """Costs of one instance's runs and gradings [seconds per turn]."""

    package: str
    kind: str
    tests: int
    failing: int
    run: list[float] = field(default_factory=list)
    judge: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return sum(self.judge) / sum(self.run)

    def take_turns(self, count: int, run: Callable[[], object], judge: Callable[[], object]) -> Cost:
        judge()  # the sandboxes are warm from here on
        for _ in range(count):
            self.run.append(timed(run))
            self.judge.append(timed(judge))
        return self

    def row(self) -> str:
        median = statistics.median(self.run)
        return f"| {self.package} | {self.kind} | {self.failing} | {self.tests} | {median:.2f} | {self.ratio:.2f} |"


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def drawn(names: Iterable[str]) -> str:
    return min(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())


def planted(driver: str, count: int, chosen: list[str]) -> Iterator[Cost]:
    listed = {task.instance_id: task for task in tasks.manifest()}
    for package in sorted({task.package.name for task in listed.values()}):
        if chosen and package not in chosen:
            continue
        task = listed[drawn(name for name, task in listed.items() if task.package.name == package)]
        problem = PlantedProblem(task, "full", False, driver)
        job = suite.SuiteJob(task.package, packages.tree(task.package), seconds=SECONDS)
        cost = Cost(package, "planted", len(task.fail_to_pass) + len(task.pass_to_pass), len(task.fail_to_pass))
        try:
            judge = partial(problem.judge, problem.gold(), SECONDS)
            yield cost.take_turns(count, partial(suite.run, problem._pool(), job), judge)
        finally:
            problem.close()


def mined(driver: str, count: int, chosen: list[str]) -> Iterator[Cost]:
    listed = mined_tasks()
    for package in sorted({task.package for task in listed.values()}):
        if chosen and package not in chosen:
            continue
        task = listed[drawn(name for name, task in listed.items() if task.package == package)]
        record, problem = task.record, PublishedProblem(task.record, task.setup, driver)
        if reason := preflight.gold_failure(problem, SECONDS):
            print(f"{record.instance_id}: {reason}", file=sys.stderr)
            continue
        gold = problem.gold()
        cost = Cost(package, "mined", len(record.fail_to_pass) + len(record.pass_to_pass), len(record.fail_to_pass))
        judge = partial(problem.judge, gold, SECONDS)
        yield cost.take_turns(count, partial(problem.log_of, gold, SECONDS), judge)


def page(costs: list[Cost], count: int, driver: str) -> str:
    ratios = [cost.ratio for cost in costs]
    over = [cost.package for cost in costs if cost.ratio > GOAL]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    about = (__doc__ or "").split("\n\n")[2]
    lines = [
        f"# SWE-Gym: cost of grading\n\n`python -m benchmarks.swegym_grading -n {count}`\n",
        about,
        "| package | kind | failing tests | tests | one run, seconds | judge, in runs |",
        "|---|---|--:|--:|--:|--:|",
        *(cost.row() for cost in costs),
        "",
        f"Median {statistics.median(ratios):.2f}, most {max(ratios):.2f}; {len(costs) - len(over)} of {len(costs)} "
        f"packages cost at most {GOAL} runs{', not ' + ', '.join(over) if over else ''}. Driver {driver}, {count} "
        f"turns each; {os.cpu_count()} cores, load average {load}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=5, help="turns per package")
    parser.add_argument("--packages", nargs="*", default=[], help="only these")
    parser.add_argument("-s", "--seconds", type=float, default=float("inf"), help="begin no package after this time")
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    driver, end = drivers.choose("auto"), time.monotonic() + args.seconds
    costs: list[Cost] = []
    for cost in chain(mined(driver, args.n, args.packages), planted(driver, args.n, args.packages)):
        costs.append(cost)
        print(cost.row(), flush=True)
        if args.markdown:
            args.markdown.write_text(page(costs, args.n, driver))
        if time.monotonic() > end:
            print("the time is up: further packages are not measured", file=sys.stderr)
            break
    print(page(costs, args.n, driver))


if __name__ == "__main__":
    main()
