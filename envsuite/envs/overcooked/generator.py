"""An episode's kitchen and order: of the papers, or drawn from a seed and proven solvable by cooks who solve it."""

from __future__ import annotations

import math
from functools import lru_cache
from types import SimpleNamespace

import numpy as np

from envsuite.envs.overcooked.cooks import LONG, Menu, play_out
from envsuite.envs.overcooked.engine import Simulation, macro_actions
from envsuite.envs.overcooked.kitchen import Kitchen, all_foods, published_kitchen, recipe_foods, recipe_names
from envsuite.envs.overcooked.motion import CHOPS
from envsuite.errors import UsageError

TRIES = 50  # drawings until one is given up as too crowded


def kitchen_and_order(given: SimpleNamespace, seed: int) -> tuple[Kitchen, tuple[str, ...]]:
    """The kitchen and the foods of the order that `seed` names, by the family's knobs `given`. Raises UsageError."""
    recipe = given.recipe
    if given.layout != "random":
        if recipe == "random":
            known = set(published_kitchen(given.variant, given.layout, given.size, given.cooks).foods)
            names = [name for name in recipe_names() if set(recipe_foods(name)) <= known]
            recipe = names[int(np.random.default_rng(seed).integers(len(names)))]
        return kitchen_of_the_papers(given, recipe)
    if recipe == "random":
        letters = list(all_foods())
        order = np.random.default_rng([seed, 1]).permutation(len(letters))
        foods = tuple(letters[i] for i in sorted(order[: given.recipe_size]))
    else:
        foods = recipe_foods(recipe)
    stations = given.foods, given.boards, given.bowls, given.deliveries
    return draw_kitchen(seed, given.size, given.cooks, foods, *stations, given.walls, given.horizon), foods


def kitchen_of_the_papers(given: SimpleNamespace, recipe: str) -> tuple[Kitchen, tuple[str, ...]]:
    """The published kitchen that the knobs name, and the recipe's foods. Raises UsageError where it cannot be served."""
    kitchen = published_kitchen(given.variant, given.layout, given.size, given.cooks)
    foods = recipe_foods(recipe)
    if missing := [food for food in foods if food not in kitchen.foods]:
        raise UsageError(
            f"Kitchen {kitchen.name!r} has no {' or '.join(missing)} for recipe {recipe!r}: set variant=v3."
        )
    if given.layout == "b" and given.cooks == 1:
        raise UsageError("Layout 'b' is divided by a wall, and 1 cook cannot serve anything there: set cooks=2.")
    return kitchen, foods


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
        if enough_time(kitchen, recipe) <= horizon:
            return kitchen
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


def enough_time(kitchen: Kitchen, recipe: tuple[str, ...]) -> float:
    """Primitive steps in which a lone greedy cook serves the order for certain, where all floor hangs together and every
    station lies at it; infinity for several cooks.

    It fetches each food and chops it on a board; where no board is left, and at the end, it takes the bowl and goes
    round the boards. Each of these walks is to a station and takes no longer than from the farthest cell. Between two
    rounds the bowl stands on the nearest free counter, no farther than where a food was, and is fetched from there
    across the whole kitchen at worst.
    """
    if len(kitchen.starts) > 1:
        return math.inf
    far = {cell: kitchen.way(cell).farthest for cell in (*kitchen.homes, *kitchen.boards, *kitchen.deliveries)}
    foods = [far[home] for food, home in zip(kitchen.foods, kitchen.homes) if food in recipe]
    board, bowl = (max(far[cell] for cell in cells) for cells in (kitchen.boards, kitchen.bowl_homes))
    delivery = max(far[cell] for cell in kitchen.deliveries)
    rounds = -(-len(foods) // len(kitchen.boards))
    across = 2 * kitchen.way(kitchen.floor[len(kitchen.floor) // 2]).farthest + 1
    return sum(foods) + len(foods) * (2 * board + CHOPS) + bowl + (rounds - 1) * (max(foods) + across) + delivery


def _draw(
    rng: np.random.Generator, size: int, cooks: int, stations: list[str], walls: float
) -> tuple[list[str], list[tuple[int, int]]] | None:
    """One drawing (rows, starts), or None where it came out too small."""
    inner = [row * size + column for row in range(1, size - 1) for column in range(1, size - 1)]
    open_floor = [cell for cell, chance in zip(inner, rng.random(len(inner)).tolist()) if chance >= walls]
    room = _largest_room(sum(1 << cell for cell in open_floor), size)
    floor = [cell for cell in open_floor if room >> cell & 1]
    rim = _spread(room, size) & ~room
    counters = [cell for cell in range(size * size) if rim >> cell & 1]
    if len(counters) < len(stations) + cooks or len(floor) < 2 * cooks:
        return None
    grid = ["#"] * (size * size)
    for cell in floor:
        grid[cell] = "."
    for glyph, place in zip(stations, rng.permutation(len(counters)).tolist()):
        grid[counters[place]] = glyph
    starts = [divmod(floor[i], size) for i in rng.permutation(len(floor))[:cooks].tolist()]
    return ["".join(grid[start : start + size]) for start in range(0, size * size, size)], starts


def _largest_room(left: int, size: int) -> int:
    """The largest set of floor cells that hang together; sets of cells are integers with a bit for each."""
    best = 0
    while left.bit_count() > best.bit_count():
        ring = room = left & -left
        while ring := _spread(ring, size) & left & ~room:
            room |= ring
        left &= ~room
        if room.bit_count() > best.bit_count():
            best = room
    return best


def _spread(cells: int, size: int) -> int:
    """The cells next to any of `cells`."""
    return cells << 1 | cells >> 1 | cells << size | cells >> size
