"""Lays out the site for mkdocs: docs/, the leaderboards, the benchmarks and the command line.

Pages link to files of the repository by their path on disk (`../benchmarks/rollout.md`). The hooks
turn these into links of the site. A link to a file that is not a page, such as code, becomes text.
"""

from __future__ import annotations

import importlib
import logging
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from envsuite import registry
from harness import report
from harness.__main__ import VERBS
from harness.cli.envs import card, share_of_wins
from harness.suites import leaderboard_pages

ROOT = Path(__file__).resolve().parents[1]
HOWTO = (
    *("install", "model-server", "own-environment", "own-table", "watch", "read-episodes", "reuse-episodes"),
    *("check-results", "reproduce", "leaderboard"),
    *("train-one-gpu", "train-many-nodes", "ray", "other-tools"),
)
"""how-to pages in the order of a project; others follow"""
REFERENCE = (
    *("cli", "evaluation", "models", "templates", "suites", "recipes"),
    *("api-environments", "api-harness", "api-training"),
)
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Builds the navigation from the files that exist."""
    # Shapes such as [N][T] in docstrings look like cross-references, which the pages do not use.
    logging.getLogger("mkdocs.plugins.mkdocs_autorefs").setLevel(logging.ERROR)
    environments = [f"envs/{path.name}" for path in sorted((ROOT / "docs" / "envs").glob("*.md"))]
    first = ["envs/gallery.md", "envs/cards.md"]
    boards = [f"leaderboards/{folder.name}/README.md" for folder in _boards()]
    config.nav = [
        {"Home": "README.md"},
        {"Tutorial": "tutorial/first-hour.md"},
        {"How-to": _section("howto", HOWTO)},
        {"Environments": [*first, *(page for page in environments if page not in first)]},
        {"Reference": _section("reference", REFERENCE)},
        {"Explanation": _section("explanation")},
        {
            "Results": [
                {"Leaderboards": ["leaderboards/README.md", *boards]},
                {"Adapters": [path.relative_to(ROOT).as_posix() for path in _adapters()]},
                {"Published tables": [path.relative_to(ROOT).as_posix() for path in _tables()]},
                {"Training studies": [path.relative_to(ROOT).as_posix() for path in _studies()]},
                {"Generalization": "leaderboards/generalisation/README.md"},
                {"Benchmarks": sorted(f"benchmarks/{path.name}" for path in (ROOT / "benchmarks").glob("*.md"))},
            ]
        },
        {"Development": [*_loose(), *_section("specs")]},
    ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages from outside docs/."""

    def add(path: str, content: str) -> None:
        files.append(File.generated(config, path, content=content))

    for path in sorted((ROOT / "leaderboards" / "training").glob("*/*.svg")):
        add(path.relative_to(ROOT).as_posix(), path.read_text())
    for path in [*_adapters(), *_tables(), *_studies(), *sorted((ROOT / "benchmarks").glob("*.md"))]:
        add(path.relative_to(ROOT).as_posix(), path.read_text())
    for path, text in leaderboard_pages.pages(ROOT / "leaderboards").items():
        add(path.relative_to(ROOT).as_posix(), text)
    for folder in _boards():
        page = report.render(
            report.ReportData(report.read_board(folder)), f"{folder.name}: episodes", config.extra["replays"]
        )
        add(f"leaderboards/{folder.name}/episodes.html", page)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Adapts links to the site, links boards to their episodes, and fills the generated pages."""
    here = page.file.src_uri
    if here == "README.md":
        page.meta["hide"] = ["navigation", "toc"]
    if here in GENERATED:
        markdown += GENERATED[here]()
    # The site's root is docs/, so only pages from outside docs/ have their path in the repository.
    elsewhere = here.startswith(("benchmarks/", "leaderboards/"))
    base = posixpath.dirname(here if elsewhere else f"docs/{here}")

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match.group(1), match.group(2), match.group(3) or ""
        if "://" in target or target.startswith("mailto:"):
            return match.group(0)
        path = posixpath.normpath(posixpath.join(base, target)).removeprefix("docs/")
        for source in (path, f"{path}/README.md"):
            if files.get_file_from_path(source) is not None:
                return f"[{text}]({posixpath.relpath(source, posixpath.dirname(here) or '.')}{anchor})"
        if not (ROOT / posixpath.join(base, target)).exists():
            return match.group(0)  # a dead link: mkdocs reports it
        return text

    if files.get_file_from_path(posixpath.join(posixpath.dirname(here), "episodes.html")) is not None:
        markdown = markdown.replace("\n\n", "\n\n[Read the episodes](episodes.html).\n\n", 1)
        return markdown
    return LINK.sub(link, markdown)


def _section(folder: str, order: tuple[str, ...] = ()) -> list[str]:
    """Returns the pages of a folder of docs/: its overview, those in `order`, then the others."""
    ranks = {name: rank for rank, name in enumerate(("README", *order))}
    pages = sorted((ROOT / "docs" / folder).glob("*.md"), key=lambda path: (ranks.get(path.stem, 99), path.name))
    return [f"{folder}/{path.name}" for path in pages]


def _loose() -> list[str]:
    """Returns the pages directly in docs/, without the home page."""
    return sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.stem != "README")


def _boards() -> list[Path]:
    return leaderboard_pages.folders(ROOT / "leaderboards")


def _adapters() -> list[Path]:
    """Returns the pages of the committed adapters."""
    return sorted((ROOT / "leaderboards" / "adapters").glob("*/README.md"))


def _tables() -> list[Path]:
    """Returns the published tables with our runs, their overview first."""
    return sorted((ROOT / "leaderboards" / "tables").glob("*.md"), key=lambda path: (path.stem != "README", path.name))


def _studies() -> list[Path]:
    """Returns the training studies and the notes on each, their overview first."""
    root = ROOT / "leaderboards" / "training"
    return [root / "README.md", *sorted([*root.glob("*/README.md"), *root.glob("*/NOTES.md")])]


def cards() -> str:
    """Returns the measured difficulty of every task, from the cards that the package ships."""
    lines = []
    family = ""
    for task in sorted(registry.tasks("*"), key=lambda task: (task.family, task.id)):
        if not (measured := card(task)):
            continue
        if task.family != family:
            family = task.family
            lines += [f"\n## {family}\n", "| task | games | random | expert | commands, mean (most) | choices, mean |"]
            lines.append("|---|--:|--:|--:|--:|--:|")
        length = measured.get("solution_length")
        cells = [task.id, measured["episodes"], *(share_of_wins(measured, player) for player in ("random", "expert"))]
        cells.append(f"{length['mean']} ({length['max']})" if length else "–")
        cells.append(measured["admissible_commands"]["mean"] or "–")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def command_line() -> str:
    """Returns the help of every verb, as its parser prints it."""
    parts = []
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "84"  # the width to which argparse folds
    try:
        for name, verb in VERBS.items():
            text = importlib.import_module(verb.module or "baselines.cli").parser().format_help()
            parts.append(f"\n## envsuite {name}\n\n```text\n{text.rstrip()}\n```\n")
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before
    return "".join(parts)


GENERATED = {"reference/cli.md": command_line, "envs/cards.md": cards}
"""page -> the function that writes the part below its introduction"""
