"""Rendering of a grid as a picture (`svg`) and as text (`lines`): mean, interval and number of games per cell.

The last axis runs across, all others together run down, so that a grid of three axes is a block and not a strip.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from html import escape
from typing import Any

# pixels
CELL = 148
HEIGHT = 48
LINE = 15
CHARACTER = 7.4
LABEL = 32
"""characters per line of a row's label"""

LOW, HIGH = (247, 251, 255), (8, 81, 156)
"""colours of the lowest and highest mean, white to blue; they differ in lightness, so grey copies stay readable"""
FONT = 'font-family="system-ui, sans-serif"'
READABLE = 4.5
"""smallest contrast of small text (WCAG 2.1, success criterion 1.4.3)"""


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


def svg(grid: dict[str, Any]) -> str:
    """Returns the heat map as a self-contained SVG document; cells seen in training have a thick frame."""
    rows, columns, cells = layout(grid)
    down, across = axis_names(grid)
    means = [cell["mean"] for cell in grid["cells"] if cell["mean"] is not None]
    least, most = min([0.0, *means]), max([1.0, *means])
    labels = [_wrapped(row) for row in rows]
    heads = [_wrapped(column, CELL // 7) for column in columns]
    title = _wrapped(f"{grid['metric']} of {', '.join(grid['models'])}", 80)
    left = 16 + int(CHARACTER * max(len(line) for lines in [*labels, [f"{down} ↓"]] for line in lines))
    width = max(left + CELL * len(columns) + 8, 24 + int(6 * max(map(len, [*title, CAPTION]))))
    top = 8 + LINE * (len(title) + max(map(len, heads)) + 1) + 12
    height = top + HEIGHT * len(rows) + 28
    elements = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<title>{escape(' '.join(title))}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *_lines(8, 18, title, 12, "start"),
        _text(left - 8, top - 8, f"{down} ↓", 12, "end", bold=True),
    ]
    if across:
        middle = left + CELL * len(columns) / 2
        elements.append(_text(middle, top - 12 - LINE * max(map(len, heads)), f"{across} →", 12, bold=True))
    for x, head in enumerate(heads):
        elements += _lines(left + CELL * (x + 0.5), top - 8 - LINE * (len(head) - 1), head, 12)
    for y, (row, label) in enumerate(zip(rows, labels, strict=True)):
        start = top + HEIGHT * (y + 0.5) + 4 - LINE * (len(label) - 1) / 2
        elements += _lines(left - 8, start, label, 12, "end")
        for x, column in enumerate(columns):
            elements += _cell(cells.get((row, column)), left + CELL * x, top + HEIGHT * y, least, most)
    elements.append(_text(8, height - 9, CAPTION, 11, "start"))
    return "\n".join([*elements, "</svg>"]) + "\n"


CAPTION = "mean [95 % interval] and games; darker is higher; thick frame: as in training"


def _cell(cell: dict[str, Any] | None, x: float, y: float, least: float, most: float) -> list[str]:
    mean, interval = words(cell)
    share = 0.0 if cell is None or cell["mean"] is None else (cell["mean"] - least) / (most - least)
    fill = (238, 238, 238) if mean == "not run" else _colour(share)
    ink = _ink(fill)
    stroke = 3 if cell and cell["seen"] else 0.5
    return [
        f'<rect x="{x + 2:g}" y="{y + 2:g}" width="{CELL - 4}" height="{HEIGHT - 4}" fill="{_hex(fill)}" '
        f'stroke="black" stroke-width="{stroke}"/>',
        _text(x + CELL / 2, y + 21, mean, 14, ink=ink),
        _text(x + CELL / 2, y + 38, interval, 11, ink=ink),
    ]


Colour = tuple[int, ...]


def _colour(share: float) -> Colour:
    return tuple(round(low + share * (high - low)) for low, high in zip(LOW, HIGH, strict=True))


def _hex(colour: Colour) -> str:
    return "#" + "".join(f"{channel:02x}" for channel in colour)


def _ink(fill: Colour) -> str:
    """Returns black or white, whichever has the higher contrast; it is at least `READABLE` on every colour."""
    return "white" if contrast(fill, (255, 255, 255)) > contrast(fill, (0, 0, 0)) else "black"


def contrast(first: Colour, second: Colour) -> float:
    """Returns the contrast ratio of two colours, from 1 to 21 (WCAG 2.1)."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Colour) -> float:
    shares = [channel / 255 for channel in colour]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _wrapped(text: str, width: int = LABEL) -> list[str]:
    """Splits a label into lines: before a model's training settings, and inside long words such as paths."""
    return textwrap.wrap(text.replace("@", " @"), width, break_on_hyphens=False) or [""]


def _lines(x: float, y: float, lines: Sequence[str], size: int, anchor: str = "middle") -> list[str]:
    return [_text(x, y + LINE * number, line, size, anchor) for number, line in enumerate(lines)]


def _text(
    x: float, y: float, text: str, size: int, anchor: str = "middle", ink: str = "black", bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{ink}"{weight} {FONT}>'
        f"{escape(text)}</text>"
    )


def lines(grid: dict[str, Any]) -> tuple[Sequence[str], list[list[str]]]:
    """Returns (heads, rows) of the grid as text."""
    rows, columns, cells = layout(grid)
    return [axis_names(grid)[0], *columns], [
        [row, *(" ".join(words(cells.get((row, column)))) for column in columns)] for row in rows
    ]
