"""Renders a study's page, `README.md` with a picture per section, from its `runs.jsonl`.

    python -m baselines.studies.curves leaderboards/training/food-preparation

A line is the mean over runs of the success rate of an update's training episodes, the band its 95
% interval (Student's t). `baselines.studies.factorial` makes sections, tables and differences.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from baselines.studies import factorial
from envsuite.cache import write_atomically
from harness import cli
from harness.stats.intervals import student
from harness.suites.training_studies import plan_of, stored_runs

COLOURS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e5ea2", "#b8860b", "#17a2b8", "#444444", "#e377c2")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 360, 56, 16, 44
"""The picture and its margins, in pixels."""
LEAST = 5
"""Runs from which on a curve has a band: the interval of fewer is nearly everything."""
FEW = 3
"""Curves up to which their names are inside the picture; more have their names to its right, and paler bands."""
NAMES = 96
"""Width of the names beside a picture, in pixels."""
POINTS = 60
"""Points of a curve, over the steps that all its seeds have played."""


class LearningCurve(NamedTuple):
    """Success over environment steps, with mean and 95 % bounds over seeds; every field is [P]."""

    steps: Any
    mean: Any
    low: Any
    high: Any


def curve(runs: Sequence[dict[str, Any]]) -> LearningCurve:
    """Returns the curve of one method. Seeds have played different numbers of steps and are interpolated at
    common ones."""
    per_seed = [([u["env_steps"] for u in run["updates"]], [u["success"] for u in run["updates"]]) for run in runs]
    grid = np.linspace(max(x[0] for x, _ in per_seed), min(x[-1] for x, _ in per_seed), POINTS)
    columns = zip(*(np.interp(grid, x, y) for x, y in per_seed), strict=True)
    if len(runs) < LEAST:
        mean = np.array([sum(column) / len(column) for column in columns])
        return LearningCurve(grid, mean, mean, mean)
    bounds = np.array([student(column)[:3] for column in columns])
    return LearningCurve(grid, bounds[:, 0], bounds[:, 1].clip(0, 1), bounds[:, 2].clip(0, 1))


def picture(curves: dict[str, LearningCurve]) -> str:
    """Returns an SVG with the curves of all settings."""
    few = len(curves) <= FEW
    width, opacity = (WIDTH, 0.15) if few else (WIDTH + NAMES, 0.07)
    longest = max(float(c.steps[-1]) for c in curves.values())

    def point(x: float, y: float) -> str:
        return f"{LEFT + x / longest * (WIDTH - LEFT - 12):.1f},{TOP + (1 - y) * (HEIGHT - TOP - BOTTOM):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{HEIGHT}" fill="white"/>',
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        left, right = point(0, share), point(longest, share)
        x, y = left.split(",")
        parts.append(f'<polyline points="{left} {right}" fill="none" stroke="#ddd"/>')
        parts.append(f'<text x="{float(x) - 6}" y="{float(y) + 4}" text-anchor="end">{100 * share:.0f} %</text>')
    for quarter in range(5):
        x, y = point(longest * quarter / 4, 0).split(",")
        label = f"{longest * quarter / 4:,.0f}"
        anchor = "end" if quarter == 4 else "middle"  # the last label would leave the picture
        parts.append(f'<text x="{x}" y="{float(y) + 16}" text-anchor="{anchor}">{label}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">environment steps</text>')
    for colour, c in zip(itertools.cycle(COLOURS), curves.values(), strict=False):
        upper = [point(x, y) for x, y in zip(c.steps, c.high, strict=True)]
        lower = [point(x, y) for x, y in zip(c.steps, c.low, strict=True)]
        parts.append(f'<polygon points="{" ".join(upper + lower[::-1])}" fill="{colour}" fill-opacity="{opacity}"/>')
        line = " ".join(point(x, y) for x, y in zip(c.steps, c.mean, strict=True))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for row, (colour, name) in enumerate(zip(itertools.cycle(COLOURS), curves, strict=False)):
        y_text = HEIGHT - BOTTOM - 12 - 16 * (len(curves) - 1 - row)
        position = f'x="{WIDTH - 20}" y="{y_text}" text-anchor="end"' if few else f'x="{WIDTH}" y="{y_text}"'
        parts.append(f'<text {position} fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def rendered(folder: Path) -> dict[str, str]:
    """Returns the files of a study's page by name. Raises DataError if the folder holds no plan."""
    plan = plan_of(folder)
    runs = stored_runs(folder, plan)
    files: dict[str, str] = {}
    planned = len(plan["variants"]) * plan["seeds"]
    lines = [f"# {plan['title']}", "", f"{len(runs)} of {planned} runs of the plan were run.", ""]
    for title, section in factorial.sections(plan):
        by_method = factorial.runs_of(plan, runs, section)
        lines += [f"## {title}", ""]
        if not by_method:
            lines += ["Not run yet.", ""]
            continue
        name = f"curves-{title.replace(' ', '-')}.svg"
        files[name] = picture({method: curve(of_method) for method, of_method in by_method.items()})
        lines += [
            _about(next(iter(by_method.values()))[0]),
            "",
            f"![learning curves]({name})",
            "",
            f"A band is the 95 % interval over all runs of a method; with fewer than {LEAST} there is none.",
            "",
        ]
        lines += [*factorial.tables(plan, by_method), ""]
    lines += _commands(folder, plan)
    notes = folder / "NOTES.md"
    text = "\n".join([*lines, ""]) + ("\n" + notes.read_text() if notes.exists() else "")
    return {"README.md": text, **files}


