"""Rendering of a grid as a picture (`svg`) and as text (`lines`): mean, interval and number of games per cell."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from html import escape
from typing import Any

# pixels
CELL = 118
HEIGHT = 46
HEAD = 44
CHARACTER = 7.4

LOW, HIGH = (247, 251, 255), (8, 81, 156)
"""colours of the lowest and highest mean, white to blue; they differ in lightness, so grey copies stay readable"""
FONT = 'font-family="system-ui, sans-serif"'


def layout(grid: dict[str, Any]) -> tuple[list[str], list[str], dict[tuple[str, str], dict[str, Any]]]:
    """Returns (rows, columns, cells) of a grid: the first axis runs down, all others together run across."""
    first, *others = grid["axes"]
    names = [axis["name"] for axis in others]
    combinations = itertools.product(*(axis["values"] for axis in others))
    columns = [", ".join(values) for values in combinations] if others else [grid["metric"]]
    cells = {
        (cell["at"][first["name"]], ", ".join(cell["at"][name] for name in names) or grid["metric"]): cell
        for cell in grid["cells"]
    }
    return list(first["values"]), columns, cells


def words(cell: dict[str, Any] | None) -> tuple[str, str]:
    """Returns the two lines of a cell: its mean, and its interval with n."""
    if cell is None or cell["mean"] is None:
        return "not run", ""
    bounds = "" if None in (cell["low"], cell["high"]) else f"[{cell['low']:.2f}, {cell['high']:.2f}] "
    return f"{cell['mean']:.2f}", f"{bounds}n={cell['n']}"


def svg(grid: dict[str, Any]) -> str:
    """Returns the heat map as a self-contained SVG document; cells seen in training have a thick frame."""
    rows, columns, cells = layout(grid)
    means = [cell["mean"] for cell in grid["cells"] if cell["mean"] is not None]
    least, most = min([0.0, *means]), max([1.0, *means])
    left = 12 + int(CHARACTER * max(map(len, rows)))
    cell_width = max(CELL, 10 + int(CHARACTER * max(map(len, columns))))
    width = left + cell_width * len(columns) + 8
    height = HEAD + HEIGHT * len(rows) + 26
    title = f"{grid['metric']} of {', '.join(grid['models'])}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(6, 16, title, 12, "start"),
    ]
    for x, column in enumerate(columns):
        parts.append(_text(left + cell_width * (x + 0.5), HEAD - 8, column, 11))
    for y, row in enumerate(rows):
        parts.append(_text(left - 6, HEAD + HEIGHT * (y + 0.5) + 4, row, 11, "end"))
        for x, column in enumerate(columns):
            cell = cells.get((row, column))
            parts += _cell(cell, left + cell_width * x, HEAD + HEIGHT * y, cell_width, least, most)
    axes = " x ".join(axis["name"] for axis in grid["axes"])
    parts.append(_text(6, height - 8, f"{axes}; mean [95 % interval]; thick frame: as in training", 10, "start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _cell(cell: dict[str, Any] | None, x: float, y: float, width: int, least: float, most: float) -> list[str]:
    mean, interval = words(cell)
    share = 0.0 if cell is None or cell["mean"] is None else (cell["mean"] - least) / (most - least)
    fill = "#eeeeee" if mean == "not run" else _colour(share)
    ink = "white" if share > 0.55 else "black"
    stroke = 3 if cell and cell["seen"] else 0.5
    return [
        f'<rect x="{x + 2:g}" y="{y + 2:g}" width="{width - 4}" height="{HEIGHT - 4}" fill="{fill}" stroke="black" '
        f'stroke-width="{stroke}"/>',
        _text(x + width / 2, y + 20, mean, 13, ink=ink),
        _text(x + width / 2, y + 36, interval, 9, ink=ink),
    ]


def _colour(share: float) -> str:
    return "#" + "".join(f"{round(low + share * (high - low)):02x}" for low, high in zip(LOW, HIGH, strict=True))


def _text(x: float, y: float, text: str, size: int, anchor: str = "middle", ink: str = "black") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{ink}" {FONT}>{escape(text)}</text>'
    )


def lines(grid: dict[str, Any]) -> tuple[Sequence[str], list[list[str]]]:
    """Returns (heads, rows) of the grid as text."""
    rows, columns, cells = layout(grid)
    return [grid["axes"][0]["name"], *columns], [
        [row, *(" ".join(words(cells.get((row, column)))) for column in columns)] for row in rows
    ]
