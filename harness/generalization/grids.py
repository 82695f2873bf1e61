"""Measured grids: reads `grid.json`, and renders the page of the grids below leaderboards/generalisation.

generalisation/
    README.md           rendered: every grid as a table
    {grid}/
        grid.json       written by envsuite generalize
        NOTES.md        how the grid was run, and what it shows
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from envsuite.errors import DataError
from envsuite.escaping import markdown
from envsuite.reading import read_json
from harness.records import check_types

SCHEMA = "envsuite-grid-1"
MOST_CELLS = 10_000
"""cells of a grid: the product of the lengths of its axes"""
NUMBER = (int, float, type(None))
INTERVAL: dict[str, Any] = {**dict.fromkeys(("mean", "low", "high"), NUMBER), "n": int}
CELL: dict[str, Any] = {**INTERVAL, "seen": (bool, type(None)), "at": dict}
GAP: dict[str, Any] = {**INTERVAL, "model": str, "seen": int, "unseen": int}
TRANSFER: dict[str, Any] = {**INTERVAL, **dict.fromkeys(("model", "minus", "kind"), str), "at": dict}


def read(path: Path) -> dict[str, Any]:
    """Reads a grid.json, which may come from anybody. Raises DataError with the file's name."""
    try:
        grid: dict[str, Any] = read_json(path)
        if grid["schema_version"] != SCHEMA:
            raise DataError(
                f"{path} has schema_version {grid['schema_version']!r}, this envsuite reads {SCHEMA!r}: "
                "run envsuite generalize again with --resume."
            )
        _check(grid)
        return grid
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(
            f"{path} is not a grid ({type(error).__name__}: {error}): run envsuite generalize again."
        ) from error


def _check(grid: dict[str, Any]) -> None:
    """Raises LookupError, TypeError or ValueError if a grid lacks a field or a field has the wrong type."""
    check_types(grid, {"metric": str, "models": list, "axes": list, "cells": list, "gaps": list})
    check_types(grid["models"], dict.fromkeys(range(len(grid["models"])), str))
    for axis in grid["axes"]:
        check_types(axis, {"name": str, "values": list})
        check_types(axis["values"], dict.fromkeys(range(len(axis["values"])), str))
    sizes = [len(axis["values"]) for axis in grid["axes"]]
    if not sizes or not 0 < math.prod(sizes) <= MOST_CELLS:
        raise ValueError(
            f"axes of {' x '.join(map(str, sizes)) or 'no'} values; a grid has at most {MOST_CELLS:,} cells"
        )
    for cell in grid["cells"]:
        check_types(cell, CELL)
        check_types(cell["at"], {axis["name"]: str for axis in grid["axes"]})
    for gap in grid["gaps"]:
        check_types(gap, GAP)
        check_types(gap, {"mean": (int, float)})
        if gap.get("adjusted") is not None:
            check_types(gap["adjusted"], INTERVAL)
    check_types(grid, {name: list for name in ("transfers", "base") if name in grid})
    for transfer in grid.get("transfers", []):
        check_types(transfer, TRANSFER)
        check_types(transfer["at"], dict.fromkeys(transfer["at"], str))
    if len(grid["cells"]) > MOST_CELLS:
        raise ValueError(f"{len(grid['cells']):,} cells; a grid has at most {MOST_CELLS:,}")


PAGE = """# Generalisation

Grids that `envsuite generalize` measured ([method](../../docs/explanation/generalisation.md)): success, its 95 % interval and the number of games of each cell. Bold: a setting that the model was trained on.
`make leaderboards` renders the tables from each grid's `grid.json`.
"""


def axis_names(grid: dict[str, Any]) -> tuple[str, str]:
    """Returns the names of the axes that run down and across; the second is '' for a grid of one axis."""
    names = [axis["name"] for axis in grid["axes"]]
    return (names[0], "") if len(names) == 1 else (", ".join(names[:-1]), names[-1])


