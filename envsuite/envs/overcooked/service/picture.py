"""Rendering of a service as an image (pillow)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from envsuite.envs.overcooked.kitchen import FLOOR
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
    PLANK,
    PLANK_EDGE,
    TILE,
    Pen,
    draw_body,
    draw_raw,
    draw_slices,
)
from envsuite.envs.overcooked.service.engine import BOWL, CHOPPED, GRILLED, NOTHING, RAW, Service, State
from envsuite.envs.overcooked.service.layout import BIN, BOARD, COUNTER, CRATE, HATCH, RACK, STOVE, Station
from envsuite.envs.overcooked.service.outlook import items_of
from envsuite.envs.overcooked.service.text import dish_name

WALL, IRON, GLOW, CRATE_TOP, BIN_TOP, COAL = "#5b5048", "#4a4f55", "#e0662f", "#c79a63", "#7d858c", "#26211d"


def draw(service: Service, state: State) -> npt.NDArray[np.uint8]:
    """Draws the kitchen from above, [rows * 48 + 22, columns * 48, 3], with the most urgent order as the caption."""
    from PIL import Image, ImageDraw, ImageFont

    layout = service.layout
    kitchen = layout.kitchen
    wide, tall = kitchen.n_columns * TILE, kitchen.n_rows * TILE
    large = Image.new("RGB", (wide * FINE, tall * FINE), PAPER)
    pen = Pen(ImageDraw.Draw(large))
    for cell, kind in enumerate(kitchen.kind):
        row, column = kitchen.position(cell)
        pen.at(kitchen, cell).box(0, 0, 1, 1, FLOORS[(row + column) % 2] if kind == FLOOR else WALL)
    for station in layout.stations:
        _draw_station(service, pen.at(kitchen, station.cell), station)
    for slot, number in enumerate(layout.holders):
        if state.slots[slot] != NOTHING:
            _draw_thing(service, pen.at(kitchen, layout.stations[number].cell), state.slots[slot], 0.5, 0.5, 0.26)
    cook = pen.at(kitchen, state.cell)
    draw_body(cook, COOKS[0])
    if state.hand != NOTHING:
        _draw_thing(service, cook, state.hand, 0.5, 0.76, 0.2)
    framed = Image.new("RGB", (wide, tall + CAPTION), PAPER)
    framed.paste(large.reduce(FINE))
    font = ImageFont.load_default(size=12)
    caption = _caption(service, state)
    while caption and font.getlength(caption) > wide - 12:
        caption = caption[:-2].rstrip() + "…"
    ImageDraw.Draw(framed).text((6, tall + 4), caption, fill=INK, font=font)
    return np.asarray(framed)


def _caption(service: Service, state: State) -> str:
    orders = [(order.deadline, order.dish) for i, order in enumerate(service.orders) if not state.served >> i & 1]
    if not orders:
        return "all orders are served"
    deadline, dish = min(orders)
    return f"{deadline - state.time} steps: {dish_name(service, dish)}"


def _draw_station(service: Service, pen: Pen, station: Station) -> None:
    tops = {CRATE: CRATE_TOP, STOVE: IRON, HATCH: DELIVERY_TOP, BIN: BIN_TOP}
    pen.box(0, 0, 1, 1, COUNTER_EDGE)
    pen.box(0.02, 0.02, 0.98, 0.94, tops.get(station.kind, COUNTER_TOP), corner=0.06)
    if station.kind == CRATE:
        pen.box(0.12, 0.12, 0.88, 0.84, PAPER, PLANK_EDGE, corner=0.04)
        draw_raw(pen, service.layout.foods[station.food], 0.5, 0.5, 0.24)
    elif station.kind == RACK:
        for x in (0.36, 0.5, 0.64):
            pen.disc(x, 0.5, 0.22, 0.24, "#ffffff", INK)
    elif station.kind == BOARD:
        pen.box(0.1, 0.16, 0.9, 0.82, PLANK, PLANK_EDGE, corner=0.1)
    elif station.kind == STOVE:
        pen.disc(0.5, 0.5, 0.36, 0.34, GLOW, INK)
        pen.disc(0.5, 0.5, 0.26, 0.24, IRON, INK)
    elif station.kind == HATCH:
        pen.shape(0.2, 0.4, 0.5, 0.4, 0.5, 0.22, 0.82, 0.49, 0.5, 0.76, 0.5, 0.58, 0.2, 0.58, fill="#ffffff")
    elif station.kind == BIN:
        pen.disc(0.5, 0.5, 0.32, 0.3, COAL, INK)
    elif station.kind == COUNTER:
        pen.box(0.14, 0.14, 0.86, 0.82, COUNTER_TOP, COUNTER_EDGE, corner=0.06)


def _draw_thing(service: Service, pen: Pen, thing: int, x: float, y: float, size: float) -> None:
    if thing < BOWL:
        _draw_item(service, pen, thing, x, y, size)
        return
    pen.disc(x, y, size * 1.1, size * 1.1, "#ffffff", INK)
    pen.disc(x, y, size * 0.85, size * 0.85, "#e4e2dd")
    items = items_of(thing - BOWL)
    for i, item in enumerate(items):
        turn = 2 * np.pi * i / len(items)
        away = size * 0.4 if len(items) > 1 else 0.0
        _draw_item(service, pen, item, x + away * np.sin(turn), y - away * np.cos(turn), size * 0.55)


def _draw_item(service: Service, pen: Pen, item: int, x: float, y: float, size: float) -> None:
    name, form = service.layout.foods[item >> 2], item & 3
    if form == RAW:
        draw_raw(pen, name, x, y, size)
    elif form == CHOPPED:
        draw_slices(pen, FOOD[name], x, y, size)
    else:
        pen.disc(x, y, size, size * 0.8, FOOD[name] if form == GRILLED else COAL, INK)
        for across in (-0.45, 0.0, 0.45):
            pen.box(x + (across - 0.08) * size, y - 0.6 * size, x + (across + 0.08) * size, y + 0.6 * size, COAL)
