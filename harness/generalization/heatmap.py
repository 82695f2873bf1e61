"""A grid as a picture: one cell per place, its mean and interval written in it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from html import escape
from typing import Any

CELL, HEIGHT, HEAD, CHARACTER = 118, 46, 44, 7.4  # pixels
LOW, HIGH = (247, 251, 255), (8, 81, 156)  # white to blue: lightness alone tells them apart
FONT = 'font-family="system-ui, sans-serif"'


def layout(grid: dict[str, Any]) -> tuple[list[str], list[str], dict[tuple[str, str], dict[str, Any]]]:
    """(rows, columns, cells) of a grid of any number of axes: the first goes down, the others together across."""
    first, *others = grid["axes"]
    names = [one["name"] for one in others]
    across = itertools.product(*(one["values"] for one in others))
    columns = [", ".join(values) for values in across] if others else [grid["metric"]]
    cells = {
        (one["at"][first["name"]], ", ".join(one["at"][name] for name in names) or grid["metric"]): one
        for one in grid["cells"]
    }
    return list(first["values"]), columns, cells


def words(cell: dict[str, Any] | None) -> tuple[str, str]:
    """What is written in a cell: mean, and interval with n."""
    if cell is None or cell["mean"] is None:
        return "not run", ""
    bounds = "" if cell["low"] is None else f"[{cell['low']:.2f}, {cell['high']:.2f}] "
    return f"{cell['mean']:.2f}", f"{bounds}n={cell['n']}"


def svg(grid: dict[str, Any]) -> str:
    """The heat map as an SVG document that needs nothing from elsewhere; cells seen in training have a thick frame."""
    rows, columns, cells = layout(grid)
    means = [one["mean"] for one in grid["cells"] if one["mean"] is not None]
    least, most = min([0.0, *means]), max([1.0, *means])
    left = 12 + int(CHARACTER * max(map(len, rows)))
    cell_width = max(CELL, 10 + int(CHARACTER * max(map(len, columns))))
    width, height = left + cell_width * len(columns) + 8, HEAD + HEIGHT * len(rows) + 26
    title = f"{grid['metric']} of {', '.join(grid['models'])}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(6, 16, title, 12, "start"),
    ]
    for x, column in enumerate(columns):
        parts.append(_text(left + cell_width * (x + 0.5), HEAD - 8, column, 11))
    for y, row in enumerate(rows):
        parts.append(_text(left - 6, HEAD + HEIGHT * (y + 0.5) + 4, row, 11, "end"))
        for x, column in enumerate(columns):
            found = cells.get((row, column))
            parts += _cell(found, left + cell_width * x, HEAD + HEIGHT * y, cell_width, least, most)
    axes = " x ".join(one["name"] for one in grid["axes"])
    parts.append(_text(6, height - 8, f"{axes}; mean [95 % interval]; thick frame: as in training", 10, "start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _cell(found: dict[str, Any] | None, x: float, y: float, width: int, least: float, most: float) -> list[str]:
    mean, rest = words(found)
    share = 0.0 if found is None or found["mean"] is None else (found["mean"] - least) / (most - least)
    fill = "#eeeeee" if mean == "not run" else _colour(share)
    ink = "white" if share > 0.55 else "black"
    stroke = 3 if found and found["seen"] else 0.5
    return [
        f'<rect x="{x + 2:g}" y="{y + 2:g}" width="{width - 4}" height="{HEIGHT - 4}" fill="{fill}" stroke="black" stroke-width="{stroke}"/>',
        _text(x + width / 2, y + 20, mean, 13, ink=ink),
        _text(x + width / 2, y + 36, rest, 9, ink=ink),
    ]


def _colour(share: float) -> str:
    return "#" + "".join(f"{round(low + share * (high - low)):02x}" for low, high in zip(LOW, HIGH, strict=True))


def _text(x: float, y: float, text: str, size: int, anchor: str = "middle", ink: str = "black") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{ink}" {FONT}>{escape(text)}</text>'
    )


def lines(grid: dict[str, Any]) -> tuple[Sequence[str], list[list[str]]]:
    """(heads, rows) of the same as text."""
    rows, columns, cells = layout(grid)
    return [grid["axes"][0]["name"], *columns], [
        [row, *(" ".join(words(cells.get((row, column)))) for column in columns)] for row in rows
    ]
