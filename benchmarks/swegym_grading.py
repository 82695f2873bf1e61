"""Cost of grading in SWE-Gym: the judge of a gold patch, paired with one run of the same tests.

    python -m benchmarks.swegym_grading [-n 5] [-s SECONDS] [--packages NAME ...] [--markdown FILE]

One task per package that small bugs were planted in, one mined instance per package, both drawn by a hash of
their ids, and the records of the data folder if there is one. A run applies the gold patch and the held-out tests in
a fresh sandbox and runs the tests once. The judge does the same, and sabotages the failing tests and a
sample of the others. Both take turns; the ratio is that of the sums over all turns.
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
from typing import Any

from benchmarks.swegym import load, table
from envsuite.envs.swegym import preflight
from envsuite.envs.swegym.judge import phases as forked
from envsuite.envs.swegym.judge import suite
from envsuite.envs.swegym.mined.tasks import mined_tasks
from envsuite.envs.swegym.planted import packages, tasks
from envsuite.envs.swegym.planted.problem import PlantedProblem
from envsuite.envs.swegym.problems import RepairProblem
from envsuite.envs.swegym.published import problem as published
from envsuite.sandbox import drivers, local

SECONDS = 600.0
GOAL = 1.3
"""grading may cost this many runs"""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Cost:
    """Costs of one instance's runs and gradings [seconds per turn]."""

    package: str
    kind: str
    tests: int
    failing: int
    run: list[tuple[float, float]] = field(default_factory=list)
    """(processor time, wall clock) of each run"""
    judge: list[tuple[float, float]] = field(default_factory=list)
    forked: bool = True
    """the sabotaged tests ran in forks"""

    def ratio(self, clock: int) -> float:
        return sum(turn[clock] for turn in self.judge) / sum(turn[clock] for turn in self.run)

    def row(self) -> list[str]:
        run = statistics.median(turn[0] for turn in self.run)
        ways = "forks" if self.forked else "two runs"
        ratios = [f"{self.ratio(clock):.2f}" for clock in (0, 1)]
        return [self.package, self.kind, str(self.failing), str(self.tests), ways, f"{run:.2f}", *ratios]


