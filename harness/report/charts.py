"""Learning curves as SVG, drawn here so that the page needs no script for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from harness.report.read import Curve

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 12, 34


def learning_curves(curves: Sequence[Curve]) -> str:
    """Success on held-out seeds over updates: a line and its 95 % interval per run; dots where it was measured.

    A run that measured nothing on held-out seeds shows the success of the episodes it trained on, dashed. '' where no
    run has a point to show.
    """
    if not any(curve.points for curve in curves):
        return ""
    last = max((line["update"] for curve in curves for line in [*curve.evals, *curve.updates]), default=0) or 1
    ticks = _ticks(last)
    body = [
        *(_horizontal(share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)),
        *(_vertical(tick, last) for tick in ticks),
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}" text-anchor="middle">update</text>',
    ]
    for number, curve in enumerate(curves):
        lines = curve.points
        points = [(_x(line["update"], last), _y(line["success"])) for line in lines]
        if not points:
            continue
        hue = f"k{number % 6}"
        if curve.evals:
            above = [(_x(line["update"], last), _y(line["high"])) for line in lines]
            below = [(_x(line["update"], last), _y(line["low"])) for line in reversed(lines)]
            body.append(f'<polygon class="band {hue}" points="{_spell(above + below)}"/>')
        dashed = "" if curve.evals else ' stroke-dasharray="4 3"'
        body.append(f'<polyline class="line {hue}"{dashed} points="{_spell(points)}"/>')
        for (x, y), line in zip(points, lines, strict=True):
            tooltip = f"{curve.name}, update {line['update']}: {100 * line['success']:.1f} %"
            if "low" in line:
                tooltip += f" [{100 * line['low']:.1f}, {100 * line['high']:.1f}] n={line['n']}"
            radius = 3 if curve.evals else 1.5
            body.append(
                f'<circle class="{hue}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{escape(tooltip)}</title></circle>'
            )
    label = "Success by update: " + ", ".join(curve.name for curve in curves)
    return (
        f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label, quote=True)}">'
        + "".join(body)
        + "</svg>"
    )


def _x(update: float, last: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * update / last


def _y(share: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)


def _spell(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _horizontal(share: float) -> str:
    y = _y(share)
    return (
        f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{100 * share:.0f} %</text>'
    )


def _vertical(tick: int, last: float) -> str:
    return f'<text x="{_x(tick, last):.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{tick:,}</text>'


def _ticks(last: float) -> list[int]:
    """About five round numbers from 0 to `last`."""
    rough = max(last / 5, 1)
    power = 10 ** math.floor(math.log10(rough))
    step = next(round(power * factor) for factor in (1, 2, 5, 10) if power * factor >= rough)
    return list(range(0, int(last) + 1, step))
