"""Latencies of SWE-Gym per sandbox driver, compared with plain subprocesses and `docker run`, in one
run.

Also compares the warm pool with cold starts, and judges real instances.

    .ci/dockerd python -m benchmarks.swegym [driver ...] [-n N] [--real FOLDER] [--markdown FILE]

`--markdown` writes the measured sections and preserves the others of that file.
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
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from envsuite import registry, sandbox
from envsuite.envs.swegym.env import SWEGym
from envsuite.envs.swegym.planted import tasks
from envsuite.sandbox import docker, drivers

TASK = next(task for task in tasks.manifest() if task.package.name == "uritemplate" and len(task.bugs) == 1)
COLUMNS = ("reset", "exec", "python", "edit", "grade")
THINKING = 1.0
"""seconds between commands, in which a model would write the next one"""
LATENCIES = """reset: restores a repository of 25 files for another attempt, and runs the first command in a sandbox
started cold. exec: `true`. python: `python -c pass`. edit: one str_replace. grade: 58 tests in a fresh sandbox,
twice (the second time sabotaged). By hand: copy and `git commit`; `bash -c true`; `python -c pass`; nothing;
`python -m pytest` on a copy, once."""
WARMTH = f"""From the end of one episode to the reply to the first command of the next (reset, and `true`), with a model
that thinks for {THINKING:g} s per command: with the next sandbox started during the episode (`warm`, the default),
and without."""
REAL = """The gold patch, a useless change (an empty line) and no change, judged in fresh sandboxes; reset: the first
one of the instance, which writes its repository. pip's results are in the cache before."""


def median_ms(act: Callable[[], object], count: int) -> float:
    results = []
    for _ in range(count):
        began = time.perf_counter()
        act()
        results.append(time.perf_counter() - began)
    return statistics.median(results) * 1e3


