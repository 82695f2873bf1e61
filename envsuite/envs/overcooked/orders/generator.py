"""Games drawn from a seed, kept only if the planner wins them and no script and no greedy cook does.

Splits differ in structure: no two splits share a map up to the names of foods, turning and mirroring.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

import numpy as np

from envsuite.envs.overcooked.foods import FOODS
from envsuite.envs.overcooked.menu import SPLITS
from envsuite.envs.overcooked.orders.kitchen import OrderKitchen, structure
from envsuite.envs.overcooked.orders.planner import search
from envsuite.envs.overcooked.orders.rules import (
    CHOPPED,
    GRILLED,
    NEVER,
    Dish,
    Durations,
    Item,
    Order,
    OrderChange,
    OrderGame,
    State,
)
from envsuite.envs.overcooked.orders.scripts import (
    first_script,
    follow,
    follow_greedy,
    is_won,
    play_greedy,
    serving_times,
    won_by_script,
)
from envsuite.envs.overcooked.orders.work import Estimator, open_dishes
from envsuite.errors import UsageError

EFFORT = 150
"""states that the planner expands before a kitchen is given up"""
CHANGES = 5
"""changes of the orders that are drawn for a kitchen"""
MAX_DRAWS = 5000
"""kitchens drawn before the settings are rejected"""
TENTHS = {"test": range(1), "valid": range(1, 2), "train": range(2, 10)}
"""Tenths of the structures in each split."""

Map = tuple[list[str], tuple[int, int]]
"""Rows of a kitchen, and the row and column where the cook starts."""


class DrawnGame(NamedTuple):
    """A game, and the stations of the plan that wins it: until the orders change, and afterwards."""

    game: OrderGame
    plan: tuple[int, ...]
    plan_after_change: tuple[int, ...] = ()


class KitchenSettings(NamedTuple):
    """Knobs that decide what is drawn."""

    size: int
    walls: float
    foods: int
    copies: int
    boards: int
    stoves: int
    counters: int
    orders: int
    items: int
    slack: float
    durations: Durations
    changes: bool

    @property
    def stations(self) -> int:
        """Returns the number of stations."""
        return 1 + (2 + self.foods) * self.copies + self.boards + self.stoves + self.counters


def split_of_seed(seed: int) -> str:
    """Returns the split whose kitchens a seed draws."""
    return next((split for split in ("valid", "test") if seed in SPLITS[split]), "train")


def split_of(rows: list[str]) -> str:
    """Returns the split of a kitchen. It depends on the structure alone."""
    tenth = zlib.crc32(structure(rows).encode()) % 10
    return next(split for split, tenths in TENTHS.items() if tenth in tenths)


@lru_cache(maxsize=256)
def draw_game(settings: KitchenSettings, seed: int) -> DrawnGame:
    """Draws the game of a seed. Raises UsageError if no kitchen in MAX_DRAWS draws is kept."""
    rng = np.random.default_rng([seed, 1, settings.size, settings.orders, settings.items])
    split = split_of_seed(seed)
    fits = False
    for _ in range(MAX_DRAWS):
        drawn = draw_kitchen(rng, settings)
        if drawn is None:
            continue
        fits = True
        rows, start = drawn
        if split_of(rows) != split:
            continue
        kitchen = OrderKitchen(rows, start)
        game = kept_game(rng, kitchen, draw_dishes(rng, settings, len(kitchen.foods)), settings)
        if game is not None:
            return game
    if fits:
        raise UsageError(
            f"None of {MAX_DRAWS} kitchens of size {settings.size} can be won with slack={settings.slack:g} and is "
            "lost by the greedy cook: use a smaller slack, more orders or a larger kitchen."
        )
    raise UsageError(
        f"{settings.stations} stations do not fit into a kitchen of size {settings.size} with "
        f"walls={settings.walls:g} ({MAX_DRAWS} draws): use a larger size or fewer walls."
    )


# ---- maps ----------------------------------------------------------------------------------------------------------


def draw_kitchen(rng: np.random.Generator, settings: KitchenSettings) -> Map | None:
    """Draws a map, or returns None if the drawn floor is too small."""
    letters = list(FOODS.values())
    kinds = [letters[i] for i in rng.permutation(len(letters))[: settings.foods].tolist()]
    glyphs = [
        *[*kinds, *"RH"] * settings.copies,
        "X",
        *"B" * settings.boards,
        *"S" * settings.stoves,
        *"C" * settings.counters,
    ]
    size = settings.size
    inner = [row * size + column for row in range(1, size - 1) for column in range(1, size - 1)]
    chances = rng.random(len(inner)).tolist()
    floor = _largest_room({cell for cell, chance in zip(inner, chances, strict=True) if chance >= settings.walls}, size)
    around_floor = sorted({cell + step for cell in floor for step in (1, -1, size, -size)} - floor)
    if len(around_floor) <= len(glyphs) or len(floor) < 2:
        return None
    symbols = ["." if cell in floor else "#" for cell in range(size * size)]
    for glyph, index in zip(glyphs, rng.permutation(len(around_floor)).tolist(), strict=False):
        symbols[around_floor[index]] = glyph
    cells = sorted(floor)
    start = divmod(cells[int(rng.permutation(len(cells))[0])], size)
    return ["".join(symbols[first : first + size]) for first in range(0, size * size, size)], start


def _largest_room(cells: set[int], size: int) -> set[int]:
    """Returns the largest connected set of cells, of equal ones the first in reading order."""
    left, best = set(cells), set[int]()
    for cell in sorted(cells):
        if cell in left:
            room, border = {cell}, {cell}
            while border:
                border = {here + step for here in border for step in (1, -1, size, -size)} & left - room
                room |= border
            left -= room
            best = max(best, room, key=len)
    return best


def draw_dishes(rng: np.random.Generator, settings: KitchenSettings, foods: int) -> list[Dish]:
    """Draws the dish of each order: up to `items` foods, each chopped or, with a stove, grilled."""
    dishes: list[Dish] = []
    while len(dishes) < settings.orders:
        count = int(rng.integers(max(1, settings.items - 1), settings.items + 1))
        items = []
        for food in rng.permutation(foods)[:count].tolist():
            is_grilled = settings.stoves > 0 and rng.random() < 0.5
            items.append(Item(food, GRILLED if is_grilled else CHOPPED))
        dishes.append(frozenset(items))
    return dishes


# ---- games that need a plan ----------------------------------------------------------------------------------------


def kept_game(
    rng: np.random.Generator, kitchen: OrderKitchen, dishes: list[Dish], settings: KitchenSettings
) -> DrawnGame | None:
    """Returns the game with deadlines that the plan meets and scripted cooks miss, or None.

    Each order may be served `slack` later than in the plan. A cook that takes longer than the last deadline misses one,
    so the plan is limited to a time that leaves this slack before the fastest greedy cook is done.
    """
    game = OrderGame(kitchen, [Order(dish) for dish in dishes], settings.durations)
    fastest = max(serving_times(game, first_script(game)))
    for sequence in permutations(range(len(dishes))):
        fastest = min(fastest, max(play_greedy(game, sequence, fastest)))
    start = game.start()
    limit = int((fastest - 1) / (1 + settings.slack)) if fastest < NEVER else NEVER
    if Estimator(game).estimate(start, open_dishes(game, ())) > limit:
        return None
    plan = search(game, start, limit, EFFORT)
    if not plan:
        return None
    deadlines = [int(time * (1 + settings.slack)) for time in serving_times(game, plan)]
    orders = [Order(dish, deadline) for dish, deadline in zip(dishes, deadlines, strict=True)]
    drawn = DrawnGame(OrderGame(kitchen, orders, settings.durations), tuple(plan))
    if settings.changes:
        return with_change(rng, drawn, settings)
    return None if won_by_script(drawn.game) else drawn


def with_change(rng: np.random.Generator, drawn: DrawnGame, settings: KitchenSettings) -> DrawnGame | None:
    """Returns the game with an order that is replaced while the plan works on it or before, or None.

    The other orders keep their deadlines. The cook of the plan does not foresee the change: it plans anew from where it
    is then. The greedy cook and the scripts lose the changed game, too.
    """
    game = drawn.game
    times = serving_times(game, drawn.plan)
    for _ in range(CHANGES):
        step = int(rng.integers(max(times) // 4, 3 * max(times) // 4 + 1))
        order = int(rng.choice([i for i, time in enumerate(times) if time > step]))
        dish = draw_dishes(rng, settings._replace(orders=1), len(game.kitchen.foods))[0]
        if dish == game.orders[order].dish:
            continue
        changing = OrderGame(game.kitchen, game.orders, settings.durations, OrderChange(step, order, Order(dish)))
        start = next(use.after for use in follow(changing, drawn.plan) if changing.changes_by(use.after))
        later_plan = search(changing.changed, start, NEVER, EFFORT)
        if not later_plan:
            continue
        served = _time_served(changing.changed, start, later_plan, order)
        change = OrderChange(step, order, Order(dish, step + int((served - step) * (1 + settings.slack))))
        changing = OrderGame(game.kitchen, game.orders, settings.durations, change)
        if any(is_won(follow_greedy(changing, sequence)) for sequence in permutations(range(len(times)))):
            continue
        if not won_by_script(changing):
            return DrawnGame(changing, drawn.plan, tuple(later_plan))
    return None


def _time_served(game: OrderGame, state: State, uses: list[int], order: int) -> int:
    """Returns the step at which whole uses of stations serve an order."""
    for number in uses:
        state = game.perform(state, number)
        if order in state.served:
            return state.time
    raise AssertionError("the plan serves every order")
