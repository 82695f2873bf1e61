"""Time of a submission of DataSciCoding, and of an exploring turn: p50 and p95 of every driver that works here.

    .ci/dockerd python -m benchmarks.datascicoding_time [driver ...] [--submissions 20] [--markdown FILE]

A submission runs the reference program on five splits of wine (`model`) or balance-scale (`features`). Compare two
versions of the code on the same machine, one after the other.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

from envsuite import registry
from envsuite.envs.datascicoding.env import DataSciCoding
from envsuite.sandbox import drivers

PAGE = """\
# DataSciCoding: time of a submission and of an exploring turn

From one run of `benchmarks/datascicoding_time.py`: {count} submissions of each kind after one that warms up, on {cores}
cores. `model` is the reference program on five splits of wine, `features` that of balance-scale; an exploring turn
is one expression. All work of the program itself is included.

"""
TASKS = {"model": "DataSciCoding-wine-v1", "features": "DataSciCoding-features-v1"}


def times(env: DataSciCoding, command: str, count: int) -> list[float]:
    """Returns the milliseconds of `count` episodes of one command, after one that warms up."""
    results = []
    for _ in range(count + 1):
        env.reset(seed=0)
        began = time.perf_counter()
        env.step(command)
        results.append((time.perf_counter() - began) * 1e3)
    return results[1:]


def row(driver: str, name: str, values: list[float]) -> str:
    """Returns a row of the table: driver, what was measured, p50, p95 [ms]."""
    p95 = statistics.quantiles(values, n=20)[18]
    return f"| {driver} | {name} | {statistics.median(values):.0f} | {p95:.0f} | {os.getloadavg()[0]:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drivers", nargs="*", help="default: every safe driver that works here")
    parser.add_argument("--submissions", type=int, default=20, help="submissions of each kind")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table as a page")
    args = parser.parse_args()
    lines = ["| driver | what | p50 ms | p95 ms | load average |", "|---|---|---|---|---|"]

    def show(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    print("\n".join(lines))
    for driver in args.drivers or [name for name in drivers.SAFE if not drivers.probe(name)]:
        for variant, task in TASKS.items():
            env = registry.build(task, sandbox=driver)
            env.reset(seed=0)
            show(row(driver, variant, times(env, env.expert(), args.submissions)))
            env.close()
        env = registry.build("DataSciCoding-explore-v1", sandbox=driver, explore=1000)
        env.reset(seed=0)
        env.step("# run\n1")
        turns = []
        for _ in range(args.submissions):
            began = time.perf_counter()
            env.step("# run\nx_train.mean()")
            turns.append((time.perf_counter() - began) * 1e3)
        show(row(driver, "exploring turn", turns))
        env.close()
    if args.markdown:
        args.markdown.write_text(PAGE.format(count=args.submissions, cores=os.cpu_count()) + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