def measured(driver: str, count: int) -> dict[str, float]:
    env = registry.build("SWEGym-easy-v0", sandbox=driver, instances=(TASK.instance_id,), max_steps=10_000, warm=False)
    assert isinstance(env, SWEGym)
    try:
        env.reset(seed=0)
        command = env.expert()
        assert command is not None and env._problem is not None
        gold, problem = env._problem.gold(), env._problem
        assert problem.judge(gold, 600).resolved  # the sandbox that judges is warm from here on
        results = {"reset": median_ms(lambda: (env.reset(seed=0), env.step("true")), count)}
        results["exec"] = median_ms(lambda: env.step("true"), 3 * count)
        results["python"] = median_ms(lambda: env.step("python -c pass"), count)
        results["edit"] = median_ms(lambda: (env.step(command), env.step(f"undo {TASK.paths[0]}")), count) / 2
        results["grade"] = median_ms(lambda: problem.judge(gold, 600), max(2, count // 3))
        return results
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

        results = {"reset": median_ms(lay, count)}
        results["exec"] = median_ms(lambda: subprocess.run(["bash", "-c", "true"], check=True), 3 * count)
        results["python"] = median_ms(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), count)
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
        environment = {**os.environ, "PYTHONPATH": str(place)}
        results["grade"] = median_ms(
            lambda: subprocess.run(tests, cwd=place, env=environment, check=True, capture_output=True),
            max(2, count // 3),
        )
        return results


def docker_run(count: int) -> dict[str, float]:
    """Runs every command in a container started for it, from the thin image of the docker driver."""
    command = ["docker", "run", "--rm", "--network=none", "-v", "/usr:/usr:ro", docker.THIN, "/usr/bin/true"]
    return {"exec": median_ms(lambda: subprocess.run(command, check=True, capture_output=True), count)}


def warmth(driver: str, count: int) -> dict[str, float]:
    """Measures milliseconds from one episode to the next one's first reply, alternating warm and cold."""
    envs = {
        name: registry.build("SWEGym-easy-v0", sandbox=driver, instances=(TASK.instance_id,), warm=name == "warm")
        for name in ("warm", "cold")
    }
    try:
        results: dict[str, list[float]] = {name: [] for name in envs}
        for env in envs.values():
            env.reset(seed=0)
            env.step("true")
        for _ in range(count):
            for name, env in envs.items():
                time.sleep(THINKING)
                began = time.perf_counter()
                env.reset(seed=0)
                env.step("true")
                results[name].append((time.perf_counter() - began) * 1e3)
        return {name: statistics.median(times) for name, times in results.items()}
    finally:
        for env in envs.values():
            env.close()


def real(driver: str, folder: str, instance: str) -> list[str]:
    """Returns a row with the result of each change, and seconds."""
    env = registry.build("SWEGym-records-v0", records=folder, instances=(instance,), sandbox=driver)
    assert isinstance(env, SWEGym)
    try:
        cells = []
        began = time.perf_counter()
        env.reset(seed=0)
        env.step("true")
        cells.append(f"{time.perf_counter() - began:.0f}")
        problem = env._problem
        assert problem is not None
        there = next(path for path in problem.gold_files if path in env._base)
        for changes in (problem.gold(), {there: env._base[there] + b"\n"}, {}):
            began = time.perf_counter()
            report = problem.judge(changes, 1800)
            seconds = time.perf_counter() - began
            passing = len(report.fail_to_pass), len(report.pass_to_pass)
            total = passing[0] + len(report.fail_to_pass_left), passing[1] + len(report.pass_to_pass_broken)
            tests = report.fault or f"{passing[0]}/{total[0]}, {passing[1]}/{total[1]}"
            cells.append(f"{'resolved' if report.resolved else 'not resolved'} ({tests}), {seconds:.0f} s")
        return cells
    finally:
        env.close()


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def load() -> str:
    values = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{os.cpu_count()} cores, load average {values}."


def written(file: Path, sections: dict[str, list[str]]) -> str:
    """Returns the page with `sections` replaced."""
    stored = {}
    if file.is_file():
        for part in file.read_text().split("\n## ")[1:]:
            title, _, body = part.partition("\n")
            stored[title] = body.strip().splitlines()
    command = "`.ci/dockerd python -m benchmarks.swegym --real ../shared/data/swe --markdown benchmarks/swegym.md`"
    parts = [f"# SWE-Gym: measured\n\n{command}"]
    parts += [f"## {title}\n\n" + "\n".join(body) for title, body in {**stored, **sections}.items()]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drivers", nargs="*", default=list(sandbox.DRIVERS))
    parser.add_argument("-n", type=int, default=9, help="repetitions; 0: only --real")
    parser.add_argument("--real", metavar="FOLDER", help="a folder of instances with recipes")
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    chosen = []
    for driver in args.drivers:
        if reason := drivers.probe(driver):
            print(f"{driver}: left out, {reason}", file=sys.stderr)
        else:
            chosen.append(driver)
    sections: dict[str, list[str]] = {}
    if args.n:
        sections["Latencies"] = latencies(chosen, args.n)
        rows = {driver: warmth(driver, args.n) for driver in chosen}
        cells = [
            [name, f"{row['warm']:.0f}", f"{row['cold']:.0f}", f"{row['cold'] / row['warm']:.1f}"]
            for name, row in rows.items()
        ]
        message = table(("ms (median)", "warm", "cold", "cold / warm"), cells)
        sections["Warm pool against cold starts"] = [WARMTH, "", *message, "", f"{args.n} repetitions; {load()}"]
    if args.real:
        names = ("instance", "driver", "reset, s", "gold patch", "without use", "no change")
        results = []
        panel = registry.panel(registry.TASKS["SWEGym-records-v0"], records=args.real)
        assert panel is not None  # records are a finite list
        for driver in chosen:
            for instance in panel.games:
                results.append([instance, driver, *real(driver, args.real, instance)])
                print(results[-1], file=sys.stderr)
        message = table(names, results)
        sections["Real instances"] = [
            REAL,
            "",
            *message,
            "",
            f"In brackets: FAIL_TO_PASS and PASS_TO_PASS tests that pass, or why nothing was run. {load()}",
        ]
    for title, body in sections.items():
        print("\n".join([f"## {title}", "", *body, ""]))
    if args.markdown:
        args.markdown.write_text(written(args.markdown, sections))


def latencies(chosen: Sequence[str], count: int) -> list[str]:
    rows = {"by hand": by_hand(count)}
    for driver in chosen:
        rows[driver] = measured(driver, count)
        if driver == "docker" and shutil.which("docker"):
            rows["docker run"] = docker_run(count)
    cells = [
        [name, *(f"{row[column]:.0f}" if column in row else "–" for column in COLUMNS)] for name, row in rows.items()
    ]
    return [LATENCIES, "", *table(("ms (median)", *COLUMNS), cells), "", f"{count} repetitions; {load()}"]


if __name__ == "__main__":
    main()
