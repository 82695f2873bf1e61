"""Picture of an Overcooked-AI kitchen (pillow)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from envsuite.envs.overcooked.picture import (
    COOKS,
    COUNTER_EDGE,
    COUNTER_TOP,
    DELIVERY_TOP,
    FLOORS,
    FOOD,
    INK,
    TILE,
    Canvas,
    Pen,
    draw_arrow,
    draw_body,
    draw_dish,
    draw_raw,
)
from envsuite.envs.overcooked.soup.engine import IDLE, MOST_ONIONS, NOTHING, ONION, SOUP, Pot, SoupKitchen, SoupState
from envsuite.envs.overcooked.soup.layout import DISHES, FLOOR, ONIONS, POT, WINDOW

BROTH, STEEL = "#d9a441", "#5c6670"
AHEAD = ((0.5, 0.04), (0.5, 0.96), (0.96, 0.5), (0.04, 0.5))
"""Point of a cell's edge in each direction."""


def draw(kitchen: SoupKitchen, state: SoupState, soups: int) -> npt.NDArray[np.uint8]:
    """Draws the kitchen from above with a caption, [rows * 48 + 22, columns * 48, 3]."""
    layout = kitchen.layout
    canvas = Canvas(layout.rows, layout.columns)
    for cell, kind in enumerate(layout.kind):
        _draw_ground(canvas.pen(cell), kind, sum(layout.position(cell)) % 2)
    for cell, pot in zip(layout.pots, state.pots, strict=True):
        _draw_pot(canvas.pen(cell), pot, kitchen.cook_time)
    for cell, thing in zip(layout.counters, state.counters, strict=True):
        _draw_thing(canvas.pen(cell), thing, 0.5, 0.5, 0.25)
    for cook, cell in enumerate(state.cells):
        pen = canvas.pen(cell)
        draw_body(pen, COOKS[cook])
        x, y = AHEAD[state.facing[cook]]
        pen.disc(x, y, 0.06, 0.06, COOKS[cook], INK)
        _draw_thing(pen, state.hands[cook], 0.5, 0.76, 0.2)
    image = canvas.reduced()
    for cook, cell in enumerate(state.cells):
        row, column = layout.position(cell)
        canvas.write(image, (column * TILE + 24, row * TILE + 2), str(cook + 1), anchor="ma")
    return canvas.framed(image, f"step {state.time}, soups {soups}")


def _draw_ground(pen: Pen, kind: str, shade: int) -> None:
    if kind == FLOOR:
        pen.box(0, 0, 1, 1, FLOORS[shade])
        return
    pen.box(0, 0, 1, 1, COUNTER_EDGE)
    pen.box(0.02, 0.02, 0.98, 0.94, DELIVERY_TOP if kind == WINDOW else COUNTER_TOP, corner=0.06)
    if kind == WINDOW:
        draw_arrow(pen)
    elif kind == ONIONS:
        for x, y in ((0.32, 0.35), (0.68, 0.35), (0.5, 0.68)):
            draw_raw(pen, "onion", x, y, 0.17)
    elif kind == DISHES:
        for rise in (0.0, 0.1, 0.2):
            draw_dish(pen, 0.5, 0.6 - rise, 0.28)
    elif kind == POT:
        pen.disc(0.5, 0.48, 0.4, 0.4, STEEL, INK)
        pen.disc(0.5, 0.48, 0.32, 0.32, "#30363c")


def _draw_pot(pen: Pen, pot: Pot, cook_time: int) -> None:
    onions, clock = pot
    if clock != IDLE:
        pen.disc(0.5, 0.48, 0.32, 0.32, BROTH)
        pen.box(0.1, 0.9, 0.1 + 0.8 * min(1.0, clock / cook_time), 0.98, "#4c8a3a" if clock >= cook_time else "#d63a2c")
    for x, y in ((0.38, 0.4), (0.62, 0.4), (0.5, 0.62))[:onions]:
        pen.disc(x, y, 0.1, 0.1, FOOD["onion"], INK)


def _draw_thing(pen: Pen, thing: int, x: float, y: float, size: float) -> None:
    if thing == NOTHING:
        return
    if thing == ONION:
        draw_raw(pen, "onion", x, y, size)
        return
    draw_dish(pen, x, y, size)
    if thing > SOUP:
        pen.disc(x, y, size * 0.8, size * 0.8, BROTH)
        for i in range(min(thing - SOUP, MOST_ONIONS)):
            pen.disc(x + (i - 1) * size * 0.45, y, size * 0.2, size * 0.2, FOOD["onion"], INK)
