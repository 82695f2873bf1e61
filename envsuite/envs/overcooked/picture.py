"""Rendering of a kitchen as an image (pillow) and as text."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from envsuite.envs.overcooked.engine import Simulation
from envsuite.envs.overcooked.kitchen import BOARD, COUNTER, DELIVERY, FLOOR, Kitchen, all_foods
from envsuite.envs.overcooked.motion import CHOPS

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

TILE = 48  # pixels per cell side
FINE = 3  # supersampling factor: shapes are drawn larger and scaled down for smooth edges
CAPTION = 22  # height of the caption in pixels
FLOORS = ("#f6ecd9", "#efe2ca")
COUNTER_TOP, COUNTER_EDGE, PLANK, PLANK_EDGE = "#a98d74", "#8a705a", "#ecd2a0", "#a98145"
DELIVERY_TOP, INK, PAPER, LEAF = "#6fae78", "#3a312a", "#faf6ee", "#4c8a3a"
FOOD = {
    "tomato": "#d63a2c",
    "lettuce": "#77bd43",
    "onion": "#c9a2cf",
    "carrot": "#f08a24",
    "cucumber": "#2f7d4f",
    "pepper": "#e9c430",
    "mushroom": "#c4a78c",
    "radish": "#cf3f7d",
}
COOKS = ("#3565b0", "#8a3fa0", "#20807c")


def draw(sim: Simulation, active_cook: int = 0, caption: str = "") -> npt.NDArray[np.uint8]:
    """Draws the kitchen from above, [rows * 48 (+ 22 with a caption), columns * 48, 3].

    Raw food is drawn whole with a progress bar of its chops, chopped food in slices, and a bowl as a white ring. Cells
    outside the view of cook `active_cook` are darker.
    """
    from PIL import Image, ImageDraw, ImageFont

    kitchen = sim.kitchen
    wide, tall = kitchen.n_columns * TILE, kitchen.n_rows * TILE
    large = _ground(kitchen).copy()
    pen = Pen(ImageDraw.Draw(large))
    for cell, thing in enumerate(sim.lying):
        if thing >= 0:
            _draw_thing(sim, pen.at(kitchen, cell), thing, 0.5, 0.5, 0.3)
    for cook, cell in enumerate(sim.cell):
        _draw_cook(sim, pen.at(kitchen, cell), cook)
    image = large.reduce(FINE)
    shade = Image.new("L", (kitchen.n_columns, kitchen.n_rows))
    seen = kitchen.near(sim.cell[active_cook], sim.radius)
    shade.putdata([0 if sees else 70 for sees in seen])
    image.paste("#241c14", mask=shade.resize((wide, tall), Image.Resampling.NEAREST))
    font = ImageFont.load_default(size=12)
    words = ImageDraw.Draw(image)
    if len(kitchen.boards) > 1:  # numbered as in the observation
        for number, cell in enumerate(kitchen.boards):
            row, column = kitchen.position(cell)
            words.text((column * TILE + 3, row * TILE + 1), str(number + 1), fill=INK, font=font)
    for cook, cell in enumerate(sim.cell):
        if len(sim.cell) > 1:
            row, column = kitchen.position(cell)
            words.text((column * TILE + 24, row * TILE + 2), str(cook + 1), fill=INK, font=font, anchor="ma")
    if not caption:
        return np.asarray(image)
    framed = Image.new("RGB", (wide, tall + CAPTION), PAPER)
    framed.paste(image)
    pixels = wide - 12
    while caption and font.getlength(caption) > pixels:
        caption = caption[:-2].rstrip() + "…"
    ImageDraw.Draw(framed).text((6, tall + 4), caption, fill=INK, font=font)
    return np.asarray(framed)


class Pen:
    """Draws in one cell, in coordinates from 0 to 1, left to right and top to bottom."""

    def __init__(self, pen: ImageDraw.ImageDraw, left: int = 0, top: int = 0) -> None:
        self.pen, self.left, self.top = pen, left, top

    def at(self, kitchen: Kitchen, cell: int) -> Pen:
        """Returns the pen of one cell."""
        row, column = kitchen.position(cell)
        return Pen(self.pen, column * TILE * FINE, row * TILE * FINE)

    def _points(self, *numbers: float) -> list[float]:
        return [(self.top if i % 2 else self.left) + n * TILE * FINE for i, n in enumerate(numbers)]

    def box(
        self, x: float, y: float, right: float, bottom: float, fill: str, edge: str = "", corner: float = 0
    ) -> None:
        """Draws a rectangle with rounded corners."""
        box = self._points(x, y, right, bottom)
        self.pen.rounded_rectangle(box, corner * TILE * FINE, fill, edge or None, FINE if edge else 0)

    def disc(self, x: float, y: float, wide: float, tall: float, fill: str, edge: str = "") -> None:
        """Draws an ellipse around (x, y) with half-axes `wide` and `tall`."""
        box = self._points(x - wide, y - tall, x + wide, y + tall)
        self.pen.ellipse(box, fill, edge or None, FINE if edge else 0)

    def shape(self, *points: float, fill: str) -> None:
        """Draws a polygon."""
        self.pen.polygon(self._points(*points), fill)


@lru_cache(maxsize=2)
def _ground(kitchen: Kitchen) -> Image.Image:
    """Draws floor and counters of a kitchen, FINE times as large as the picture."""
    from PIL import Image, ImageDraw

    large = Image.new("RGB", (kitchen.n_columns * TILE * FINE, kitchen.n_rows * TILE * FINE), PAPER)
    pen = Pen(ImageDraw.Draw(large))
    for cell in range(len(kitchen.kind)):
        _draw_ground(kitchen, pen, cell)
    return large


def _draw_ground(kitchen: Kitchen, pen: Pen, cell: int) -> None:
    kind, (row, column) = kitchen.kind[cell], kitchen.position(cell)
    pen = pen.at(kitchen, cell)
    if kind == FLOOR:
        pen.box(0, 0, 1, 1, FLOORS[(row + column) % 2])
        return
    pen.box(0, 0, 1, 1, COUNTER_EDGE)
    pen.box(0.02, 0.02, 0.98, 0.94, DELIVERY_TOP if kind == DELIVERY else COUNTER_TOP, corner=0.06)
    if kind == BOARD:
        pen.box(0.1, 0.16, 0.9, 0.82, PLANK, PLANK_EDGE, corner=0.1)
        pen.disc(0.82, 0.24, 0.03, 0.03, COUNTER_EDGE)
    elif kind == DELIVERY:
        pen.shape(0.2, 0.4, 0.5, 0.4, 0.5, 0.22, 0.82, 0.49, 0.5, 0.76, 0.5, 0.58, 0.2, 0.58, fill="#ffffff")


def _draw_cook(sim: Simulation, pen: Pen, cook: int) -> None:
    draw_body(pen, COOKS[cook])
    if sim.hand[cook] >= 0:
        _draw_thing(sim, pen, sim.hand[cook], 0.5, 0.76, 0.2)


def draw_body(pen: Pen, colour: str) -> None:
    """Draws a cook."""
    pen.disc(0.5, 0.56, 0.36, 0.34, colour, INK)
    pen.disc(0.5, 0.44, 0.2, 0.18, "#f0c9a4", INK)  # the head
    for x, y in ((0.38, 0.22), (0.62, 0.22), (0.5, 0.16)):  # the hat
        pen.disc(x, y, 0.13, 0.12, "#ffffff")
    pen.box(0.34, 0.2, 0.66, 0.36, "#ffffff", corner=0.04)


def _draw_thing(sim: Simulation, pen: Pen, thing: int, x: float, y: float, size: float) -> None:
    if thing < sim.n_foods:
        _draw_food(sim, pen, thing, x, y, size)
        return
    pen.disc(x, y, size * 1.1, size * 1.1, "#ffffff", INK)
    pen.disc(x, y, size * 0.85, size * 0.85, "#e4e2dd")
    foods = sim.contents[thing - sim.n_foods]
    for i, food in enumerate(foods):
        turn = 2 * np.pi * i / len(foods)
        away = size * 0.4 if len(foods) > 1 else 0.0
        draw_slices(pen, FOOD[sim.kitchen.foods[food]], x + away * np.sin(turn), y - away * np.cos(turn), size * 0.55)


def draw_slices(pen: Pen, colour: str, x: float, y: float, size: float) -> None:
    """Draws a chopped food."""
    for dx, dy in ((-0.5, 0.4), (0.5, 0.4), (0.0, -0.45)):
        pen.disc(x + dx * size, y + dy * size, size * 0.48, size * 0.48, colour, INK)
        pen.disc(x + dx * size, y + dy * size, size * 0.2, size * 0.2, "#fff6e0")


def _draw_food(sim: Simulation, pen: Pen, food: int, x: float, y: float, size: float) -> None:
    name = sim.kitchen.foods[food]
    if sim.is_chopped(food):
        draw_slices(pen, FOOD[name], x, y, size)
        return
    draw_raw(pen, name, x, y, size)
    for done in range(sim.chops[food]):
        left = x - size + done * 2 * size / CHOPS
        pen.box(left, y + size * 1.15, left + 1.7 * size / CHOPS, y + size * 1.4, LEAF)


def draw_raw(pen: Pen, name: str, x: float, y: float, size: float) -> None:
    """Draws a whole food."""
    colour = FOOD[name]
    if name == "carrot":
        pen.shape(x - 0.5 * size, y - 0.5 * size, x + 0.5 * size, y - 0.5 * size, x, y + 1.1 * size, fill=colour)
        _draw_leaves(pen, x, y - 0.6 * size, size)
    elif name == "cucumber":
        pen.disc(x, y, size, size * 0.5, colour, INK)
        pen.disc(x, y, size * 0.7, size * 0.12, "#7fbf8f")
    elif name == "mushroom":
        pen.box(x - 0.3 * size, y - 0.1 * size, x + 0.3 * size, y + 0.9 * size, "#f2e7d8", INK, 0.05)
        pen.disc(x, y - 0.25 * size, size, size * 0.6, colour, INK)
    elif name == "lettuce":
        for turn in np.linspace(0, 2 * np.pi, 7)[:-1].tolist():
            pen.disc(x + 0.5 * size * np.sin(turn), y + 0.5 * size * np.cos(turn), size * 0.5, size * 0.5, colour, LEAF)
        pen.disc(x, y, size * 0.5, size * 0.5, "#a9d96f")
    else:
        pen.disc(x, y, size, size * (1.0 if name != "pepper" else 0.85), colour, INK)
        if name == "onion":
            pen.disc(x, y, size * 0.6, size * 0.95, "#dcbfe0")
            pen.disc(x, y, size * 0.2, size * 0.95, colour)
        _draw_leaves(pen, x, y - 0.8 * size, size * (0.5 if name == "onion" else 0.8))


def _draw_leaves(pen: Pen, x: float, y: float, size: float) -> None:
    for aside in (-0.45, 0.0, 0.45):
        pen.shape(x - 0.12 * size, y, x + 0.12 * size, y, x + aside * size, y - 0.5 * size, fill=LEAF)


def write(sim: Simulation) -> str:
    """Returns the kitchen as text in the symbols of kitchens.toml.

    Chopped food is a capital letter, a cook a digit; lines below the map list what cooks carry and bowls hold.
    """
    kitchen, letters = sim.kitchen, all_foods()
    ground = {FLOOR: ".", COUNTER: "#", BOARD: "k", DELIVERY: "d"}
    glyphs = [ground[kind] for kind in kitchen.kind]

    def letter(thing: int) -> str:
        if thing >= sim.n_foods:
            return "B" if sim.contents[thing - sim.n_foods] else "b"
        return letters[kitchen.foods[thing]].upper() if sim.is_chopped(thing) else letters[kitchen.foods[thing]]

    for cell, thing in enumerate(sim.lying):
        if thing >= 0:
            glyphs[cell] = letter(thing)
    for cook, cell in enumerate(sim.cell):
        glyphs[cell] = str(cook + 1)
    wide = kitchen.n_columns
    rows = ["".join(glyphs[start : start + wide]) for start in range(0, len(glyphs), wide)]
    for cook, thing in enumerate(sim.hand):
        if thing >= 0:
            rows.append(f"{cook + 1} carries {letter(thing)}")
    for bowl, foods in enumerate(sim.contents):
        if foods:
            rows.append(f"bowl {bowl + 1} holds {', '.join(kitchen.foods[food] for food in foods)}")
    return "\n".join(rows)
