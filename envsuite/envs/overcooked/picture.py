"""Pictures of a kitchen: as an image (pillow) and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from envsuite.envs.overcooked.engine import Simulation
from envsuite.envs.overcooked.kitchen import BOARD, COUNTER, DELIVERY, FLOOR, all_foods

if TYPE_CHECKING:
    from PIL import ImageDraw

TILE = 32
GROUND = {FLOOR: "#f4ead7", COUNTER: "#9c8671", BOARD: "#d9b26a", DELIVERY: "#7fb685"}
FOOD = {
    "tomato": "#d1372b",
    "lettuce": "#5fae3a",
    "onion": "#d9c7e3",
    "carrot": "#ee8a2a",
    "cucumber": "#2f7d4f",
    "pepper": "#e8c32e",
    "mushroom": "#b9a08b",
    "radish": "#c7417b",
}
COOKS = ("#3565b0", "#8a3fa0", "#20807c")


def draw(sim: Simulation) -> npt.NDArray[np.uint8]:
    """The kitchen from above, [rows * 32, columns * 32, 3]: raw food a disc, chopped food three bits, a bowl a ring."""
    from PIL import Image, ImageDraw

    kitchen = sim.kitchen
    image = Image.new("RGB", (kitchen.n_columns * TILE, kitchen.n_rows * TILE))
    pen = ImageDraw.Draw(image)
    for cell, kind in enumerate(kitchen.kind):
        x, y = _corner(sim, cell)
        pen.rectangle((x, y, x + TILE - 1, y + TILE - 1), fill=GROUND[kind], outline="#7d6a58" if kind else "#e7dac3")
        if kind == BOARD:
            pen.rectangle((x + 4, y + 7, x + TILE - 5, y + TILE - 8), fill="#f0d7a1", outline="#8f6f35")
        if kind == DELIVERY:
            pen.polygon([(x + 8, y + 9), (x + 24, y + 16), (x + 8, y + 23)], fill="#ffffff")
    for cell, thing in enumerate(sim.lying):
        if thing >= 0:
            x, y = _corner(sim, cell)
            _draw_thing(sim, pen, thing, x + TILE // 2, y + TILE // 2, 10)
    for cook, cell in enumerate(sim.cell):
        x, y = _corner(sim, cell)
        pen.ellipse((x + 4, y + 4, x + TILE - 5, y + TILE - 5), fill=COOKS[cook], outline="#1b1b1b")
        pen.ellipse((x + 9, y + 2, x + TILE - 10, y + 12), fill="#ffffff", outline="#1b1b1b")  # the hat
        if sim.hand[cook] >= 0:
            _draw_thing(sim, pen, sim.hand[cook], x + TILE // 2, y + TILE // 2 + 5, 8)
    return np.asarray(image)


def _corner(sim: Simulation, cell: int) -> tuple[int, int]:
    row, column = sim.kitchen.position(cell)
    return column * TILE, row * TILE


def _draw_thing(sim: Simulation, pen: ImageDraw.ImageDraw, thing: int, x: int, y: int, size: int) -> None:
    if thing < sim.n_foods:
        _draw_food(sim, pen, thing, x, y, size)
        return
    pen.ellipse((x - size, y - size, x + size, y + size), fill="#ffffff", outline="#333333", width=2)
    foods = sim.contents[thing - sim.n_foods]
    for i, food in enumerate(foods):
        offset = (2 * i - len(foods) + 1) * size // max(2, len(foods) + 1)
        _draw_food(sim, pen, food, x + offset, y, max(3, size // 2))


def _draw_food(sim: Simulation, pen: ImageDraw.ImageDraw, food: int, x: int, y: int, size: int) -> None:
    colour = FOOD[sim.kitchen.foods[food]]
    if not sim.is_chopped(food):
        pen.ellipse((x - size, y - size, x + size, y + size), fill=colour, outline="#333333")
        return
    bit = max(1, size // 2)
    for dx, dy in ((-bit, bit), (bit, bit), (0, -bit)):
        pen.rectangle((x + dx - bit + 1, y + dy - bit + 1, x + dx + bit - 1, y + dy + bit - 1), fill=colour)


def write(sim: Simulation) -> str:
    """The kitchen in letters, as kitchens.toml draws it; chopped food in capitals, cooks as digits, their loads below."""
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
