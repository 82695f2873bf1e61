"""Picture of a kitchen with orders (pillow)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from envsuite.envs.overcooked.orders.kitchen import BIN, BOARD, COUNTER, CRATE, HATCH, RACK, STOVE, Station
from envsuite.envs.overcooked.orders.rules import CHOPPED, GRILLED, RAW, Dish, Item, OrderGame, State
from envsuite.envs.overcooked.orders.text import dish_name
from envsuite.envs.overcooked.picture import (
    COOKS,
    COUNTER_EDGE,
    COUNTER_TOP,
    DELIVERY_TOP,
    FLOORS,
    FOOD,
    INK,
    PAPER,
    PLANK,
    PLANK_EDGE,
    Canvas,
    Pen,
    draw_arrow,
    draw_body,
    draw_dish,
    draw_raw,
    draw_slices,
)

WALL, IRON, GLOW, CRATE_TOP, BIN_TOP, COAL = "#5b5048", "#4a4f55", "#e0662f", "#c79a63", "#7d858c", "#26211d"


def draw(game: OrderGame, state: State) -> npt.NDArray[np.uint8]:
    """Draws the kitchen from above, [rows * 48 + 22, columns * 48, 3], with the most urgent order as the caption."""
    kitchen = game.kitchen
    canvas = Canvas(kitchen.grid.n_rows, kitchen.grid.n_columns)
    for cell, is_floor in enumerate(kitchen.grid.is_floor):
        shade = sum(kitchen.grid.position(cell)) % 2
        canvas.pen(cell).box(0, 0, 1, 1, FLOORS[shade] if is_floor else WALL)
    for station in kitchen.stations:
        _draw_station(game, canvas.pen(station.cell), station)
    for number, thing in zip(kitchen.equipment.holders, state.slots, strict=True):
        if thing is not None:
            _draw_thing(game, canvas.pen(kitchen.stations[number].cell), thing, 0.5, 0.5, 0.26)
    pen = canvas.pen(state.cell)
    draw_body(pen, COOKS[0])
    if state.hand is not None:
        _draw_thing(game, pen, state.hand, 0.5, 0.76, 0.2)
    return canvas.framed(canvas.reduced(), _caption(game, state))


def _caption(game: OrderGame, state: State) -> str:
    number = next((number for number in game.urgency if number not in state.served), -1)
    if number < 0:
        return "all orders are served"
    order = game.orders[number]
    return f"{order.deadline - state.time} steps: {dish_name(game, order.dish)}"


def _draw_station(game: OrderGame, pen: Pen, station: Station) -> None:
    tops = {CRATE: CRATE_TOP, STOVE: IRON, HATCH: DELIVERY_TOP, BIN: BIN_TOP}
    pen.box(0, 0, 1, 1, COUNTER_EDGE)
    pen.box(0.02, 0.02, 0.98, 0.94, tops.get(station.kind, COUNTER_TOP), corner=0.06)
    if station.kind == CRATE:
        pen.box(0.12, 0.12, 0.88, 0.84, PAPER, PLANK_EDGE, corner=0.04)
        draw_raw(pen, game.kitchen.foods[station.food], 0.5, 0.5, 0.24)
    elif station.kind == RACK:
        for x in (0.36, 0.5, 0.64):
            pen.disc(x, 0.5, 0.22, 0.24, "#ffffff", INK)
    elif station.kind == BOARD:
        pen.box(0.1, 0.16, 0.9, 0.82, PLANK, PLANK_EDGE, corner=0.1)
    elif station.kind == STOVE:
        pen.disc(0.5, 0.5, 0.36, 0.34, GLOW, INK)
        pen.disc(0.5, 0.5, 0.26, 0.24, IRON, INK)
    elif station.kind == HATCH:
        draw_arrow(pen)
    elif station.kind == BIN:
        pen.disc(0.5, 0.5, 0.32, 0.3, COAL, INK)
    elif station.kind == COUNTER:
        pen.box(0.14, 0.14, 0.86, 0.82, COUNTER_TOP, COUNTER_EDGE, corner=0.06)


def _draw_thing(game: OrderGame, pen: Pen, thing: Item | Dish, x: float, y: float, size: float) -> None:
    if isinstance(thing, Item):
        _draw_item(game, pen, thing, x, y, size)
        return
    draw_dish(pen, x, y, size)
    for i, item in enumerate(sorted(thing)):
        turn = 2 * np.pi * i / len(thing)
        away = size * 0.4 if len(thing) > 1 else 0.0
        _draw_item(game, pen, item, x + away * np.sin(turn), y - away * np.cos(turn), size * 0.55)


def _draw_item(game: OrderGame, pen: Pen, item: Item, x: float, y: float, size: float) -> None:
    name = game.kitchen.foods[item.food]
    if item.form == RAW:
        draw_raw(pen, name, x, y, size)
    elif item.form == CHOPPED:
        draw_slices(pen, FOOD[name], x, y, size)
    else:
        pen.disc(x, y, size, size * 0.8, FOOD[name] if item.form == GRILLED else COAL, INK)
        for across in (-0.45, 0.0, 0.45):
            pen.box(x + (across - 0.08) * size, y - 0.6 * size, x + (across + 0.08) * size, y + 0.6 * size, COAL)
