"""Services drawn from a seed, kept only if the planner wins them and no blind script and no greedy cook does."""

from __future__ import annotations

import zlib
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

import numpy as np

from envsuite.envs.overcooked.generator import draw_map
from envsuite.envs.overcooked.kitchen import all_foods
from envsuite.envs.overcooked.menu import SPLITS_V1
from envsuite.envs.overcooked.service.cooks import follow, follow_greedy, is_won, play_greedy, serving_times, wins
from envsuite.envs.overcooked.service.engine import CHOPPED, GRILLED, NEVER, Order, OrderChange, Rules, Service
from envsuite.envs.overcooked.service.layout import Layout, structure
from envsuite.envs.overcooked.service.outlook import Outlook
from envsuite.envs.overcooked.service.planner import search
from envsuite.envs.overcooked.service.scripts import first_script, scripts, won_by_script
from envsuite.errors import UsageError

EFFORT = 150  # states that the planner expands before a kitchen is given up
CHANGES = 5  # changes of the orders that are drawn for a kitchen
MAX_DRAWS = 5000  # kitchens drawn before the settings are rejected
TENTHS = {"test": range(1), "valid": range(1, 2), "train": range(2, 10)}
"""Tenths of the structures in each split."""


class DrawnService(NamedTuple):
    """A service, and the uses of stations that win it: until the orders change, and afterwards."""

    service: Service
    plan: tuple[int, ...]
    rest: tuple[int, ...] = ()


class ServiceKnobs(NamedTuple):
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
    rules: Rules
    rejects: str
    changes: bool


def split_of_seed(seed: int) -> str:
    """Returns the split whose kitchens a seed draws."""
    return next((split for split in ("valid", "test") if seed in SPLITS_V1[split]), "train")


def split_of(rows: list[str]) -> str:
    """Returns the split of a kitchen. It depends on the structure alone, so no two splits share one."""
    tenth = zlib.crc32(structure(rows).encode()) % 10
    return next(split for split, tenths in TENTHS.items() if tenth in tenths)


@lru_cache(maxsize=256)
def draw_service(settings: ServiceKnobs, seed: int) -> DrawnService:
    """Draws the service of a seed. Raises UsageError if no kitchen in MAX_DRAWS draws is kept."""
    rng = np.random.default_rng([seed, 1, settings.size, settings.orders, settings.items])
    split = split_of_seed(seed)
    fits = False
    for _ in range(MAX_DRAWS):
        drawn = draw_layout(rng, settings)
        if drawn is None:
            continue
        fits = True
        if split_of(drawn[0]) != split:
            continue
        layout = Layout(*drawn)
        game = kept(rng, layout, draw_dishes(rng, settings, len(layout.foods)), settings)
        if game is not None:
            return game
    if fits:
        raise UsageError(
            f"None of {MAX_DRAWS} kitchens of size {settings.size} can be won with slack={settings.slack:g} and is "
            "lost by the greedy cook: use a smaller slack, more orders or a larger kitchen."
        )
    raise UsageError(
        f"{_stations(settings)} stations do not fit into a kitchen of size {settings.size} with "
        f"walls={settings.walls:g} ({MAX_DRAWS} draws): use a larger size or fewer walls."
    )


def _stations(settings: ServiceKnobs) -> int:
    return 1 + (2 + settings.foods) * settings.copies + settings.boards + settings.stoves + settings.counters


def draw_layout(rng: np.random.Generator, settings: ServiceKnobs) -> tuple[list[str], tuple[int, int]] | None:
    """Draws a map and the start of the cook, or returns None if the drawn floor is too small."""
    letters = list(all_foods().values())
    kinds = [letters[i] for i in rng.permutation(len(letters))[: settings.foods].tolist()]
    glyphs = [
        *[*kinds, *"RH"] * settings.copies,
        "X",
        *"B" * settings.boards,
        *"S" * settings.stoves,
        *"C" * settings.counters,
    ]
    drawn = draw_map(rng, settings.size, 1, glyphs, settings.walls)
    return None if drawn is None else (drawn[0], drawn[1][0])


