"""Learning curves of a study: `curves.svg` and `README.md` from its `runs.jsonl`, nothing typed by hand.

    python -m baselines.studies.curves leaderboards/training/food-preparation

The line is the mean over seeds of what the training episodes of an update won, the band its 95 % interval (Student's t over
seeds: with few of them it is wide, and should be). A run of the plan that is not in the records is printed as not run.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from envsuite.cache import write_atomically
from harness import cli
from harness.stats.intervals import student
from harness.suites.training_studies import plan_of, read

COLOURS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e5ea2", "#b8860b")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 360, 56, 16, 44
POINTS = 60
"""of a curve, over the steps that all its seeds have played"""


class Curve(NamedTuple):
    """Success over environment steps, mean and 95 % bounds over seeds; all [P]."""

    steps: Any
    mean: Any
    low: Any
    high: Any


def curve(runs: Sequence[dict[str, Any]]) -> Curve:
    """The curve of one setting: seeds have played different numbers of steps, and are read off at the same ones."""
    each = [([u["env_steps"] for u in run["updates"]], [u["success"] for u in run["updates"]]) for run in runs]
    grid = np.linspace(max(x[0] for x, _ in each), min(x[-1] for x, _ in each), POINTS)
    found = np.array([[student(column)[:3] for column in zip(*(np.interp(grid, x, y) for x, y in each))]])[0]
    return Curve(grid, found[:, 0], found[:, 1].clip(0, 1), found[:, 2].clip(0, 1))


def steps_to(run: dict[str, Any], share: float) -> float:
    """Environment steps until the mean success of two updates in a row is at least `share`; inf: never."""
    won = [update["success"] for update in run["updates"]]
    for place in range(1, len(won)):
        if (won[place - 1] + won[place]) / 2 >= share:
            return float(run["updates"][place]["env_steps"])
    return math.inf


def picture(curves: dict[str, Curve]) -> str:
    """An SVG of all settings, one colour each."""
    most = max(float(found.steps[-1]) for found in curves.values())
    at = lambda x, y: f"{LEFT + x / most * (WIDTH - LEFT - 12):.1f},{TOP + (1 - y) * (HEIGHT - TOP - BOTTOM):.1f}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        left, right = at(0, share), at(most, share)
        x, y = left.split(",")
        parts.append(f'<polyline points="{left} {right}" fill="none" stroke="#ddd"/>')
        parts.append(f'<text x="{float(x) - 6}" y="{float(y) + 4}" text-anchor="end">{100 * share:.0f} %</text>')
    for part in range(5):
        x, y = at(most * part / 4, 0).split(",")
        parts.append(f'<text x="{x}" y="{float(y) + 16}" text-anchor="middle">{most * part / 4:,.0f}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">environment steps</text>')
    for colour, found in zip(itertools.cycle(COLOURS), curves.values()):
        up = [at(x, y) for x, y in zip(found.steps, found.high)]
        down = [at(x, y) for x, y in zip(found.steps, found.low)]
        parts.append(f'<polygon points="{" ".join(up + down[::-1])}" fill="{colour}" fill-opacity="0.15"/>')
        line = " ".join(at(x, y) for x, y in zip(found.steps, found.mean))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for row, (colour, name) in enumerate(zip(itertools.cycle(COLOURS), curves)):
        down_to = HEIGHT - BOTTOM - 12 - 16 * (len(curves) - 1 - row)
        parts.append(f'<text x="{WIDTH - 20}" y="{down_to}" text-anchor="end" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def page(folder: Path) -> tuple[str, dict[str, Curve]]:
    """The README of a study, and its curves. Raises DataError where nothing was run."""
    plan = plan_of(folder)
    runs = read(folder / "runs.jsonl")
    by = {value: [run for run in runs if run["variant"] == value] for value in plan["variants"]}
    curves = {value: curve(found) for value, found in by.items() if found}
    setting = " ".join(f"--set {key}={value}" for key, value in plan["set"].items())
    lines = [
        f"# {plan.get('title') or plan['recipe'] + ': ' + plan['vary'] + ' compared'}",
        "",
        *(_about(runs[0]) if runs else ("Not run yet.", "")),
        f"| {plan['vary']} | seeds run | success at first | success at last (95 % over seeds) | steps to 90 % (mean of seeds that reach it) | held-out games before and after, as `acting.eval_temperature` plays | CPU s per run |",
        "|---|---|---|---|---|---|---|",
    ]
    for value, found in by.items():
        ran = f"{len(found)} of {plan['seeds']}"
        if not found:
            lines.append(f"| {value} | {ran} | not run | not run | not run | not run | not run |")
            continue
        mean, low, high, _ = student([run["updates"][-1]["success"] for run in found])
        bounds = f"{max(0.0, low):.2f} to {min(1.0, high):.2f}" if len(found) > 1 else "one seed"
        reached = [steps for run in found if (steps := steps_to(run, 0.9)) < math.inf]
        to = (
            f"{sum(reached) / len(reached):,.0f} ({len(reached)} of {len(found)})"
            if reached
            else f"none of {len(found)}"
        )
        first = sum(run["updates"][0]["success"] for run in found) / len(found)
        cost = sum(run["cpu_seconds"] for run in found) / len(found)
        wins = " -> ".join(_of_all([run["evals"][place] for run in found]) for place in (0, -1))
        lines.append(f"| {value} | {ran} | {first:.2f} | {mean:.2f} ({bounds}) | {to} | {wins} | {cost:.0f} |")
    missing = []
    for value, found in by.items():
        seeds = sorted(set(range(plan["seeds"])) - {run["seed"] for run in found})
        if seeds:
            missing.append(f"{value} (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})")
    lines += ["", f"Not run: {', '.join(missing)}." if missing else "All runs of the plan were run.", ""]
    lines += [
        "```bash",
        f"python -m baselines.studies.run {folder.as_posix()}    # the plan: {plan['vary']} = {', '.join(plan['variants'])}; "
        f"{plan['seeds']} seeds{'; ' + setting if setting else ''}",
        f"python -m baselines.studies.curves {folder.as_posix()}",
        "```",
        "",
    ]
    notes = folder / "NOTES.md"
    return "\n".join(lines) + ("\n" + notes.read_text() if notes.exists() else ""), curves


def _of_all(evals: Sequence[dict[str, Any]]) -> str:
    return f"{sum(one['success'] * one['n'] for one in evals):.0f} of {sum(one['n'] for one in evals)}"


def _about(one: dict[str, Any]) -> tuple[str, ...]:
    said = (
        f"{one['task']}. Success of training episodes, sampled; {len(one['updates'])} updates. "
        f"torch {one['torch']}, {one['threads']} thread, {one['host']}."
    )
    return said, "", "![learning curves](curves.svg)", ""


def index(parent: Path) -> str:
    """The README above all studies: what was planned, and how much of it was run."""
    lines = [
        "# Training",
        "",
        "Learning curves in small, each page rendered from its `runs.jsonl` by `python -m baselines.studies.curves leaderboards/training`. What a plan",
        "still lacks is run by `make studies`, or for one of them by `python -m baselines.studies.run leaderboards/training/NAME`.",
        "",
        "| study | recipe | compared | runs |",
        "|---|---|---|---|",
    ]
    for folder in studies(parent):
        plan = plan_of(folder)
        ran, wanted = len(read(folder / "runs.jsonl")), plan["seeds"] * len(plan["variants"])
        state = f"{ran} of {wanted}" if ran else f"not run ({wanted})"
        title = plan.get("title") or plan["recipe"]
        compared = f"`{plan['vary']}`: {', '.join(plan['variants'])}"
        lines.append(f"| [{title}]({folder.name}/README.md) | `{plan['recipe']}` | {compared} | {state} |")
    return "\n".join(lines) + "\n"


def studies(parent: Path) -> list[Path]:
    return sorted(path.parent for path in parent.glob("*/plan.json"))


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m baselines.studies.curves", description=(__doc__ or "").splitlines()[0]
    )
    found.add_argument("folder", type=Path, nargs="+", help="of a study, or of several")
    found.add_argument("-v", "--verbose", action="store_true")
    return found


def main(argv: Sequence[str] | None = None) -> None:
    cli.run(_main, argv)


def _main(argv: Sequence[str] | None) -> int:
    for asked in parser().parse_args(argv).folder:
        for folder in studies(asked) or [asked]:
            text, curves = page(folder)
            if curves:
                write_atomically(folder / "curves.svg", picture(curves))
            write_atomically(folder / "README.md", text)
            print(folder / "README.md")
        if studies(asked):
            write_atomically(asked / "README.md", index(asked))
    return 0


if __name__ == "__main__":
    main()
