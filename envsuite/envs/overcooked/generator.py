"""Kitchen and order of an episode: published, or drawn from a seed and proven solvable by a greedy playout."""

from __future__ import annotations

import math
from functools import lru_cache
from types import SimpleNamespace

import numpy as np

from envsuite.envs.overcooked.cooks import MAX_PLAYOUT_STEPS, Menu, play_out
from envsuite.envs.overcooked.engine import Simulation, macro_actions
from envsuite.envs.overcooked.kitchen import Kitchen, all_foods, published_kitchen, recipe_foods, recipe_names
from envsuite.envs.overcooked.motion import CHOPS
from envsuite.errors import UsageError

MAX_DRAWS = 50  # kitchens drawn before the settings are rejected as too crowded


def kitchen_and_order(settings: SimpleNamespace, seed: int) -> tuple[Kitchen, tuple[str, ...]]:
    """Returns the kitchen and the foods of the order for a seed and the knobs `settings`. Raises UsageError."""
    recipe = settings.recipe
    if settings.layout != "random":
        if recipe == "random":
            known = set(published_kitchen(settings.variant, settings.layout, settings.size, settings.cooks).foods)
            names = [name for name in recipe_names() if set(recipe_foods(name)) <= known]
            recipe = names[int(np.random.default_rng(seed).integers(len(names)))]
        return published_kitchen_and_order(settings, recipe)
    if recipe == "random":
        letters = list(all_foods())
        order = np.random.default_rng([seed, 1]).permutation(len(letters))
        foods = tuple(letters[i] for i in sorted(order[: settings.recipe_size]))
    else:
        foods = recipe_foods(recipe)
    stations = settings.foods, settings.boards, settings.bowls, settings.deliveries
    return draw_kitchen(seed, settings.size, settings.cooks, foods, *stations, settings.walls, settings.horizon), foods


def published_kitchen_and_order(settings: SimpleNamespace, recipe: str) -> tuple[Kitchen, tuple[str, ...]]:
    """Returns the published kitchen and the foods of a recipe. Raises UsageError if it cannot be served there."""
    kitchen = published_kitchen(settings.variant, settings.layout, settings.size, settings.cooks)
    foods = recipe_foods(recipe)
    if missing := [food for food in foods if food not in kitchen.foods]:
        raise UsageError(
            f"Kitchen {kitchen.name!r} has no {' or '.join(missing)} for recipe {recipe!r}: set variant=v3."
        )
    if settings.layout == "b" and settings.cooks == 1:
        raise UsageError("A wall divides layout 'b', so that 1 cook cannot serve there: set cooks=2.")
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
    horizon: int = MAX_PLAYOUT_STEPS,
) -> Kitchen:
    """Draws a square kitchen of `size` cells per side.

    It holds the foods of the recipe and others up to `foods` kinds; a fraction `walls` of the inner cells are counters.
    Every cook reaches every station, and greedy cooks serve the order within `horizon` primitive steps. Raises
    UsageError if no such kitchen is found in MAX_DRAWS draws.
    """
    rng = np.random.default_rng([seed, size, cooks, foods, boards, bowls, deliveries, round(walls * 1000)])
    letters = all_foods()
    extras = [food for food in letters if food not in recipe]
    kinds = [*recipe, *(extras[i] for i in rng.permutation(len(extras)).tolist())][: max(foods, len(recipe))]
    stations = [letters[food] for food in kinds] + ["k"] * boards + ["b"] * bowls + ["d"] * deliveries
    fits = False
    for _ in range(MAX_DRAWS):
        drawn = draw_map(rng, size, cooks, stations, walls)
        if drawn is None:
            continue
        rows, starts = drawn
        kitchen = Kitchen(f"random-{seed}", rows, starts)
        fits = True
        if steps_bound(kitchen, recipe) <= horizon:
            return kitchen
        if play_out(Simulation(kitchen, recipe), Menu(macro_actions(kitchen, counters=True)), horizon) is not None:
            return kitchen
    if fits:
        raise UsageError(
            f"Greedy cooks did not serve an order of {len(recipe)} foods within horizon={horizon} in any of "
            f"{MAX_DRAWS} kitchens of size {size}: use a longer horizon or a smaller size."
        )
    raise UsageError(
        f"{len(stations)} stations and {cooks} cooks do not fit into a kitchen of size {size} with walls={walls} "
        f"({MAX_DRAWS} draws): use a larger size or fewer walls."
    )


def steps_bound(kitchen: Kitchen, recipe: tuple[str, ...]) -> float:
    """Returns an upper bound on the primitive steps a single greedy cook needs; infinity for several cooks.

    The bound holds if the floor is connected and every station is adjacent to it. The cook fetches each food and chops
    it on a board; when no board is free, and at the end, it takes the bowl and visits the boards. Each walk leads to a
    station and is at most as long as from the farthest cell. Between two rounds the bowl stands on the nearest free
    counter, at most as far away as a food's home, and is fetched across the whole kitchen in the worst case.
    """
    if len(kitchen.starts) > 1:
        return math.inf
    far = {cell: kitchen.way(cell).farthest for cell in (*kitchen.homes, *kitchen.boards, *kitchen.deliveries)}
    foods = [far[home] for food, home in zip(kitchen.foods, kitchen.homes, strict=False) if food in recipe]
    board, bowl = (max(far[cell] for cell in cells) for cells in (kitchen.boards, kitchen.bowl_homes))
    delivery = max(far[cell] for cell in kitchen.deliveries)
    rounds = -(-len(foods) // len(kitchen.boards))
    across = 2 * kitchen.way(kitchen.floor[len(kitchen.floor) // 2]).farthest + 1
    return sum(foods) + len(foods) * (2 * board + CHOPS) + bowl + (rounds - 1) * (max(foods) + across) + delivery


def draw_map(
    rng: np.random.Generator, size: int, cooks: int, stations: list[str], walls: float
) -> tuple[list[str], list[tuple[int, int]]] | None:
    """Draws one map. Returns (rows, starts), or None if the connected floor is too small."""
    inner = [row * size + column for row in range(1, size - 1) for column in range(1, size - 1)]
    open_floor = [cell for cell, chance in zip(inner, rng.random(len(inner)).tolist(), strict=True) if chance >= walls]
    room = _largest_room(sum(1 << cell for cell in open_floor), size)
    floor = [cell for cell in open_floor if room >> cell & 1]
    rim = _spread(room, size) & ~room
    counters = [cell for cell in range(size * size) if rim >> cell & 1]
    if len(counters) < len(stations) + cooks or len(floor) < 2 * cooks:
        return None
    grid = ["#"] * (size * size)
    for cell in floor:
        grid[cell] = "."
    for glyph, place in zip(stations, rng.permutation(len(counters)).tolist(), strict=False):
        grid[counters[place]] = glyph
    starts = [divmod(floor[i], size) for i in rng.permutation(len(floor))[:cooks].tolist()]
    return ["".join(grid[start : start + size]) for start in range(0, size * size, size)], starts


def _largest_room(left: int, size: int) -> int:
    """Returns the largest connected set of floor cells; a set is an integer with one bit per cell."""
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
    """Returns the cells adjacent to any of `cells`."""
    return cells << 1 | cells >> 1 | cells << size | cells >> size
