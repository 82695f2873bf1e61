"""The pictures of the gallery: the environments' own drawings, and SVG maps for the other families."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from envsuite.cache import write_atomically

SUFFIX = {
    **dict.fromkeys(("overcooked", "virtualhome", "babyai"), "png"),
    **dict.fromkeys(("alfworld", "textworld", "datascicoding", "swegym"), "svg"),
}
WIDEST = 1000  # pixels
DARK, LIGHT, INK, ACCENT = "#3f51b5", "#e8eaf6", "#1a237e", "#e65100"
COLOURS = ("#3f51b5", "#e65100", "#2e7d32", "#8e24aa", "#00838f", "#c62828", "#6d4c41", "#546e7a", "#f9a825", "#ad1457")


def draw(entry: Any, path: Path, open_episode: Callable[..., tuple[Any, str]]) -> None:
    """Writes the picture of an entry's episode to `path`."""
    if SUFFIX[entry.family] == "png":
        from PIL import Image

        env, _ = open_episode(entry, render_mode="rgb_array")
        picture = Image.fromarray(env.render())
        if picture.width > WIDEST:
            height = round(WIDEST * picture.height / picture.width)
            picture = picture.resize((WIDEST, height), Image.Resampling.LANCZOS)
        picture.quantize(128).save(path, optimize=True)
    else:
        env, observation = open_episode(entry, **({"max_steps": 500} if entry.family == "alfworld" else {}))
        write_atomically(path, globals()[entry.family](env, observation))
    env.close()


def alfworld(env: Any, observation: str) -> str:
    """Returns a map of the receptacles with their content, found by visiting and opening each."""
    names = re.findall(r"an? (\w+ \d+)", observation.partition("you see")[2].partition("\n")[0])
    tiles = []
    for name in sorted(names, key=lambda name: (name.split()[0], int(name.split()[1]))):
        seen = env.step(f"go to {name}")[0]
        closed = "is closed" in seen
        if closed:
            seen = env.step(f"open {name}")[0]
        tiles.append((name, re.findall(r"an? (\w+ \d+)", seen.partition("you see")[2]), closed))
    width, columns = 172, 4
    parts, x, y, tallest = [], 0, 0, 0
    for number, (name, things, closed) in enumerate(tiles):
        lines = [", ".join(things[start : start + 2]) for start in range(0, len(things), 2)] or ["empty"]
        height = 30 + 15 * len(lines)
        fill, ink = (INK, "#ffffff") if closed else (LIGHT, INK)
        parts.append(_box(x, y, width - 8, height, fill))
        parts.append(_text(x + 8, y + 18, name, ink, bold=True))
        parts += [_text(x + 8, y + 34 + 15 * row, line, ink, 11) for row, line in enumerate(lines)]
        tallest = max(tallest, height)
        x += width
        if number % columns == columns - 1 or number == len(tiles) - 1:
            x, y, tallest = 0, y + tallest + 8, 0
    return _svg(columns * width, y, parts)