def draw_dishes(rng: np.random.Generator, settings: ServiceKnobs, foods: int) -> list[int]:
    """Draws the dish of each order: up to `items` foods, each chopped or, with a stove, grilled."""
    dishes: list[int] = []
    while len(dishes) < settings.orders:
        count = int(rng.integers(max(1, settings.items - 1), settings.items + 1))
        dish = 0
        for food in rng.permutation(foods)[:count].tolist():
            grilled = settings.stoves > 0 and rng.random() < 0.5
            dish |= 1 << 4 * food + (GRILLED if grilled else CHOPPED)
        dishes.append(dish)
    return dishes


def kept(rng: np.random.Generator, layout: Layout, dishes: list[int], settings: ServiceKnobs) -> DrawnService | None:
    """Returns the game with deadlines that the plan meets and scripted cooks miss, or None.

    Each order may be served `slack` later than in the plan. A cook that takes longer than the last deadline misses one,
    so the plan is limited to a time that leaves this slack before the fastest greedy cook is done.
    """
    service = Service(layout, [Order(dish) for dish in dishes], settings.rules)
    fastest = max(serving_times(service, first_script(service)))
    for orders in permutations(range(len(dishes))):
        fastest = min(fastest, max(play_greedy(service, orders, fastest)))
    outlook = Outlook(service)
    start = service.start()
    limit = int((fastest - 1) / (1 + settings.slack)) if fastest < NEVER else NEVER
    if outlook.estimate(start, service.all) > limit:
        return None
    plan = search(service, outlook, start, limit, EFFORT)
    if not plan:
        return None
    deadlines = [int(time * (1 + settings.slack)) for time in serving_times(service, plan)]
    timed = [Order(dish, deadline) for dish, deadline in zip(dishes, deadlines, strict=True)]
    service = Service(layout, timed, settings.rules)
    game = DrawnService(service, tuple(plan))
    if settings.changes:
        return with_change(rng, game, settings)
    return None if scripts_win(service, settings) else game


def scripts_win(service: Service, settings: ServiceKnobs) -> bool:
    """Tests whether one of the scripts wins that the settings reject."""
    if settings.rejects == "interleaved":
        return won_by_script(service)
    return any(wins(service, uses) for uses in scripts(service))


def with_change(rng: np.random.Generator, game: DrawnService, settings: ServiceKnobs) -> DrawnService | None:
    """Returns the game with an order that is replaced while the plan works on it or before, or None.

    The other orders keep their deadlines. The cook of the plan does not foresee the change: it plans anew from where it
    is then. The greedy cook and the scripts lose the changed game, too.
    """
    service = game.service
    times = serving_times(service, game.plan)
    for _ in range(CHANGES):
        step = int(rng.integers(max(times) // 4, 3 * max(times) // 4 + 1))
        order = int(rng.choice([i for i, time in enumerate(times) if time > step]))
        dish = draw_dishes(rng, settings._replace(orders=1), len(service.layout.foods))[0]
        if dish == service.orders[order].dish:
            continue
        changing = Service(service.layout, service.orders, settings.rules, OrderChange(step, order, Order(dish)))
        start = next(play.state(after) for play, _, after in follow(changing, game.plan) if play.changes_by(after))
        rest = search(changing.changed, Outlook(changing.changed), start, NEVER, EFFORT)
        if not rest:
            continue
        state = start
        for number in rest:
            before, state = state, changing.changed.perform(state, number)
            if (state.served & ~before.served) >> order & 1:
                deadline = step + int((state.time - step) * (1 + settings.slack))
        change = OrderChange(step, order, Order(dish, deadline))
        changing = Service(service.layout, service.orders, settings.rules, change)
        sequences = permutations(range(len(times)))
        if any(is_won(follow_greedy(changing, orders)) for orders in sequences):
            continue
        if not scripts_win(changing, settings):
            return DrawnService(changing, game.plan, tuple(rest))
    return None
