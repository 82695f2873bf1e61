"""Submissions per second through each sandbox driver, compared with a new interpreter for each, in one
run.

    python -m benchmarks.sandbox [driver ...] [--markdown FILE]

A submission fits GaussianNB on one split of iris. `python -c` starts an interpreter, imports the
same packages and does the same work; it is timed before and after every driver, so that all share
the machine's load. Overhead is the time of a submission minus the median of the same work in a warm
process.
"""

from __future__ import annotations

import argparse
import os
import pickle
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

from envsuite import sandbox
from envsuite.core import check_knobs
from envsuite.envs.datascicoding import datasets, instances, pipelines, runner, scoring
from envsuite.envs.datascicoding.env import DataSciCoding
from envsuite.sandbox import drivers
from envsuite.sandbox.local import ENVIRONMENT
from envsuite.sandbox.pool import Pool


def submission() -> bytes:
    game = instances.instance(datasets.load("iris"), SimpleNamespace(**check_knobs(DataSciCoding, {})), 0)
    x_train, y_train, x_test, _ = game.splits(1)[0]
    job = {"code": pipelines._plain("naive_bayes", "GaussianNB"), "variant": "model", "forbidden": (), "sealed": ()}
    job.update(x_train=scoring.plain_table(x_train), y_train=y_train, x_test=scoring.plain_table(x_test))
    return pickle.dumps(job)


def timed(act, count: int) -> list[float]:
    results = []
    for _ in range(count):
        began = time.perf_counter()
        act()
        results.append(time.perf_counter() - began)
    return results


def cold(payload: bytes) -> None:
    imports = "; ".join(f"import {name}" for name in scoring.MODULES)
    code = f"import sys; sys.path.insert(0, {str(scoring.RUNNER.parent)!r}); {imports}; import runner; "
    code += "print(len(runner.handle(sys.stdin.buffer.read())))"
    done = subprocess.run([sys.executable, "-c", code], input=payload, capture_output=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr.decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("drivers", nargs="*", default=list(sandbox.DRIVERS))
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    payload = submission()
    for name in scoring.MODULES:
        __import__(name)
    runner.warm_up()
    work = statistics.median(timed(lambda: runner.handle(payload), 30))
    rows = []
    fresh = timed(lambda: cold(payload), 2)
    load = os.getloadavg()[0]
    for driver in args.drivers:
        if reason := drivers.probe(driver):
            print(f"{driver}: left out, {reason}", file=sys.stderr)
            continue
        began = time.perf_counter()
        pool = Pool(scoring.spec(("GridSearchCV", "SVC")), driver, 2)
        assert pool.call(payload).value.startswith(b'{"verdict": "ok"')
        start = time.perf_counter() - began
        single = timed(lambda pool=pool: pool.call(payload), 40)
        with ThreadPoolExecutor(100) as threads:
            list(threads.map(lambda _: pool.call(payload), range(4)))  # the second sandbox starts  # noqa: B023
            began = time.perf_counter()
            values = list(threads.map(lambda _: pool.call(payload).value, range(100)))  # noqa: B023
            parallel = 100 / (time.perf_counter() - began)
        assert len(values) == 100
        assert len(set(values)) == 1
        rows.append((driver, start, single, 1 / statistics.mean(single), parallel))
        pool.close()
        fresh += timed(lambda: cold(payload), 1)
    base = 1 / statistics.mean(fresh)
    rows.insert(0, ("python -c", 0.0, fresh, base, None))
    lines = [
        f"The work itself, in a warm process: {work * 1e3:.1f} ms. 2 sandboxes for the parallel figure. "
        f"{len(os.sched_getaffinity(0))} cores; load average at the start {load:.1f}, the benchmark's own included.",
        "",
        "| | start s | p50 ms | p95 ms | overhead p50 ms | submissions/s, one at a time | times `python -c` "
        "| 100 at once, /s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, start, times, rate, parallel in rows:
        p50, p95 = statistics.median(times) * 1e3, sorted(times)[int(len(times) * 0.95)] * 1e3
        many = f"{parallel:.0f}" if parallel else ""
        lines.append(
            f"| {name} | {start:.1f} | {p50:.1f} | {p95:.1f} | {p50 - work * 1e3:.1f} | {rate:.1f} | "
            f"{rate / base:.0f} | {many} |"
        )
    text = "\n".join(lines) + "\n"
    print(text)
    if args.markdown:
        args.markdown.write_text(
            "# Sandbox: submissions per second\n\nFrom one run of `benchmarks/sandbox.py`.\n\n" + text
        )


if __name__ == "__main__":
    main()
