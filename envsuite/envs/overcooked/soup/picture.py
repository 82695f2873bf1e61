"""Picture of an Overcooked-AI kitchen (pillow)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from envsuite.envs.overcooked.picture import (
    CAPTION,
    COOKS,
    COUNTER_EDGE,
    COUNTER_TOP,
    DELIVERY_TOP,
    FINE,
    FLOORS,
    FOOD,
    INK,
    PAPER,
    TILE,
    Pen,
    draw_body,
    draw_raw,
)
from envsuite.envs.overcooked.soup.engine import IDLE, MOST_ONIONS, NOTHING, ONION, SOUP, Pot, SoupKitchen, SoupState
from envsuite.envs.overcooked.soup.layout import DISHES, FLOOR, ONIONS, POT, WINDOW

BROTH, STEEL = "#d9a441", "#5c6670"
AHEAD = ((0.5, 0.04), (0.5, 0.96), (0.96, 0.5), (0.04, 0.5))
"""Point of a cell's edge in each direction."""


def draw(kitchen: SoupKitchen, state: SoupState, soups: int) -> npt.NDArray[np.uint8]:
    """Draws the kitchen from above with a caption, [rows * 48 + 22, columns * 48, 3]."""
    from PIL import Image, ImageDraw, ImageFont

    layout = kitchen.layout
    wide, tall = layout.columns * TILE, layout.rows * TILE
    large = Image.new("RGB", (wide * FINE, tall * FINE), PAPER)
    brush = ImageDraw.Draw(large)
    pens = []
    for cell in range(len(layout.kind)):
        row, column = layout.position(cell)
        pens.append(Pen(brush, column * TILE * FINE, row * TILE * FINE))
        _draw_ground(pens[-1], layout.kind[cell], (row + column) % 2)
    for cell, pot in zip(layout.pots, state.pots, strict=True):
        _draw_pot(pens[cell], pot, kitchen.cook_time)
    for cell, thing in zip(layout.counters, state.counters, strict=True):
        _draw_thing(pens[cell], thing, 0.5, 0.5, 0.25)
    for cook, cell in enumerate(state.cells):
        draw_body(pens[cell], COOKS[cook])
        x, y = AHEAD[state.facing[cook]]
        pens[cell].disc(x, y, 0.06, 0.06, COOKS[cook], INK)
        _draw_thing(pens[cell], state.hands[cook], 0.5, 0.76, 0.2)
    image = Image.new("RGB", (wide, tall + CAPTION), PAPER)
    image.paste(large.resize((wide, tall), Image.Resampling.LANCZOS))
    words, font = ImageDraw.Draw(image), ImageFont.load_default(size=12)
    for cook, cell in enumerate(state.cells):
        row, column = layout.position(cell)
        words.text((column * TILE + 24, row * TILE + 2), str(cook + 1), fill=INK, font=font, anchor="ma")
    words.text((6, tall + 4), f"step {state.time}, soups {soups}", fill=INK, font=font)
    return np.asarray(image)


def _draw_ground(pen: Pen, kind: str, shade: int) -> None:
    if kind == FLOOR:
        pen.box(0, 0, 1, 1, FLOORS[shade])
        return
    pen.box(0, 0, 1, 1, COUNTER_EDGE)
    pen.box(0.02, 0.02, 0.98, 0.94, DELIVERY_TOP if kind == WINDOW else COUNTER_TOP, corner=0.06)
    if kind == WINDOW:
        pen.shape(0.2, 0.4, 0.5, 0.4, 0.5, 0.22, 0.82, 0.49, 0.5, 0.76, 0.5, 0.58, 0.2, 0.58, fill="#ffffff")
    elif kind == ONIONS:
        for x, y in ((0.32, 0.35), (0.68, 0.35), (0.5, 0.68)):
            draw_raw(pen, "onion", x, y, 0.17)
    elif kind == DISHES:
        for rise in (0.0, 0.1, 0.2):
            _draw_dish(pen, 0.5, 0.6 - rise, 0.28)
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


def _draw_dish(pen: Pen, x: float, y: float, size: float) -> None:
    pen.disc(x, y, size * 1.1, size * 1.1, "#ffffff", INK)
    pen.disc(x, y, size * 0.85, size * 0.85, "#e4e2dd")


def _draw_thing(pen: Pen, thing: int, x: float, y: float, size: float) -> None:
    if thing == NOTHING:
        return
    if thing == ONION:
        draw_raw(pen, "onion", x, y, size)
        return
    _draw_dish(pen, x, y, size)
    if thing > SOUP:
        pen.disc(x, y, size * 0.8, size * 0.8, BROTH)
        for i in range(min(thing - SOUP, MOST_ONIONS)):
            pen.disc(x + (i - 1) * size * 0.45, y, size * 0.2, size * 0.2, FOOD["onion"], INK)
