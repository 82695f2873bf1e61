"""Grids that were measured: read from disk, and the page of those kept under leaderboards/generalisation.

generalisation/
    README.md           rendered: every grid as a table
    {grid}/
        grid.json       what envsuite-generalize wrote
        heatmap.svg     rendered
        NOTES.md        how it was run, and what it tells
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from envsuite.errors import DataError
from envsuite.escaping import markdown
from harness.generalization.heatmap import layout, svg, words

SCHEMA = "envsuite-grid-1"
NEEDED = {
    "cells": ("mean", "low", "high", "n", "seen"),
    "gaps": ("model", "mean", "low", "high", "n", "seen", "unseen"),
}
"""what a cell and a gap must have to be shown"""


def read(path: Path) -> dict[str, Any]:
    """A grid.json. Raises DataError naming the file where it is none, or one of another version."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        if found["schema_version"] != SCHEMA:
            raise DataError(
                f"{path} has schema_version {found['schema_version']!r}, this envsuite reads {SCHEMA!r}: "
                "run envsuite-generalize again with --resume."
            )
        layout(found), found["models"]
        for kind, keys in NEEDED.items():
            for one in found[kind]:
                [one[key] for key in keys]
        return found
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is no grid ({type(error).__name__}: {error}): run envsuite-generalize again."
        ) from error


PAGE = """# Generalisation

Grids that `envsuite-generalize` measured ([how](../../docs/explanation/generalisation.md)): success with its 95 % interval and the number of games at every place. Bold: as in the model's training.
The tables and heat maps are rendered from each grid's `grid.json` by `make leaderboards`.
"""


def pages(root: Path) -> dict[Path, str]:
    """The page of the grids below `root`, and their heat maps, by path; nothing where there is no grid."""
    found = {path.parent: read(path) for path in sorted(root.glob("*/grid.json"))}
    if not found:
        return {}
    parts = [PAGE]
    for folder, grid in found.items():
        notes = folder / "NOTES.md"
        parts += [f"## {folder.name}\n", *([notes.read_text()] if notes.exists() else []), table(grid)]
        parts += [*gaps(grid), f"![heat map of {folder.name}]({folder.name}/heatmap.svg)\n"]
    maps = {folder / "heatmap.svg": svg(grid) for folder, grid in found.items()}
    return {root / "README.md": "\n".join(parts), **maps}


def table(grid: dict[str, Any]) -> str:
    """A grid as Markdown: its first axis goes down, the others together across."""
    first, *others = [one["name"] for one in grid["axes"]]
    rows, columns, cells = layout(grid)
    head = first + (f" ↓  {', '.join(others)} →" if others else "")
    lines = [f"| {' | '.join([head, *map(markdown, columns)])} |", "|---" * (1 + len(columns)) + "|"]
    for row in rows:
        lines.append(f"| {' | '.join([markdown(row), *(_cell(cells.get((row, column))) for column in columns)])} |")
    return "\n".join(lines) + "\n"


def _cell(cell: dict[str, Any] | None) -> str:
    mean, rest = words(cell)
    return " ".join([f"**{mean}**" if cell and cell["seen"] else mean, rest]).strip()


def gaps(grid: dict[str, Any]) -> list[str]:
    """The generalisation gap of every model in words; nothing where no place was seen."""
    found = []
    for gap in grid["gaps"]:
        bounds = "" if gap["low"] is None else f" [{gap['low']:+.3f}, {gap['high']:+.3f}]"
        places = f"{gap['seen']} seen less {gap['unseen']} unseen"
        found.append(f"- Gap of {markdown(gap['model'])}: {gap['mean']:+.3f}{bounds} n={gap['n']}, {places}")
    return [*found, ""] if found else []