def layout(grid: dict[str, Any]) -> tuple[list[str], list[str], dict[tuple[str, str], dict[str, Any]]]:
    """Returns (rows, columns, cells) of a grid: the last axis runs across, the others together run down."""
    down, across = (grid["axes"], None) if len(grid["axes"]) == 1 else (grid["axes"][:-1], grid["axes"][-1])
    rows = [", ".join(values) for values in itertools.product(*(axis["values"] for axis in down))]
    columns = list(across["values"]) if across else [grid["metric"]]
    cells = {
        (
            ", ".join(cell["at"][axis["name"]] for axis in down),
            cell["at"][across["name"]] if across else grid["metric"],
        ): cell
        for cell in grid["cells"]
    }
    return rows, columns, cells


def words(cell: dict[str, Any] | None) -> tuple[str, str]:
    """Returns the two lines of a cell: its mean, and its interval with n."""
    if cell is None or cell["mean"] is None:
        return "not run", ""
    bounds = "" if None in (cell["low"], cell["high"]) else f"[{cell['low']:.2f}, {cell['high']:.2f}] "
    return f"{cell['mean']:.2f}", f"{bounds}n={cell['n']}"


def lines(grid: dict[str, Any]) -> tuple[Sequence[str], list[list[str]]]:
    """Returns (heads, rows) of the grid as text."""
    rows, columns, cells = layout(grid)
    return [axis_names(grid)[0], *columns], [
        [row, *(" ".join(words(cells.get((row, column)))) for column in columns)] for row in rows
    ]


def pages(root: Path) -> dict[Path, str]:
    """Returns the page of the grids below `root` by its path; empty without grids."""
    grids = {path.parent: read(path) for path in sorted(root.glob("*/grid.json"))}
    if not grids:
        return {}
    sections = [PAGE]
    for folder, grid in grids.items():
        notes = folder / "NOTES.md"
        sections += [f"## {folder.name}\n", *([notes.read_text()] if notes.exists() else []), table(grid)]
        differences = [f"- {line}" for line in conclusions(grid, markdown)]
        sections += [*differences, *([""] if differences else [])]
    return {root / "README.md": "\n".join(sections)}


def table(grid: dict[str, Any]) -> str:
    """Returns a grid as Markdown: the last axis runs across, the others together run down."""
    rows, columns, cells = layout(grid)
    down, across = map(markdown, axis_names(grid))
    head = f"{down} ↓" + (f"  {across} →" if across else "")
    lines = [f"| {' | '.join([head, *map(markdown, columns)])} |", "|---" * (1 + len(columns)) + "|"]
    for row in rows:
        lines.append(f"| {' | '.join([markdown(row), *(_cell(cells.get((row, column))) for column in columns)])} |")
    return "\n".join(lines) + "\n"


def _cell(cell: dict[str, Any] | None) -> str:
    mean, interval = words(cell)
    return " ".join([f"**{mean}**" if cell and cell["seen"] else mean, interval]).strip()


def conclusions(grid: dict[str, Any], escape: Callable[[object], str] = str) -> list[str]:
    """Returns what a grid says about generalization, a line per difference; empty if no cell was seen in training."""
    lines = []
    for transfer in grid.get("transfers", []):
        setting = escape(", ".join(f"{axis}={value}" for axis, value in transfer["at"].items()))
        model, reference = escape(transfer["model"]), escape(transfer["minus"])
        lines.append(f"{model} minus {transfer['kind']} {reference} at {setting}: {_signed(transfer)}, same games")
    for gap in grid["gaps"]:
        model = escape(gap["model"])
        meaning = (
            "difficulty plus transfer" if gap.get("trained", True) else "difficulty alone, the player is untrained"
        )
        lines.append(
            f"seen minus unseen of {model}: {_signed(gap)}, {gap['seen']} seen, {gap['unseen']} unseen ({meaning})"
        )
        if adjusted := gap.get("adjusted"):
            lines.append(f"adjusted for difficulty, {model}: {_signed(adjusted)} (0 random player, 1 expert)")
        elif gap.get("trained", True):
            lines.append(
                f"adjusted for difficulty, {model}: needs random and expert in the grid (--baselines random,expert)"
            )
    return lines


def _signed(interval: dict[str, Any]) -> str:
    if interval["mean"] is None:
        return "no number, the expert is not above the random player at every setting"
    bounds = (
        "" if None in (interval["low"], interval["high"]) else f" [{interval['low']:+.3f}, {interval['high']:+.3f}]"
    )
    return f"{interval['mean']:+.3f}{bounds or ' (no bounds)'} n={interval['n']}"
