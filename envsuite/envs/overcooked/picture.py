"""Drawing with pillow that all kitchens share: the canvas, cooks, dishes and foods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

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


class Canvas:
    """Picture of a kitchen, drawn FINE times as large as the result."""

    def __init__(self, rows: int, columns: int) -> None:
        from PIL import Image, ImageDraw

        self.rows, self.columns = rows, columns
        self._image = Image.new("RGB", (columns * TILE * FINE, rows * TILE * FINE), PAPER)
        self._draw = ImageDraw.Draw(self._image)

    def pen(self, cell: int) -> Pen:
        """Returns a pen that draws in one cell."""
        row, column = divmod(cell, self.columns)
        return Pen(self._draw, column * TILE * FINE, row * TILE * FINE)

    def reduced(self) -> Image.Image:
        """Returns the picture in its final size."""
        return self._image.reduce(FINE)

    def shade(self, image: Image.Image, is_dark: Sequence[bool]) -> None:
        """Darkens some cells of the reduced picture."""
        from PIL import Image

        mask = Image.new("L", (self.columns, self.rows))
        mask.putdata([70 if dark else 0 for dark in is_dark])
        image.paste("#241c14", mask=mask.resize(image.size, Image.Resampling.NEAREST))

    def write(self, image: Image.Image, position: tuple[int, int], text: str, anchor: str = "la") -> None:
        """Writes a short text on the reduced picture."""
        from PIL import ImageDraw, ImageFont

        ImageDraw.Draw(image).text(position, text, fill=INK, font=ImageFont.load_default(size=12), anchor=anchor)

    def framed(self, image: Image.Image, caption: str) -> npt.NDArray[np.uint8]:
        """Returns the reduced picture with a caption below it, [rows * 48 + 22, columns * 48, 3]."""
        from PIL import Image, ImageFont

        wide, tall = image.size
        framed = Image.new("RGB", (wide, tall + CAPTION), PAPER)
        framed.paste(image)
        font = ImageFont.load_default(size=12)
        while caption and font.getlength(caption) > wide - 12:
            caption = caption[:-2].rstrip() + "…"
        self.write(framed, (6, tall + 4), caption)
        return np.asarray(framed)


class Pen:
    """Draws in one cell, in coordinates from 0 to 1, left to right and top to bottom."""

    def __init__(self, pen: ImageDraw.ImageDraw, left: int = 0, top: int = 0) -> None:
        self.pen, self.left, self.top = pen, left, top

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


def draw_body(pen: Pen, colour: str) -> None:
    """Draws a cook."""
    pen.disc(0.5, 0.56, 0.36, 0.34, colour, INK)
    pen.disc(0.5, 0.44, 0.2, 0.18, "#f0c9a4", INK)  # the head
    for x, y in ((0.38, 0.22), (0.62, 0.22), (0.5, 0.16)):  # the hat
        pen.disc(x, y, 0.13, 0.12, "#ffffff")
    pen.box(0.34, 0.2, 0.66, 0.36, "#ffffff", corner=0.04)


def draw_dish(pen: Pen, x: float, y: float, size: float) -> None:
    """Draws an empty bowl or dish."""
    pen.disc(x, y, size * 1.1, size * 1.1, "#ffffff", INK)
    pen.disc(x, y, size * 0.85, size * 0.85, "#e4e2dd")


def draw_arrow(pen: Pen) -> None:
    """Draws the arrow that marks where orders are served."""
    pen.shape(0.2, 0.4, 0.5, 0.4, 0.5, 0.22, 0.82, 0.49, 0.5, 0.76, 0.5, 0.58, 0.2, 0.58, fill="#ffffff")


def draw_slices(pen: Pen, colour: str, x: float, y: float, size: float) -> None:
    """Draws a chopped food."""
    for dx, dy in ((-0.5, 0.4), (0.5, 0.4), (0.0, -0.45)):
        pen.disc(x + dx * size, y + dy * size, size * 0.48, size * 0.48, colour, INK)
        pen.disc(x + dx * size, y + dy * size, size * 0.2, size * 0.2, "#fff6e0")


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
