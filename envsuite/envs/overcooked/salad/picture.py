"""Rendering of a salad kitchen as an image (pillow) and as text."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from envsuite.envs.overcooked.foods import FOODS
from envsuite.envs.overcooked.picture import (
    COOKS,
    COUNTER_EDGE,
    COUNTER_TOP,
    DELIVERY_TOP,
    FLOORS,
    FOOD,
    LEAF,
    PLANK,
    PLANK_EDGE,
    TILE,
    Canvas,
    Pen,
    draw_arrow,
    draw_body,
    draw_dish,
    draw_raw,
    draw_slices,
)
from envsuite.envs.overcooked.salad.engine import CHOPS, NOTHING, Simulation


def draw(sim: Simulation, caption: str) -> npt.NDArray[np.uint8]:
    """Draws the kitchen from above, [rows * 48 + 22, columns * 48, 3].

    Raw food is drawn whole with a progress bar of its chops, chopped food in slices, and the bowl as a white ring.
    Cells outside the cook's view are darker, and boards are numbered as in the observation.
    """
    kitchen = sim.kitchen
    canvas = Canvas(kitchen.n_rows, kitchen.n_columns)
    for cell in range(len(kitchen.is_floor)):
        _draw_ground(sim, canvas.pen(cell), cell)
    for cell in range(len(kitchen.is_floor)):
        if (item := sim.item_on(cell)) not in (NOTHING, sim.hand):
            _draw_item(sim, canvas.pen(cell), item, 0.5, 0.5, 0.3)
    pen = canvas.pen(sim.cell)
    draw_body(pen, COOKS[0])
    if sim.hand != NOTHING:
        _draw_item(sim, pen, sim.hand, 0.5, 0.76, 0.2)
    image = canvas.reduced()
    seen = kitchen.window(sim.cell, sim.radius)
    canvas.shade(image, [cell not in seen for cell in range(len(kitchen.is_floor))])
    if len(kitchen.boards) > 1:
        for number, cell in enumerate(kitchen.boards, 1):
            row, column = kitchen.position(cell)
            canvas.write(image, (column * TILE + 3, row * TILE + 1), str(number))
    return canvas.framed(image, caption)


def _draw_ground(sim: Simulation, pen: Pen, cell: int) -> None:
    kitchen = sim.kitchen
    row, column = kitchen.position(cell)
    if kitchen.is_floor[cell]:
        pen.box(0, 0, 1, 1, FLOORS[(row + column) % 2])
        return
    pen.box(0, 0, 1, 1, COUNTER_EDGE)
    pen.box(0.02, 0.02, 0.98, 0.94, DELIVERY_TOP if cell == kitchen.delivery else COUNTER_TOP, corner=0.06)
    if cell in kitchen.boards:
        pen.box(0.1, 0.16, 0.9, 0.82, PLANK, PLANK_EDGE, corner=0.1)
        pen.disc(0.82, 0.24, 0.03, 0.03, COUNTER_EDGE)
    elif cell == kitchen.delivery:
        draw_arrow(pen)


def _draw_item(sim: Simulation, pen: Pen, item: int, x: float, y: float, size: float) -> None:
    if sim.is_food(item):
        _draw_food(sim, pen, item, x, y, size)
        return
    draw_dish(pen, x, y, size)
    for i, food in enumerate(sim.contents):
        turn = 2 * np.pi * i / len(sim.contents)
        away = size * 0.4 if len(sim.contents) > 1 else 0.0
        colour = FOOD[sim.kitchen.foods[food]]
        draw_slices(pen, colour, x + away * np.sin(turn), y - away * np.cos(turn), size * 0.55)


def _draw_food(sim: Simulation, pen: Pen, food: int, x: float, y: float, size: float) -> None:
    name = sim.kitchen.foods[food]
    if sim.is_chopped(food):
        draw_slices(pen, FOOD[name], x, y, size)
        return
    draw_raw(pen, name, x, y, size)
    for done in range(sim.chops[food]):
        left = x - size + done * 2 * size / CHOPS
        pen.box(left, y + size * 1.15, left + 1.7 * size / CHOPS, y + size * 1.4, LEAF)


def write(sim: Simulation) -> str:
    """Returns the kitchen as text: `#` counter, `.` floor, `k` board, `d` delivery, `b` bowl, `1` the cook, foods.

    Chopped food and the filled bowl are capital letters; lines below the map list what the cook carries and what the
    bowl holds.
    """
    kitchen = sim.kitchen
    symbols = ["." if is_floor else "#" for is_floor in kitchen.is_floor]
    for cell in kitchen.boards:
        symbols[cell] = "k"
    symbols[kitchen.delivery] = "d"

    def letter(item: int) -> str:
        if not sim.is_food(item):
            return "B" if sim.contents else "b"
        symbol = FOODS[kitchen.foods[item]]
        return symbol.upper() if sim.is_chopped(item) else symbol

    for item, cell in enumerate(sim.place):
        if item not in sim.contents:
            symbols[cell] = letter(item)
    symbols[sim.cell] = "1"
    wide = kitchen.n_columns
    rows = ["".join(symbols[start : start + wide]) for start in range(0, len(symbols), wide)]
    if sim.hand != NOTHING:
        rows.append(f"1 carries {letter(sim.hand)}")
    if sim.contents:
        rows.append(f"bowl 1 holds {', '.join(kitchen.foods[food] for food in sim.contents)}")
    return "\n".join(rows)
