"""Forest plots as SVG: one line per number, with a dot and its 95 % interval."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

ROW, HEAD, LEFT, WIDTH, RIGHT, SOURCE = 17, 26, 430, 420, 60, 130
"""sizes in pixels: height of a line, of the axis, width of the labels, the plot, the values, and of a source's name"""
LETTERS, TAIL = 46, 27
"""letters of a label that fit, and how many of a longer one are kept from its end"""
STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#222}.value{text-anchor:end}.tick{text-anchor:middle;fill:#555}"
    "line{stroke:#1f5fa8;stroke-width:1.5}circle{fill:#1f5fa8}.ours line{stroke:#b3541e}.ours circle{fill:#b3541e}"
    ".grid{stroke:#ddd;stroke-width:1}.open circle{fill:#fff;stroke:#1f5fa8}.rule{stroke:#999;stroke-width:1}"
)


class Line(NamedTuple):
    """One number of a plot; without bounds its dot is hollow."""

    source: str
    label: str
    value: float
    low: float | None
    high: float | None
    ours: bool = False


def draw(title: str, lines: Sequence[Line]) -> str:
    """Returns the plot of scores in [0, 1] as SVG."""
    height = HEAD + ROW * len(lines) + 10
    width = LEFT + WIDTH + RIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *_axis(height),
    ]
    source = ""
    for index, line in enumerate(lines):
        y = HEAD + ROW * index + ROW // 2
        if line.source != source and index:
            parts.append(f'<line class="rule" x1="0" x2="{width}" y1="{y - ROW // 2}" y2="{y - ROW // 2}"/>')
        parts += _line(line, y, line.source if line.source != source else "")
        source = line.source
    return "\n".join([*parts, "</svg>\n"])


def _axis(height: int) -> list[str]:
    parts = []
    for tenth in range(0, 11, 2):
        x = _x(tenth / 10)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{HEAD - 6}" y2="{height - 6}"/>')
        parts.append(f'<text class="tick" x="{x}" y="{HEAD - 11}">{tenth / 10:g}</text>')
    return parts


def _line(line: Line, y: int, source: str) -> list[str]:
    kind = "ours" if line.ours else "open" if line.low is None else "printed"
    label = line.label
    if len(label) > LETTERS:
        label = f"{label[: LETTERS - TAIL - 1]}…{label[-TAIL:]}"
    parts = [f'<g class="{kind}">', f"<title>{escape(f'{line.source}: {line.label}')}</title>"]
    if source:
        parts.append(f'<text x="4" y="{y + 4}">{escape(source)}</text>')
    parts.append(f'<text x="{SOURCE}" y="{y + 4}">{escape(label)}</text>')
    if line.low is not None and line.high is not None:
        parts.append(f'<line x1="{_x(line.low)}" x2="{_x(line.high)}" y1="{y}" y2="{y}"/>')
    parts.append(f'<circle cx="{_x(line.value)}" cy="{y}" r="3.2"/>')
    parts.append(f'<text class="value" x="{LEFT + WIDTH + RIGHT - 4}" y="{y + 4}">{line.value:.3f}</text>')
    return [*parts, "</g>"]


def _x(value: float) -> str:
    return f"{LEFT + 10 + (WIDTH - 20) * min(1.0, max(0.0, value)):.1f}"
