"""Larger tasks of SWE-Gym: the shipped list, what was tried, and episodes.

    `python -m benchmarks.swegym_larger FOLDER [--seconds 240] [--markdown FILE]`

FOLDER is the working folder of `make swe-larger`, which has the judge's verdicts. Shipped tasks are
played through the environment, packages by turns, by the expert, who must win, and by the random
player for ten commands and a submission, which must lose. Episodes are logged in FOLDER, so that a
repeated call plays only the missing ones. Exits with 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envsuite import registry
from envsuite.envs.swegym.env import SWEGym
from envsuite.envs.swegym.generated import packages
from envsuite.envs.swegym.generated.tasks import GeneratedTask
from envsuite.envs.swegym.larger import library
from envsuite.envs.swegym.larger.build import read_rows

COMMANDS = 10
PLAYERS = ("expert", "random")
PLAYED = "played.jsonl"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows), ""]


def spread(values: Sequence[int]) -> str:
    return f"{statistics.median(values):g}, {max(values)}" if values else "–"


def described(tasks: Sequence[GeneratedTask]) -> list[str]:
    """Returns the tables of the shipped list: by package, and by kind."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for task in tasks:
        for name in (task.package.name, "all"):
            counts[name][library.kind_of(task.bugs)] += 1
    rows: list[Sequence[object]] = []
    for name in [*packages.PACKAGES, "all"]:
        package = packages.PACKAGES.get(name)
        title, split = (package.title, package.split) if package else (name, "")
        kinds = [counts[name][kind] for kind in library.KINDS]
        rows.append((title, split, *kinds, sum(kinds)))
    lines = table(("package", "split", *library.KINDS, "all"), rows)
    rows = []
    for kind in [*library.KINDS, "all"]:
        of_kind = [task for task in tasks if kind in ("all", library.kind_of(task.bugs))]
        rows.append(
            (
                kind,
                len(of_kind),
                spread([task.patch_lines for task in of_kind]),
                spread([len({(bug.path, bug.function) for bug in task.bugs}) for task in of_kind]),
                spread([len(task.paths) for task in of_kind]),
                spread([len(task.fail_to_pass) for task in of_kind]),
                spread([task.hops for task in of_kind]),
            )
        )
    head = ("kind", "tasks", "lines of the patch", "functions", "files", "FAIL_TO_PASS", "hops")
    return [*lines, "Median and most of each:", "", *table(head, rows)]


def by_operator(rows: Sequence[dict[str, Any]]) -> list[str]:
    tried: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for row in rows:
        number = len(row["operators"])
        name = row["operators"][0] if number == 1 else f"compound of {number}"
        tried[name] += 1
        accepted[name] += "task" in row
    listed = [(name, tried[name], accepted[name], f"{accepted[name] / tried[name]:.0%}") for name in sorted(tried)]
    return table(("operator", "tried", "kept", "share"), listed)


def verdicts(rows: Sequence[dict[str, Any]]) -> list[str]:
    graded: Counter[str] = Counter()
    resolved: Counter[str] = Counter()
    for row in rows:
        for name, results in row["verdicts"].items():
            graded[name] += len(results)
            resolved[name] += sum(results)
    names = ("gold patch", "no change", "empty line", "partial fix", "stub")
    return table(("submission", "graded", "resolved"), [(name, graded[name], resolved[name]) for name in names])


def decision(row: dict[str, Any], listed: set[str]) -> str:
    """Returns what became of a verified candidate."""
    return (
        "kept"
        if row["task"]["id"] in listed
        else "left out: its issue tells too little, or its function has a task already"
    )


def play(folder: Path, tasks: Sequence[GeneratedTask], seconds: float) -> dict[tuple[str, str], bool]:
    """Plays the missing episodes until the time is up; returns all results by task and player."""
    path, until = folder / PLAYED, time.monotonic() + seconds
    results = {(row["id"], row["player"]): bool(row["success"]) for row in read_rows(path)}
    missing = [task for task in tasks if any((task.instance_id, player) not in results for player in PLAYERS)]
    if not missing:
        return results
    names = tuple(task.instance_id for task in missing)
    env = registry.build("SWEGym-larger-v0", larger=library.KINDS, split="all", tests="visible", instances=names)
    assert isinstance(env, SWEGym)
    try:
        for seed in range(len(names)):
            for player in PLAYERS:
                if time.monotonic() < until and (env.panel.games[seed], player) not in results:
                    name, success = episode(env, player, seed)
                    results[name, player] = success
                    with path.open("a") as file:
                        file.write(json.dumps({"id": name, "player": player, "success": success}) + "\n")
    finally:
        env.close()
    return results


def episode(env: SWEGym, player: str, seed: int) -> tuple[str, bool]:
    """Plays one episode; returns the task's id and whether it was won."""
    _, info = env.reset(seed=seed)
    rng, name, over, turn = np.random.default_rng(seed), str(info["labels"]["instance"]), False, 0
    while not over:
        command = env.expert() if player == "expert" else env.random_command(rng) if turn < COMMANDS else "submit"
        _, _, terminated, truncated, info = env.step(command or "submit")
        over, turn = terminated or truncated, turn + 1
    return name, bool(info["success"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop playing then")
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    listed = list(library.larger_tasks().values())
    rows = [row for name in packages.PACKAGES for row in read_rows(args.folder / f"{name}.larger.jsonl")]
    results = play(args.folder, listed, args.seconds)
    won: Counter[str] = Counter()
    played: Counter[str] = Counter()
    for task in listed:
        for player in PLAYERS:
            if (task.instance_id, player) in results:
                played[player] += 1
                won[player] += results[task.instance_id, player]
    reasons = Counter(row.get("no") or decision(row, {task.instance_id for task in listed}) for row in rows)
    shipped = [row for row in rows if "task" in row and row["task"]["id"] in library.larger_tasks()]
    seconds = [row["seconds"] for row in rows]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    page = [
        *("## The list", "", *described(listed)),
        f"{library.MANIFEST.name} takes {library.MANIFEST.stat().st_size} bytes.",
        *("", "## What was tried", "", *by_operator(rows)),
        *table(("decision", "count"), reasons.most_common()),
        f"{sum(seconds) / len(rows):.0f} s each, {sum(seconds) / max(1, reasons['kept']):.0f} s per task kept, "
        "two at the same time, on a crowded machine of two cores.",
        *("", "## The judge's verdicts", "", *verdicts(shipped)),
        *(
            "## Played",
            "",
            *table(
                ("player", "tasks", "played", "won"), [(name, len(listed), played[name], won[name]) for name in PLAYERS]
            ),
        ),
        f"Load average {load} at the end.",
    ]
    print("\n".join(page))
    right = won["expert"] == played["expert"] and not won["random"]
    if args.markdown and right:
        title, _, about = (__doc__ or "").partition("\n\n")
        command, text = (" ".join(part.split()) for part in about.split("\n\n")[:2])
        args.markdown.write_text(f"# {title}\n\n{command}\n\n{text}\n\n" + "\n".join(page) + "\n")
    sys.exit(not right)


if __name__ == "__main__":
    main()