def textworld(env: Any, observation: str) -> str:
    """Returns a map of the rooms, their exits, doors and things."""
    from textworld.generator.game import Game

    game = Game.load(str(Path(env.path).with_suffix(".json")))
    rooms = {room.id: room for room in game.world.rooms}
    start = game.world.player_room.id
    places, queue = {start: (0, 0)}, [start]
    moves = {"north": (0, -1), "south": (0, 1), "east": (1, 0), "west": (-1, 0)}
    for room in queue:
        for direction, neighbour in rooms[room].exits.items():
            if neighbour.id not in places:
                places[neighbour.id] = (places[room][0] + moves[direction][0], places[room][1] + moves[direction][1])
                queue.append(neighbour.id)
    left, top = min(x for x, _ in places.values()), min(y for _, y in places.values())
    width, height, gap = 210, 110, 56
    parts = []
    centre = {
        name: ((x - left) * (width + gap) + width // 2, (y - top) * (height + gap) + height // 2)
        for name, (x, y) in places.items()
    }
    for name, room in rooms.items():
        for direction, neighbour in room.exits.items():
            if direction in ("east", "south"):
                (x1, y1), (x2, y2) = centre[name], centre[neighbour.id]
                parts.append(f'<path d="M{x1} {y1}L{x2} {y2}" stroke="{INK}" stroke-width="3"/>')
                if door := room.doors.get(direction):
                    x, y = (x1 + x2) // 2, (y1 + y2) // 2
                    parts.append(f'<rect x="{x - 9}" y="{y - 9}" width="18" height="18" fill="{ACCENT}"/>')
                    parts.append(_text(x + 14, y + 5, game.infos[door.id].name, INK))
    for name, room in rooms.items():
        x, y = centre[name][0] - width // 2, centre[name][1] - height // 2
        here = name == start
        ink = "#ffffff" if here else INK
        parts.append(_box(x, y, width, height, INK if here else LIGHT))
        parts.append(_text(x + 10, y + 22, game.infos[name].name, ink, bold=True))
        doors = {door.id for door in room.doors.values() if door}
        names = [game.infos[thing.id].name for thing in room.content if thing.id not in doors]
        lines = [thing for thing in names if thing]
        parts += [_text(x + 10, y + 42 + 16 * row, line, ink, 12) for row, line in enumerate(lines[:4])]
    across = max(x for x, _ in places.values()) - left + 1
    down = max(y for _, y in places.values()) - top + 1
    return _svg(across * (width + gap) - gap, down * (height + gap) - gap, parts)


def datascicoding(env: Any, observation: str) -> str:
    """Returns two numeric columns of the training table against each other."""
    table, labels = env.game.splits(1)[0][:2]
    first, second = table.select_dtypes("number").columns[:2]
    width, height, edge = 560, 360, 44
    spans = {name: (table[name].min(), table[name].max()) for name in (first, second)}

    def place(name: str, value: float, length: int) -> float:
        low, high = spans[name]
        return (value - low) / ((high - low) or 1) * (length - 2 * edge)

    parts = [_box(edge - 12, 8, width - 2 * edge + 24, height - 2 * edge + 24, "#fafafa")]
    for (_, row), label in zip(table.iterrows(), labels, strict=True):
        if row[first] == row[first] and row[second] == row[second]:  # no dot for a missing value
            x = edge + place(first, row[first], width)
            y = height - edge - 24 - place(second, row[second], height)
            colour = COLOURS[int(label) % len(COLOURS)]
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}" fill-opacity="0.75"/>')
    parts.append(_text(width // 2 - 60, height - 16, f"x: {first}    y: {second}", INK))
    return _svg(width, height, parts)


def swegym(env: Any, observation: str) -> str:
    """Returns one square per test of the repository; a filled square fails before the repair."""
    task = env._problem.task
    tests = [*(True for _ in task.fail_to_pass), *(False for _ in task.pass_to_pass)]
    columns, side = 40, 15
    squares: dict[bool, list[str]] = {True: [], False: []}
    for number, fails in enumerate(tests):
        x, y = number % columns * side, 28 + number // columns * side
        squares[fails].append(f"M{x} {y}h12v12h-12z")
    title = f"{task.package.name}: {len(task.fail_to_pass)} of {len(tests)} tests fail"
    parts = [_text(0, 16, title, INK, bold=True)]
    for fails, fill in ((False, LIGHT), (True, ACCENT)):
        parts.append(f'<path d="{"".join(squares[fails])}" fill="{fill}" stroke="{DARK}"/>')
    return _svg(columns * side, 32 + (len(tests) + columns - 1) // columns * side, parts)


def _box(x: int, y: int, width: int, height: int, fill: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{fill}"/>'


def _text(x: int, y: int, text: str, ink: str, size: int = 13, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{ink}"{weight}>{escape(text)}</text>'


def _svg(width: int, height: int, parts: list[str]) -> str:
    width, height = width + 16, height + 16
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 -8 {width} {height}" width="{width}"'
        ' font-family="sans-serif">'
    )
    paper = f'<rect x="-8" y="-8" width="{width}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, paper, *parts, "</svg>\n"])