def spent_by_tree(root: int) -> float:
    """Returns the processor seconds of a process, of the ended processes that it waited for, and of all below it."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for name in os.listdir("/proc"):
        try:
            fields = Path("/proc", str(int(name)), "stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        parents[int(name)], ticks[int(name)] = int(fields[1]), sum(map(int, fields[11:15]))
    tree = {root}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return sum(ticks.get(pid, 0) for pid in tree) / TICKS


class Accounts:
    """Processor time of this process and of all sandboxes that it starts, ended ones included.

    The kernel loses the time of processes in a PID namespace whose first process has ended, so a
    sandbox's time is read before it is ended.
    """

    def __init__(self) -> None:
        self.ended = 0.0
        original = local.LocalProcess.kill

        def kill(process: local.LocalProcess) -> None:
            self.ended += spent_by_tree(process.pid)
            original(process)

        local.LocalProcess.kill = kill  # type: ignore[assignment, method-assign]

    def seconds(self) -> float:
        return self.ended + spent_by_tree(os.getpid())


ACCOUNTS = Accounts()


def timed(act: Callable[[], object]) -> tuple[float, float]:
    began, used = time.perf_counter(), ACCOUNTS.seconds()
    act()
    return ACCOUNTS.seconds() - used, time.perf_counter() - began


def take_turns(cost: Cost, count: int, run: Callable[[], object], judge: Callable[[], object]) -> None:
    for _ in range(count):
        cost.run.append(timed(run))
        cost.judge.append(timed(judge))


def by_hash(names: Iterable[str]) -> str:
    return min(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())


def generated(driver: str, count: int, chosen: list[str]) -> Iterator[Cost]:
    listed = {task.instance_id: task for task in tasks.manifest()}
    for package in sorted({task.package.name for task in listed.values()}):
        if chosen and package not in chosen:
            continue
        task = listed[by_hash(name for name, task in listed.items() if task.package.name == package)]
        problem = PlantedProblem(task, "full", False, driver)
        files = packages.tree(task.package)
        cost = Cost(package, "generated", len(task.fail_to_pass) + len(task.pass_to_pass), len(task.fail_to_pass))
        try:
            cost.forked = used_forks(problem)  # the sandboxes are warm from here on
            run = partial(suite.run, problem._pool(), task.package, files, seconds=SECONDS)
            take_turns(cost, count, run, partial(problem.judge, problem.gold(), SECONDS))
        finally:
            problem.close()
        yield cost


def recorded(
    driver: str, count: int, kind: str, instances: dict[str, tuple[published.records.Record, dict[str, Any] | None]]
) -> Iterator[Cost]:
    for record, recipe in instances.values():
        problem = published.PublishedProblem(record, recipe, driver)
        if reason := preflight.gold_failure(problem, SECONDS):
            print(f"{record.instance_id}: {reason}", file=sys.stderr)
            continue
        gold = problem.gold()
        tests = len(record.fail_to_pass) + len(record.pass_to_pass)
        cost = Cost(record.repo.rpartition("/")[2], kind, tests, len(record.fail_to_pass))
        cost.forked = used_forks(problem)
        take_turns(cost, count, partial(problem.log_of, gold, SECONDS), partial(problem.judge, gold, SECONDS))
        yield cost


def used_forks(problem: RepairProblem) -> bool:
    """Returns True if the forks of a grading settled that the tests can fail."""
    results: list[bool] = []
    original = forked.confirms

    def confirms(*arguments: object) -> bool:
        results.append(original(*arguments))  # type: ignore[arg-type]
        return results[-1]

    forked.confirms = confirms  # type: ignore[assignment]
    try:
        assert problem.judge(problem.gold(), SECONDS).resolved
    finally:
        forked.confirms = original
    return results == [True]


def mined(chosen: list[str]) -> dict[str, tuple[published.records.Record, dict[str, Any] | None]]:
    listed = mined_tasks()
    instances: dict[str, tuple[published.records.Record, dict[str, Any] | None]] = {}
    for package in sorted({task.package for task in listed.values()}):
        if not chosen or package in chosen:
            name = by_hash(name for name, task in listed.items() if task.package == package)
            instances[name] = listed[name].record, listed[name].recipe
    return instances


def page(costs: list[Cost], count: int, driver: str) -> list[str]:
    head = ("package", "kind", "failing tests", "tests", "sabotaged in", "one run, CPU s", "CPU", "wall clock")
    lines = table(head, [cost.row() for cost in costs])
    ratios = [[cost.ratio(clock) for cost in costs] for clock in (0, 1)]
    over = [cost.package for cost in costs if cost.ratio(0) > GOAL]
    medians = [f"{statistics.median(values):.2f}" for values in ratios]
    maxima = [f"{max(values):.2f}" for values in ratios]
    return [
        f"# SWE-Gym: cost of grading\n\n`python -m benchmarks.swegym_grading -n {count}`\n",
        *(__doc__ or "").split("\n\n")[2:],
        "The last two columns are the cost of the judge, in runs; `forks` and `two runs` say how the sabotaged tests "
        "were run ([rules](../docs/envs/swegym.md#grading)).\n",
        *lines,
        "",
        f"Median {medians[0]} by processor time and {medians[1]} by the clock, most {maxima[0]} and {maxima[1]}; "
        f"{len(costs) - len(over)} of {len(costs)} measured packages cost at most {GOAL} runs of processor time"
        f"{', not ' + ', '.join(over) if over else ''}. Driver {driver}, {count} turns each; {load()}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=5, help="turns per package")
    parser.add_argument("--packages", nargs="*", default=[], help="only these")
    parser.add_argument("--kinds", nargs="*", default=["generated", "mined"])
    parser.add_argument("-s", "--seconds", type=float, default=float("inf"), help="begin no package after this time")
    parser.add_argument("--real", metavar="FOLDER", help="a folder of instances with recipes")
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    driver = drivers.choose("auto")
    costs: list[Cost] = []
    sources = []
    if "mined" in args.kinds:
        sources.append(recorded(driver, args.n, "mined", mined(args.packages)))
    if "generated" in args.kinds:
        sources.append(generated(driver, args.n, args.packages))
    if args.real:
        sources.append(recorded(driver, args.n, "record", published.find(args.real)))
    end = time.monotonic() + args.seconds
    for cost in chain(*sources):
        costs.append(cost)
        print(" ".join(cost.row()), flush=True)
        if args.markdown:
            args.markdown.write_text("\n".join(page(costs, args.n, driver)) + "\n")
        if time.monotonic() > end:
            print("the time is up: further packages are not measured", file=sys.stderr)
            break
    text = "\n".join(page(costs, args.n, driver)) + "\n"
    print(text)


if __name__ == "__main__":
    main()
