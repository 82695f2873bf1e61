"""The player's view, as facts and in words.

The view is a square of odd side `n` with the player in the middle of its bottom row, facing up.
Walls and closed doors hide what is behind them. Facts are in the order of BabyAI-Text (Carta et
al., 2023): the object in hand, the first wall ahead, to the left and to the right, then all
objects, columns from left to right, far before near.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple

FORWARD = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""(dx, dy) for the headings east, south, west and north."""
DOOR_STATES = ("open", "closed", "locked")
WORDINGS = ("ours", "babyai-text")
NOTHING = {
    "ours": "Nothing but empty floor is in sight.",
    "babyai-text": "You see nothing but empty floor",
}


class Fact(NamedTuple):
    """One visible thing. `kind` is carry, wall or object; `state` applies to doors; distances are
    in steps.
    """

    kind: str
    type: str = ""
    color: str = ""
    state: str = ""
    left: int = 0
    right: int = 0
    forward: int = 0


def door_state(door: Any) -> int:
    """Returns the index into DOOR_STATES."""
    return 0 if door.is_open else 2 if door.is_locked else 1


def visible_facts(engine: Any) -> list[Fact]:
    """Returns the facts of the player's view.

    They come from the live engine, because its first image is outdated if the player starts with an
    object in hand.
    """
    return [_fact(*sight) for sight in _sights(engine)]


def view_text(engine: Any, wording: str) -> str:
    """Returns the facts of the player's view in words."""
    return "\n".join([_text(*sight, wording) for sight in _sights(engine)]) or NOTHING[wording]


Sight = tuple[str, str, str, str, int, int]
"""Kind, type, colour, state, lateral distance (left is negative) and distance ahead of a visible thing."""


def _sights(engine: Any) -> list[Sight]:
    """Returns what the player sees, in the order of the facts."""
    n = engine.agent_view_size
    width, height, cells = engine.grid.width, engine.grid.height, engine.grid.grid
    x, y = engine.agent_pos
    window, opaque = _window(int(x), int(y), engine.agent_dir, n, width, height)
    walls = occupied = 0
    things = []
    for bit, index in window:
        thing = cells[index]
        if thing is not None:
            mask = 1 << bit
            occupied |= mask
            if thing.type == "wall":
                walls |= mask
            else:
                things.append((bit, thing))
                if thing.type == "door" and not thing.is_open:
                    opaque |= mask
    visible = _lit_cells(opaque | walls, n)
    sights: list[Sight] = []
    if engine.carrying is not None:
        sights.append(("carry", engine.carrying.type, engine.carrying.color, "", 0, 0))
    sights += _first_walls(visible & occupied, walls, n)
    own = n * (n // 2) + n - 1
    for bit, thing in things:
        if visible >> bit & 1 and bit != own:
            state = DOOR_STATES[door_state(thing)] if thing.type == "door" else ""
            sights.append(("object", thing.type, thing.color, state, bit // n - n // 2, n - 1 - bit % n))
    return sights


@lru_cache(maxsize=1 << 15)
def _window(x: int, y: int, heading: int, n: int, width: int, height: int) -> tuple[tuple[tuple[int, int], ...], int]:
    """Returns (bit, index of the cell) of the view's cells in the grid, and the bits of those outside.

    Cells outside are opaque.
    """
    inside, outside = [], 0
    for bit, (dx, dy) in enumerate(_offsets(heading, n)):
        i, j = x + dx, y + dy
        if 0 <= i < width and 0 <= j < height:
            inside.append((bit, j * width + i))
        else:
            outside |= 1 << bit
    return tuple(inside), outside


@lru_cache(maxsize=1 << 16)
def _first_walls(seen: int, walls: int, n: int) -> tuple[Sight, ...]:
    """Returns the walls that come first ahead, to the left and to the right, given the occupied cells in sight."""
    sights: list[Sight] = []
    for ray in _rays(n):
        for bit, side, ahead in ray:
            if seen >> bit & 1:
                if walls >> bit & 1:
                    sights.append(("wall", "", "", "", side, ahead))
                break
    return tuple(sights)


def describe(facts: list[Fact], wording: str = "ours") -> str:
    """Returns the facts in words, one per line, or a fixed line if there are none."""
    return "\n".join([_line(fact, wording) for fact in facts]) or NOTHING[wording]


@cache
def _offsets(heading: int, n: int) -> tuple[tuple[int, int], ...]:
    """Returns the world offset of each cell of the view, column by column, the far end first."""
    fx, fy = FORWARD[heading]
    rx, ry = -fy, fx
    return tuple(
        (fx * (n - 1 - vy) + rx * (vx - n // 2), fy * (n - 1 - vy) + ry * (vx - n // 2))
        for vx in range(n)
        for vy in range(n)
    )


@cache
def _rays(n: int) -> tuple[tuple[tuple[int, int, int], ...], ...]:
    """Returns (bit, lateral, forward) along the three axes from the player: ahead, left, right."""
    middle = n // 2
    ahead = tuple((middle * n + n - 1 - k, 0, k) for k in range(1, n))
    left = tuple(((middle - k) * n + n - 1, -k, 0) for k in range(1, middle + 1))
    right = tuple(((middle + k) * n + n - 1, k, 0) for k in range(1, middle + 1))
    return ahead, left, right


@lru_cache(maxsize=1 << 16)
def _lit_cells(opaque: int, n: int) -> int:
    """Returns the visible cells as bits, given the opaque ones.

    Row by row from the player's: light spreads sideways until an opaque cell, and from each lit
    cell to the cell ahead and the next one in the direction of spreading, in the following row.
    """
    lit = [[False] * n for _ in range(n)]  # [row][column]
    lit[n - 1][n // 2] = True
    for row in range(n - 1, -1, -1):
        for columns, step in ((range(n - 1), 1), (range(n - 1, 0, -1), -1)):
            for column in columns:
                if lit[row][column] and not opaque >> (column * n + row) & 1:
                    lit[row][column + step] = True
                    if row:
                        lit[row - 1][column + step] = lit[row - 1][column] = True
    return sum(1 << (column * n + row) for row in range(n) for column in range(n) if lit[row][column])


@cache
def _fact(kind: str, thing: str, color: str, state: str, side: int, ahead: int) -> Fact:
    return Fact(kind, thing, color, state, max(0, -side), max(0, side), ahead)


@cache
def _text(kind: str, thing: str, color: str, state: str, side: int, ahead: int, wording: str) -> str:
    return _line(_fact(kind, thing, color, state, side, ahead), wording)


@cache
def _line(fact: Fact, wording: str) -> str:
    lateral, direction = (fact.left, "left") if fact.left else (fact.right, "right")
    thing = " ".join(filter(None, (fact.state, fact.color, fact.type))) if fact.kind != "wall" else "wall"
    if wording == "babyai-text":
        if fact.kind == "carry":
            return f"You carry a {thing}"
        where = [f"{_steps(lateral)} {direction}"] if lateral else []
        where += [f"{_steps(fact.forward)} forward"] if fact.forward else []
        return f"You see a {thing} {' and '.join(where)}"
    article = "An" if thing.startswith("open") else "A"
    if fact.kind == "carry":
        return f"In your hand: {article.lower()} {thing}."
    if not lateral:
        where = ["directly in front of you" if fact.forward == 1 else f"{_steps(fact.forward)} ahead"]
    else:
        where = [f"{_steps(fact.forward)} ahead"] if fact.forward else []
        where += [f"{_steps(lateral)} to the {direction}"]
    return f"{article} {thing}: {', '.join(where)}."


def _steps(count: int) -> str:
    return f"{count} step{'s' if count > 1 else ''}"
