"""Rendering of a home as an image (pillow) and as text."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from envsuite.envs.virtualhome.engine import HomeState
from envsuite.envs.virtualhome.home import Home

CARD, LINE, GAP, HEAD = 150, 15, 8, 22  # card width, line height, spacing and title height in pixels
COLUMNS = 4  # cards per row in a room
INK, PAPER, WALL = "#22262b", "#f6f2ea", "#8c7b6b"
FLOORS = ("#fdfaf3", "#f1f6fb", "#f8f0f6", "#f0f7ee", "#fdf3e7", "#eef0fa", "#f9efee", "#eef7f5")
SURFACE, CONTAINER, OPENED, SEAT, PLAIN, RUNNING = "#ecd9b8", "#c9d3de", "#e8eef4", "#d9cbe4", "#e2e2dc", "#ffd257"
AGENT = "#2f6db5"


def draw(home: Home, s: HomeState, title: str = "") -> npt.NDArray[np.uint8]:
    """Draws the whole home, [height, width, 3] uint8: a frame per room and a card per piece of furniture.

    A card lists the things there, in grey behind a closed door. A yellow corner marks a running appliance; the blue dot
    is the agent, next to the names of the things it holds.
    """
    font = ImageFont.load_default(size=12)
    rooms = [(room, _cards(home, s, room)) for room in home.room_bits]
    columns = 2 if len(rooms) > 1 else 1
    width = columns * (COLUMNS * (CARD + GAP) + 2 * GAP) + GAP
    heights = [HEAD + 2 * GAP + sum(_row_height(row) + GAP for row in _rows(cards)) + LINE for _, cards in rooms]
    tall = [max(heights[i : i + columns]) for i in range(0, len(rooms), columns)]
    wrapped = _wrap(title, width // 7)
    top = GAP + LINE * (len(wrapped) + bool(wrapped))
    image = Image.new("RGB", (width, top + sum(tall) + GAP * (len(tall) + 1)), PAPER)
    pen = ImageDraw.Draw(image)
    for i, line in enumerate(wrapped):
        pen.text((GAP, GAP + i * LINE), line, fill=INK, font=font)
    for i, (room, cards) in enumerate(rooms):
        x = GAP + (i % columns) * (width - GAP) // columns
        y = top + sum(tall[: i // columns]) + GAP * (i // columns)
        right = x + (width - GAP) // columns - GAP
        pen.rectangle((x, y, right, y + tall[i // columns]), fill=FLOORS[i % len(FLOORS)], outline=WALL, width=3)
        pen.text((x + 10, y + 6), home.nouns[room], fill=INK, font=font)
        corners = _draw_cards(pen, font, cards, x + GAP + 3, y + HEAD + GAP)
        if room == s.room:
            _draw_agent(pen, font, home, s, corners.get(_spot(home, s)), (x + 130, y + 13))
    return np.asarray(image)


def _spot(home: Home, s: HomeState) -> int:
    """Returns the furniture at which the agent is drawn (0: none), preferring furniture that commands can name."""
    near = s.seat & s.near or s.near & ~home.movable
    preferred = near & home.target or near
    return 1 << preferred.bit_length() - 1 if preferred else 0


class _Card:
    """Piece of furniture with the things on it or in it."""

    def __init__(self, bit: int, lines: list[str], fill: str, running: bool, hidden: bool) -> None:
        self.bit, self.lines, self.fill, self.running, self.hidden = bit, lines, fill, running, hidden


def _cards(home: Home, s: HomeState, room: int) -> list[_Card]:
    in_hand = s.right | s.left
    cards = []
    for bit in home.bits(home.fixed_in[room]):
        lines = [home.nouns[bit]]
        for item, inside, on in zip(home.movable_bits, s.inside, s.on, strict=True):
            if not item & in_hand and (inside | on) & bit:
                lines.append("· " + home.nouns[item])
        if not bit & (home.target | s.near) and len(lines) == 1:
            continue
        closed = bool(bit & home.door & ~s.open)
        fill = (CONTAINER if closed else OPENED) if bit & home.container else SURFACE if bit & home.surface else PLAIN
        if bit & home.seat and not bit & home.surface:
            fill = SEAT
        cards.append(_Card(bit, lines, fill, bool(s.power & bit), closed))
    return cards


def _rows(cards: list[_Card]) -> list[list[_Card]]:
    return [cards[i : i + COLUMNS] for i in range(0, len(cards), COLUMNS)]


def _row_height(row: list[_Card]) -> int:
    return 8 + LINE * max(len(card.lines) for card in row)


def _draw_cards(
    pen: ImageDraw.ImageDraw, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, cards: list[_Card], x: int, y: int
) -> dict[int, tuple[int, int]]:
    """Draws the cards. Returns a position at each card's lower left corner, which no name covers."""
    corners = {}
    for row in _rows(cards):
        for i, card in enumerate(row):
            left = x + i * (CARD + GAP)
            box = (left, y, left + CARD, y + 8 + LINE * len(card.lines))
            pen.rectangle(box, fill=card.fill, outline=INK, width=2 if card.hidden else 1)
            if card.running:
                pen.polygon([(left, y), (left + 14, y), (left, y + 14)], fill=RUNNING, outline=INK)
            for k, line in enumerate(card.lines):
                grey = k and card.hidden
                pen.text((left + 16 + 4 * (k > 0), y + 3 + k * LINE), line, fill="#8a8f96" if grey else INK, font=font)
            corners[card.bit] = left, y + LINE * len(card.lines) + 3
        y += _row_height(row) + GAP
    return corners


def _draw_agent(
    pen: ImageDraw.ImageDraw,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    home: Home,
    s: HomeState,
    at: tuple[int, int] | None,
    door: tuple[int, int],
) -> None:
    x, y = at or door
    pen.ellipse((x - 8, y - 8, x + 8, y + 8), fill=AGENT, outline="#ffffff", width=2)
    if s.sitting:
        pen.rectangle((x - 8, y + 3, x + 8, y + 8), fill=AGENT)
    names = [home.nouns[bit] for bit in (s.right, s.left) if bit]
    words = ("you sit" if s.sitting else "you") + (f", with {' and '.join(names)}" if names else "")
    pen.text((door[0] + 14, door[1] - 7), words, fill=AGENT, font=font)
    pen.ellipse((door[0] - 2, door[1] - 4, door[0] + 6, door[1] + 4), fill=AGENT)


def _wrap(text: str, width: int) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + len(word) < width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


def write(home: Home, s: HomeState, title: str = "") -> str:
    """Returns the whole home as text: one line per piece of furniture, with '@' at the agent."""
    lines = [title] if title else []
    in_hand = [home.nouns[bit] for bit in (s.right, s.left) if bit]
    for room in home.room_bits:
        here = room == s.room
        you = f"  @ holding {', '.join(in_hand) or 'nothing'}{', sitting' if s.sitting else ''}" if here else ""
        lines.append(f"[{home.nouns[room]}]{you}")
        for card in _cards(home, s, room):
            at = "@" if here and card.bit == _spot(home, s) else " "
            states = []
            if card.bit & home.door:
                states.append("closed" if card.hidden else "open")
            if card.bit & home.switch:
                states.append("on" if card.running else "off")
            status = f" ({', '.join(states)})" if states else ""
            things = ", ".join(line.removeprefix("· ") for line in card.lines[1:])
            lines.append(f"  {at} {card.lines[0]}{status}" + (f": {things}" if things else ""))
    return "\n".join(lines)