def _about(run: dict[str, Any]) -> str:
    """Returns the line above a section's picture, from its first run."""
    threads = f"{run['threads']} thread{'s' * (run['threads'] != 1)}"
    return (
        f"{run['task']}. Success of training episodes, sampled; {len(run['updates'])} updates. "
        f"torch {run['torch']}, {threads}, {run['host']}."
    )


def _commands(folder: Path, plan: dict[str, Any]) -> list[str]:
    """Returns the commands that run the plan and render the page."""
    settings = " ".join(f"--set {key}={value}" for key, value in plan["set"].items())
    values = [", ".join(levels) for levels in plan["factors"].values()]
    first = f" from {plan['first_seed']}" if plan.get("first_seed") else ""
    return [
        f"The plan: `{plan['vary']}` = {' x '.join(values)}; {plan['seeds']} seed{'s' * (plan['seeds'] != 1)}{first}"
        f"{'; `' + settings + '`' if settings else ''}.",
        "",
        "```bash",
        f"python -m baselines.studies.run {folder.as_posix()}",
        f"python -m baselines.studies.curves {folder.as_posix()}",
        "```",
    ]


def index(parent: Path) -> str:
    """Returns the README above all studies: each plan, and how much of it was run."""
    lines = [
        "# Training",
        "",
        "Learning curves of small studies. Each page is rendered from its `runs.jsonl` by",
        "`python -m baselines.studies.curves leaderboards/training`. The missing runs of all plans "
        "are run by `make studies`,",
        "those of one plan by `python -m baselines.studies.run leaderboards/training/NAME`.",
        "",
        "| study | recipe | compared | runs |",
        "|---|---|---|---|",
    ]
    for folder in studies(parent):
        plan = plan_of(folder)
        ran, planned = len(stored_runs(folder, plan)), plan["seeds"] * len(plan["variants"])
        state = f"{ran} of {planned}" if ran else f"not run ({planned})"
        values = [", ".join(levels) for levels in plan["factors"].values()]
        compared = f"`{plan['vary']}`: {' x '.join(values)}"
        lines.append(f"| [{plan['title']}]({folder.name}/README.md) | `{plan['recipe']}` | {compared} | {state} |")
    return "\n".join(lines) + "\n"


def studies(parent: Path) -> list[Path]:
    """Returns the folders of studies below `parent`."""
    return sorted(path.parent for path in parent.glob("*/plan.json"))


def parser() -> argparse.ArgumentParser:
    """Returns the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m baselines.studies.curves", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("folder", type=Path, nargs="+", help="the folder of a study, or of several studies")
    parser.add_argument("-v", "--verbose", action="store_true", help="print tracebacks")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command and exits."""
    cli.run(_main, argv)


def _main(argv: Sequence[str] | None) -> int:
    for parent in parser().parse_args(argv).folder:
        for folder in studies(parent) or [parent]:
            for name, text in rendered(folder).items():
                write_atomically(folder / name, text)
            print(folder / "README.md")
        if studies(parent):
            write_atomically(parent / "README.md", index(parent))
    return 0


if __name__ == "__main__":
    main()
