"""Lays out the site for mkdocs: docs/, and beside them the leaderboards, the benchmarks and the command line.

Links between files of the repository are written as they are on disk (`../benchmarks/scoring.md`); here they are turned
into links of the site, and what is no page of it (code, folders) becomes plain text.
"""

from __future__ import annotations

import importlib
import os
import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from envsuite import registry
from harness import report
from harness.cli.envs import card
from harness.suites import leaderboard_pages

ROOT = Path(__file__).resolve().parents[1]
FIRST = ("evaluation", "models", "report", "environments", "training", "interop")
"""pages of docs/ in the order they are read; others follow"""
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """The navigation, from what is there."""
    pages = {path.stem: path.name for path in (ROOT / "docs").glob("*.md")}
    order = [name for name in FIRST if name in pages]
    order += sorted(name for name in pages if name not in (*FIRST, "README"))
    config.nav = [
        {"Home": "README.md"},
        {"Guides": [pages[name] for name in order]},
        {"Explanation": _section("explanation")},
        {"Environments": [*sorted(f"envs/{path.name}" for path in (ROOT / "docs" / "envs").glob("*.md")), "cards.md"]},
        {"Leaderboards": ["leaderboards/README.md", *(f"leaderboards/{one.name}/README.md" for one in _boards())]},
        {"Generalisation, measured": "leaderboards/generalisation/README.md"},
        {"Published tables": [path.relative_to(ROOT).as_posix() for path in _tables()]},
        {"Training in small": [path.relative_to(ROOT).as_posix() for path in _studies()]},
        {"Benchmarks": sorted(f"benchmarks/{path.name}" for path in (ROOT / "benchmarks").glob("*.md"))},
        {"Specifications": _section("specs")},
        {"Command line": "cli.md"},
    ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds what does not lie in docs/."""

    def add(path: str, content: str) -> None:
        files.append(File.generated(config, path, content=content))

    for path in sorted((ROOT / "leaderboards" / "training").glob("*/*.svg")):
        add(path.relative_to(ROOT).as_posix(), path.read_text())
    for path in [*_tables(), *_studies(), *sorted((ROOT / "benchmarks").glob("*.md"))]:
        add(path.relative_to(ROOT).as_posix(), path.read_text())
    for path, text in leaderboard_pages.pages(ROOT / "leaderboards").items():
        add(path.relative_to(ROOT).as_posix(), text)
    for folder in _boards():
        page = report.render(
            report.ReportData(report.read_board(folder)), f"{folder.name}: episodes", config.extra["replays"]
        )
        add(f"leaderboards/{folder.name}/episodes.html", page)
    add("cli.md", command_line())
    add("cards.md", cards())
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links as the site needs them; a board's page leads to its episodes."""
    here = page.file.src_uri
    # Where the page lies in the repository: only docs/ is not at its own place.
    elsewhere = here.startswith(("benchmarks/", "leaderboards/"))
    base = posixpath.dirname(here if elsewhere else f"docs/{here}")

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match.group(1), match.group(2), match.group(3) or ""
        if "://" in target or target.startswith("mailto:"):
            return match.group(0)
        path = posixpath.normpath(posixpath.join(base, target)).removeprefix("docs/")
        for one in (path, f"{path}/README.md"):
            if files.get_file_from_path(one) is not None:
                return f"[{text}]({posixpath.relpath(one, posixpath.dirname(here) or '.')}{anchor})"
        if not (ROOT / posixpath.join(base, target)).exists():
            return match.group(0)  # leads nowhere: mkdocs says so
        return text

    if files.get_file_from_path(posixpath.join(posixpath.dirname(here), "episodes.html")) is not None:
        markdown = markdown.replace("\n\n", "\n\n[Read the episodes](episodes.html).\n\n", 1)
        return markdown
    return LINK.sub(link, markdown)


def _section(folder: str) -> list[str]:
    """Returns the pages of a folder of docs/, its overview first."""
    pages = sorted((ROOT / "docs" / folder).glob("*.md"), key=lambda path: (path.stem != "README", path.name))
    return [f"{folder}/{path.name}" for path in pages]


def _boards() -> list[Path]:
    return leaderboard_pages.folders(ROOT / "leaderboards")


def _tables() -> list[Path]:
    """Published tables beside our runs, their overview first."""
    return sorted((ROOT / "leaderboards" / "tables").glob("*.md"), key=lambda path: (path.stem != "README", path.name))


def _studies() -> list[Path]:
    """Trainings in small, their overview first, and the notes on each."""
    root = ROOT / "leaderboards" / "training"
    return [root / "README.md", *sorted([*root.glob("*/README.md"), *root.glob("*/NOTES.md")])]


def cards() -> str:
    """What was measured of every task's difficulty, from the cards that the package ships."""
    lines = [
        "# Difficulty cards\n",
        "What was measured of each task, as `envsuite-envs NAME --card` prints it with the task's knobs. Success of the random",
        "player and of the expert is a share of the card's episodes; a dash stands where nothing was measured.",
    ]
    family = ""
    for task in sorted(registry.tasks("*"), key=lambda task: (task.family, task.id)):
        if not (found := card(task)):
            continue
        if task.family != family:
            family = task.family
            lines += [
                f"\n## {family}\n",
                "| task | episodes | random | expert | its commands, mean (most) | admissible, mean |",
            ]
            lines.append("|---|--:|--:|--:|--:|--:|")
        length = found.get("solution_length")
        cells = [task.id, found["episodes"], found["random_success"], found.get("expert_success", "–")]
        cells += [f"{length['mean']} ({length['max']})" if length else "–", found["admissible_commands"]["mean"] or "–"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def command_line() -> str:
    """Every command's own help, as its parser prints it."""
    os.environ["COLUMNS"] = "84"  # argparse folds to the terminal it finds
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    parts = ["# Command line\n", "Every command's help, from the code.\n"]
    for name, target in sorted(scripts.items()):
        text = importlib.import_module(target.partition(":")[0]).parser().format_help()
        parts.append(f"## {name}\n\n```text\n{text.rstrip()}\n```\n")
    return "\n".join(parts)
