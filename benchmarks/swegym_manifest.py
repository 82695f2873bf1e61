"""Generated tasks of SWE-Gym: candidates tried and kept, speed, and a sample played through the
environment.

    python -m benchmarks.swegym_manifest FOLDER [--play N] [--markdown FILE]

FOLDER is the working folder of `make swe-manifest` or `python -m envsuite.envs.swegym.generated.build`. If it
contains playable tasks (`packages.json`), they are described, otherwise the shipped list. A sample
over all packages and numbers of bugs is played by the expert, who must win, and by a player who
submits at once, who must lose.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from envsuite import registry
from envsuite.envs.swegym.env import SWEGym
from envsuite.envs.swegym.makers import generator
from envsuite.envs.swegym.planted import packages, tasks

Rows = dict[str, list[dict[str, Any]]]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows), ""]


def by_package(listed: Sequence[tasks.PlantedTask], known: dict[str, packages.Package]) -> list[str]:
    rows = []
    for name, package in [*known.items(), ("all", None)]:
        results = [task for task in listed if name in ("all", task.package.name)]
        bugs = Counter(len(task.bugs) for task in results)
        failing = [len(task.fail_to_pass) for task in results]
        rows.append(
            (
                package.title if package else "all",
                package.split if package else "",
                *(bugs[count] for count in (1, 2, 3)),
                len(results),
                f"{statistics.median(failing):g}, {max(failing)}" if failing else "–",
                sum(task.hops > 1 for task in results),
                sum(len(task.paths) > 1 for task in results),
            )
        )
    head = ("package", "split", "1 bug", "2 bugs", "3 bugs", "all", "failing tests: median, most", "2 hops or more")
    return table((*head, "2 files or more"), rows)


def interacting(listed: Sequence[tasks.PlantedTask]) -> str:
    """Returns how many compounds have a test that fails for each of two bugs."""
    alone = {bug: set(task.fail_to_pass) for task in listed if len(task.bugs) == 1 for bug in task.bugs}
    compounds = [task for task in listed if len(task.bugs) > 1 and all(bug in alone for bug in task.bugs)]
    met = [
        task
        for task in compounds
        if any(count > 1 for count in Counter(test for bug in task.bugs for test in alone[bug]).values())
    ]
    return (
        f"Of {len(compounds)} compounds {len(met)} interact: a test fails for one of their bugs as well as for another."
    )


def by_operator(rows: Rows) -> list[str]:
    tried: Counter[str] = Counter()
    stored: Counter[str] = Counter()
    for row in (row for results in rows.values() for row in results):
        kind = row["operators"][0] if len(row["operators"]) == 1 else f"compound of {len(row['operators'])}"
        tried[kind] += 1
        stored[kind] += "task" in row
    order = sorted(tried, key=lambda kind: (kind.startswith("compound"), -stored[kind] / tried[kind]))
    return table(
        ("operator", "tried", "kept", "share"),
        [(kind, tried[kind], stored[kind], f"{stored[kind] / tried[kind]:.0%}") for kind in order],
    )


def by_reason(rows: Rows) -> list[str]:
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for name, results in rows.items():
        for row in results:
            reasons[row.get("no", "kept")][name] += 1
    order = sorted(reasons, key=lambda reason: -reasons[reason].total())
    return table(("", *rows), [(reason, *(reasons[reason][name] for name in rows)) for reason in order])


def rate(folder: Path) -> list[str]:
    path = folder / "runs.jsonl"
    runs = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    rows = [
        (
            run["workers"],
            ", ".join(map(str, run["load"])),
            run["tried"],
            run["tasks"],
            f"{run['seconds']:.0f}",
            f"{run['tasks'] / run['seconds']:.2f}",
        )
        for run in runs
        if run["tasks"]
    ]
    head = ("workers", "load before, after", "tried", "tasks", "seconds", "tasks per second")
    return table(head, rows)


def sample(listed: Sequence[tasks.PlantedTask], count: int) -> list[tasks.PlantedTask]:
    """Returns a random sample of `count` tasks, spread over packages and numbers of bugs."""
    chance = random.Random(0)
    groups: dict[tuple[str, int], list[tasks.PlantedTask]] = defaultdict(list)
    for task in listed:
        groups[task.package.name, len(task.bugs)].append(task)
    for group in groups.values():
        chance.shuffle(group)
    results: list[tasks.PlantedTask] = []
    while len(results) < min(count, len(listed)):
        results += [group.pop() for group in groups.values() if group]
    return results[:count]


def play(chosen: Sequence[tasks.PlantedTask], seconds: float, folder: str = "") -> list[str]:
    """Plays tasks like agents do, with the failing tests hidden in every second one."""
    won: dict[str, Counter[str]] = {"expert": Counter(), "idle": Counter()}
    played: Counter[str] = Counter()
    strange, began = [], time.monotonic()
    for number, tests in enumerate(("visible", "hidden")):
        names = tuple(task.instance_id for task in chosen[number::2])
        if not names:
            continue
        env = registry.build("SWEGym-medium-v0", split="all", bugs=0, tests=tests, instances=names, tasks=folder)
        assert isinstance(env, SWEGym)
        try:
            for seed in range(len(names)):
                if time.monotonic() - began > seconds * (number + 1) / 2:
                    break
                for player in won:
                    _, info = env.reset(seed=seed)
                    labels = info["labels"]
                    over = False
                    while not over:
                        command = env.expert() if player == "expert" else "submit"
                        _, _, terminated, truncated, info = env.step(command or "submit")
                        over = terminated or truncated
                    kind = f"{labels['package']}, {labels['bugs']}"
                    played[kind] += player == "expert"
                    won[player][kind] += info["success"]
                    if info["success"] != (player == "expert"):
                        strange.append(f"{labels['instance']} ({player}: {info['fault'] or info['success']})")
                print(f"{sum(played.values())} of {len(chosen)} played, {len(strange)} strange", file=sys.stderr)
        finally:
            env.close()
    rows = [(kind, played[kind], won["expert"][kind], won["idle"][kind]) for kind in sorted(played)]
    rows.append(("all", sum(played.values()), won["expert"].total(), won["idle"].total()))
    lines = table(("package, bugs", "played", "won by the expert", "won by submitting at once"), rows)
    lines.append(f"{time.monotonic() - began:.0f} s." + (f" Strange: {', '.join(strange)}." if strange else ""))
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--play", type=int, default=72, metavar="N")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop playing then")
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    own = args.folder if (args.folder / packages.DESCRIBED).exists() else None
    known = packages.described(own) if own else packages.PACKAGES
    listed = tasks.manifest(own)
    size = (own / tasks.MANIFEST.name if own else tasks.MANIFEST).stat().st_size
    rows: Rows = {}
    for name in known:
        path = args.folder / f"{name}.jsonl"
        rows[name] = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    files = sorted(args.folder.glob("*.whole.jsonl"))
    complete = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    lines = ["## The list", "", *by_package(listed, known), interacting(listed)]
    lines += [f"{tasks.MANIFEST.name} takes {size / 1000:.0f} kB.", ""]
    lines += ["## What was tried", "", *by_reason(rows), *by_operator(rows)]
    lines += ["## How fast", "", *rate(args.folder)]
    same = sum(row["confirmed"] for row in complete)
    lines += [
        f"The whole suite was run once more on {len(complete)} tasks: on {same} exactly the listed tests failed.",
        "",
    ]
    if args.play:
        lines += ["## A sample, played", "", *play(sample(listed, args.play), args.seconds, str(own or ""))]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    lines.append(
        f"{os.cpu_count()} cores, load average {load} at the end. At most {generator.SHARE:.0%} of the tests may fail."
    )
    print("\n".join(lines))
    if args.markdown:
        head = (
            "# SWE-Gym: the generated tasks\n\n"
            f"`python -m benchmarks.swegym_manifest {args.folder} --markdown FILE`\n\n"
        )
        args.markdown.write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
