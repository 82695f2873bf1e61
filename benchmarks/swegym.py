"""SWE-Gym's latencies per sandbox driver, beside plain subprocesses and `docker run`: one run, side by side.

    python -m benchmarks.swegym [driver ...] [-n N] [--markdown FILE]

reset: a repository of 25 files brought back for another try, in a sandbox started anew. exec: `true`. python: `python -c pass`. edit: one str_replace.
grade: 58 tests in a fresh sandbox, twice (the second time sabotaged). The plain row does the same by hand: copy and
`git commit`; `bash -c true`; `python -c pass`; nothing; `python -m pytest` on a copy, once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from envsuite import registry, sandbox
from envsuite.envs.swegym import tasks
from envsuite.envs.swegym.env import SWEGym
from envsuite.sandbox import drivers

TASK = next(task for task in tasks.manifest() if task.package == "uritemplate" and len(task.bugs) == 1)
COLUMNS = ("reset", "exec", "python", "edit", "grade")


def median_ms(act: Callable[[], object], count: int) -> float:
    found = []
    for _ in range(count):
        began = time.perf_counter()
        act()
        found.append(time.perf_counter() - began)
    return statistics.median(found) * 1e3


def measured(driver: str, count: int) -> dict[str, float]:
    env = registry.build("SWEGym-easy-v0", sandbox=driver, instances=(TASK.instance_id,), max_steps=10_000)
    assert isinstance(env, SWEGym)
    try:
        env.reset(seed=0)
        command = env.expert()
        assert command is not None and env._problem is not None
        gold, problem = env._problem.gold(), env._problem
        assert problem.judge(gold, 600).resolved  # the sandbox that judges is warm from here on
        found = {"reset": median_ms(lambda: env.reset(seed=0), count)}
        found["exec"] = median_ms(lambda: env.step("true"), 3 * count)
        found["python"] = median_ms(lambda: env.step("python -c pass"), count)
        found["edit"] = median_ms(lambda: (env.step(command), env.step(f"undo {TASK.paths[0]}")), count) / 2
        found["grade"] = median_ms(lambda: problem.judge(gold, 600), max(2, count // 3))
        return found
    finally:
        env.close()


def by_hand(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        source, place = Path(name, "source"), Path(name, "copy")
        for path, text in tasks.packages.tree(TASK.package).items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_text(text)
        commit = "git init -q . && git add -A && git -c user.name=a -c user.email=b commit -qm base"

        def lay() -> None:
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(source, place)
            subprocess.run(commit, shell=True, cwd=place, check=True)

        found = {"reset": median_ms(lay, count)}
        found["exec"] = median_ms(lambda: subprocess.run(["bash", "-c", "true"], check=True), 3 * count)
        found["python"] = median_ms(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), count)
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
        environment = {**os.environ, "PYTHONPATH": str(place)}
        found["grade"] = median_ms(
            lambda: subprocess.run(tests, cwd=place, env=environment, check=True, capture_output=True),
            max(2, count // 3),
        )
        return found


def docker_run(count: int) -> dict[str, float]:
    """A container for every command, in the thin image that the docker driver has made."""
    command = ["docker", "run", "--rm", "--network=none", "-v", "/usr:/usr:ro", "envsuite-thin:2", "/usr/bin/true"]
    return {"exec": median_ms(lambda: subprocess.run(command, check=True, capture_output=True), count)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drivers", nargs="*", default=list(sandbox.DRIVERS))
    parser.add_argument("-n", type=int, default=9)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    rows = {"by hand": by_hand(args.n)}
    for driver in args.drivers:
        if reason := drivers.probe(driver):
            print(f"{driver}: left out, {reason}", file=sys.stderr)
            continue
        rows[driver] = measured(driver, args.n)
        if driver == "docker" and shutil.which("docker"):
            rows["docker run"] = docker_run(args.n)
    lines = ["| ms (median) | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, row in rows.items():
        cells = [f"{row[column]:.0f}" if column in row else "–" for column in COLUMNS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    lines += ["", f"{args.n} repetitions; {os.cpu_count()} cores, load average {load} (other work beside it)."]
    print("\n".join(lines))
    if args.markdown:
        head = f"# SWE-Gym: latencies\n\n`python -m benchmarks.swegym`. {(__doc__ or '').partition('[--markdown FILE]')[2].strip()}\n\n"
        args.markdown.write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
