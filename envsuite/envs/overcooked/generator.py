"""Procedural kitchens: drawn from a seed, and every one proven solvable by cooks who solve it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from envsuite.envs.overcooked.cooks import LONG, Menu, play_out
from envsuite.envs.overcooked.engine import Simulation, macro_actions
from envsuite.envs.overcooked.kitchen import Kitchen, all_foods
from envsuite.errors import UsageError

TRIES = 50  # drawings until one is given up as too crowded


@lru_cache(maxsize=256)
def draw_kitchen(
    seed: int,
    size: int,
    cooks: int,
    recipe: tuple[str, ...],
    foods: int,
    boards: int,
    bowls: int,
    deliveries: int,
    walls: float,
    horizon: int = LONG,
) -> Kitchen:
    """A square kitchen of `size`, with the recipe's foods and others up to `foods`, and counters on a share `walls` of
    the inner cells. All stations can be reached by every cook, and greedy cooks serve the order within `horizon`
    primitive steps. Raises UsageError where no such kitchen was drawn."""
    rng = np.random.default_rng([seed, size, cooks, foods, boards, bowls, deliveries, round(walls * 1000)])
    letters = all_foods()
    others = [food for food in letters if food not in recipe]
    kinds = [*recipe, *(others[i] for i in rng.permutation(len(others)).tolist())][: max(foods, len(recipe))]
    stations = [letters[food] for food in kinds] + ["k"] * boards + ["b"] * bowls + ["d"] * deliveries
    fits = False
    for _ in range(TRIES):
        drawn = _draw(rng, size, cooks, stations, walls)
        if drawn is None:
            continue
        rows, starts = drawn
        kitchen = Kitchen(f"random-{seed}", rows, starts)
        fits = True
        if play_out(Simulation(kitchen, recipe), Menu(macro_actions(kitchen, counters=True)), horizon) is not None:
            return kitchen
    if fits:
        raise UsageError(
            f"An order of {len(recipe)} in kitchens of size {size} was not served within horizon={horizon} in {TRIES} "
            "drawings: take a longer horizon, or a smaller size."
        )
    raise UsageError(
        f"{len(stations)} stations and {cooks} cooks did not fit a kitchen of size {size} with walls={walls} "
        f"in {TRIES} drawings: take a larger size or fewer walls."
    )


def _draw(
    rng: np.random.Generator, size: int, cooks: int, stations: list[str], walls: float
) -> tuple[list[str], list[tuple[int, int]]] | None:
    """One drawing (rows, starts), or None where it came out too small."""
    inner = [row * size + column for row in range(1, size - 1) for column in range(1, size - 1)]
    open_floor = {cell for cell, chance in zip(inner, rng.random(len(inner)).tolist()) if chance >= walls}
    floor = _largest_room(open_floor, size)
    counters = sorted({cell + step for cell in floor for step in (1, -1, size, -size)} - floor)
    if len(counters) < len(stations) + cooks or len(floor) < 2 * cooks:
        return None
    grid = ["#"] * (size * size)
    for cell in floor:
        grid[cell] = "."
    for glyph, place in zip(stations, rng.permutation(len(counters)).tolist()):
        grid[counters[place]] = glyph
    cells = sorted(floor)
    starts = [divmod(cells[i], size) for i in rng.permutation(len(cells))[:cooks].tolist()]
    return ["".join(grid[start : start + size]) for start in range(0, size * size, size)], starts


def _largest_room(open_floor: set[int], size: int) -> set[int]:
    """The largest set of floor cells that hang together."""
    unseen = sorted(open_floor, reverse=True)
    left = set(open_floor)
    best: set[int] = set()
    while len(left) > len(best):
        first = unseen.pop()
        if first not in left:
            continue
        left.remove(first)
        room = [first]
        for cell in room:  # grows as we go
            for step in (1, -1, size, -size):
                if cell + step in left:
                    left.remove(cell + step)
                    room.append(cell + step)
        if len(room) > len(best):
            best = set(room)
    return best
