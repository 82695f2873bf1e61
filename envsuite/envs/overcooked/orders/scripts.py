"""Players that do not plan: the greedy cook, and scripts of uses that read nothing but the orders.

A kept kitchen must be lost by all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import permutations, product, takewhile
from typing import NamedTuple

from envsuite.envs.overcooked.orders.kitchen import (
    BIN,
    BOARD,
    COUNTER,
    CRATE,
    HATCH,
    RACK,
    STOVE,
    Equipment,
    OrderKitchen,
)
from envsuite.envs.overcooked.orders.rules import (
    CHOPPED,
    GRILLED,
    NEVER,
    RAW,
    Dish,
    Item,
    OrderGame,
    State,
    Thing,
    is_raw,
)

MOST_USES = 200
"""uses after which the greedy cook counts as never serving"""
MOST_VISITS = 20_000
"""uses of stations in a search for a winning script"""
AHEAD = ((), (BOARD,), (STOVE,), (BOARD, STOVE))
"""Kinds of station on which an interleaved script begins foods of the next order."""


class PerformedUse(NamedTuple):
    """A whole use of a station, or one of its two halves around a change: the orders then, and the states around it."""

    game: OrderGame
    before: State
    after: State


# ---- following uses ------------------------------------------------------------------------------------------------


def follow(game: OrderGame, uses: Iterable[int]) -> Iterator[PerformedUse]:
    """Yields each whole use of a station; a use during which the orders change has two halves, before and after."""
    state = game.start()
    for number in uses:
        game = game.at(state)
        after = game.perform(state, number)
        if game.is_interrupted(state, after):
            middle = game.until_change(state, number)
            yield PerformedUse(game, state, middle)
            game, state = game.at(middle), middle
            after = game.perform(state, number)
        yield PerformedUse(game, state, after)
        state = after


def served_at(uses: Iterable[PerformedUse], orders: int) -> list[int]:
    """Returns the step at which each of some orders is served, NEVER for the others."""
    times = [NEVER] * orders
    for use in uses:
        for number in use.after.served - use.before.served:
            times[number] = use.after.time
    return times


def serving_times(game: OrderGame, uses: Iterable[int]) -> list[int]:
    """Returns the step at which each order is served by whole uses of stations, NEVER for the others."""
    return served_at(follow(game, uses), len(game.orders))


def is_won(uses: Iterable[PerformedUse]) -> bool:
    """Returns True if whole uses of stations serve every order by its deadline."""
    for game, before, after in uses:
        if game.misses(before, after):
            return False
        if after.served == game.all:
            return True
    return False


# ---- the greedy cook -----------------------------------------------------------------------------------------------


def greedy_use(game: OrderGame, state: State, sequence: Iterable[int] = ()) -> int:
    """Returns the station that the greedy cook uses next: the nearest step of the first open order.

    `sequence` is another sequence of the orders than theirs.
    """
    dish = next(game.orders[i].dish for i in sequence or range(len(game.orders)) if i not in state.served)
    options = _greedy_options(game.kitchen.equipment, state.hand, state.slots, dish)
    return min(options, key=lambda number: game.kitchen.steps(number, state.cell))


def follow_greedy(game: OrderGame, sequence: Iterable[int] = ()) -> Iterator[PerformedUse]:
    """Yields each whole use of a station by the greedy cook, who decides anew when the orders change.

    `sequence` is another sequence of the orders than theirs.
    """
    orders = tuple(sequence)
    state = game.start()
    for _ in range(MOST_USES):
        game = game.at(state)
        if state.served == game.all:
            break
        number = greedy_use(game, state, orders)
        after = game.perform(state, number)
        if game.is_interrupted(state, after):
            after = game.until_change(state, number)
        yield PerformedUse(game, state, after)
        state = after


def play_greedy(game: OrderGame, sequence: Iterable[int] = (), limit: int = NEVER) -> list[int]:
    """Plays the greedy cook. Returns the step at which each order is served, NEVER for the others and after `limit`."""
    uses = takewhile(lambda use: use.after.time < limit, follow_greedy(game, sequence))
    return served_at(uses, len(game.orders))


@lru_cache(maxsize=50_000)
def _greedy_options(equipment: Equipment, hand: Thing, slots: tuple[Thing, ...], dish: Dish) -> list[int]:
    """Returns the stations among which the greedy cook chooses the nearest one, to prepare a dish."""
    return _GreedyCook(equipment, hand, slots, dish).options()


class _GreedyCook:
    """Rules of the greedy cook for one dish and given things in the kitchen."""

    def __init__(self, equipment: Equipment, hand: Thing, slots: tuple[Thing, ...], dish: Dish) -> None:
        self.of_kind, self.crates = equipment.of_kind, equipment.crates
        self.holders = list(zip(equipment.holders, equipment.kind_of_slot, slots, strict=True))
        self.hand, self.dish = hand, dish
        bowls = [thing for thing in (hand, *slots) if isinstance(thing, frozenset) and thing <= dish]
        self.bowl = max(bowls, key=len, default=None)
        """the bowl that the cook fills: the fullest one without other items"""
        self.missing = sorted(dish - (self.bowl or frozenset()))

    def options(self) -> list[int]:
        """Returns the stations that the cook may use next."""
        if isinstance(self.hand, frozenset):
            return self._with_bowl(self.hand)
        if isinstance(self.hand, Item):
            return self._with_item(self.hand)
        return self._with_empty_hands() or self._blocking()

    def _with(self, thing: Thing) -> list[int]:
        """Returns the stations that hold a thing."""
        return [station for station, _, each in self.holders if each == thing]

    def _free(self, kind: int) -> list[int]:
        return [station for station, each, thing in self.holders if each == kind and thing is None]

    def _empty(self, bowl: Dish) -> list[int]:
        """Returns the stations where a bowl is emptied or, if it is empty, put back."""
        return self.of_kind[BIN if bowl else RACK]

    def _with_bowl(self, bowl: Dish) -> list[int]:
        if bowl == self.dish:
            return self.of_kind[HATCH]
        if bowl != self.bowl:
            return self._empty(bowl)
        cooking = [Item(item.food, RAW) for item in self.missing if item.form == GRILLED]
        gather = [
            station
            for station, kind, thing in self.holders
            if thing in self.missing or (kind == STOVE and thing in cooking)
        ]
        return gather or self._free(COUNTER) or self._free(BOARD) or self._empty(bowl)

    def _with_item(self, item: Item) -> list[int]:
        options: list[int] = []
        if is_raw(item):
            if Item(item.food, CHOPPED) in self.missing:
                options += self._free(BOARD)
            if Item(item.food, GRILLED) in self.missing:
                options += self._free(STOVE)
        elif item in self.missing:
            options = self.of_kind[RACK] if self.bowl is None else self._with(self.bowl)
        return options or self.of_kind[BIN]

    def _with_empty_hands(self) -> list[int]:
        options: list[int] = []
        has_prepared = False
        for item in self.missing:
            kind, raw = station_kind(item), Item(item.food, RAW)
            begun = [station for station, each, thing in self.holders if each == kind and thing == raw]
            done = self._with(item)
            has_prepared = has_prepared or bool(begun or done)
            if begun and kind == BOARD:
                options.append(begun[0])
            elif done:
                options.append(done[0])
            elif not begun and self._free(kind):
                options += self.crates[item.food]
        if self.bowl is None and has_prepared:
            options += self.of_kind[RACK]
        elif self.bowl is not None and (has_prepared or not self.missing):
            options += self._with(self.bowl)
        return options

    def _blocking(self) -> list[int]:
        """Returns the boards and stoves that hold things, which block the order."""
        return [station for station, kind, thing in self.holders if thing is not None and kind != COUNTER]


# ---- scripts -------------------------------------------------------------------------------------------------------

Use = tuple[int, int]
"""A use of a station: its kind, and its number among these from 0; for a crate the food."""
Plan = tuple[Use, ...]
"""A script without its choice among equal stations."""


def station_kind(item: Item) -> int:
    """Returns the kind of station that prepares an item."""
    return BOARD if item.form == CHOPPED else STOVE


def stations_for(kitchen: OrderKitchen, use: Use) -> list[int]:
    """Returns the stations among which a use chooses: crates of a food, racks, hatches, or one other station."""
    kind, number = use
    if kind == CRATE:
        return kitchen.equipment.crates[number]
    options = kitchen.equipment.of_kind[kind]
    return options if kind in (RACK, HATCH) else [options[number]]


def first_script(game: OrderGame) -> list[int]:
    """Returns the uses of the simplest script: batch after batch, grilled foods first."""
    boards, stoves = game.kitchen.equipment.boards, game.kitchen.equipment.stoves
    dishes = [sorted(order.dish, key=lambda item: (-item.form, item)) for order in game.orders]
    plan = [use for items in dishes for use in batch_script(items, boards, stoves)]
    return [stations_for(game.kitchen, use)[0] for use in plan]


def _start(item: Item, station: Use) -> list[Use]:
    """Returns the uses that take a food from its crate and put it on a board, where it is cut, or on a stove."""
    return [(CRATE, item.food), station] + ([station] if station[0] == BOARD else [])


def batch_script(items: Sequence[Item], boards: int, stoves: int) -> list[Use]:
    """Returns uses that prepare as many foods at once as there are boards and stoves, and gather them in a bowl."""
    uses: list[Use] = []
    left = list(items)
    while left:
        bowl = (RACK, 0) if len(left) == len(items) else (COUNTER, 0)
        free = {BOARD: list(range(boards)), STOVE: list(range(stoves))}
        batch: dict[Item, Use] = {}
        for item in left:
            kind = station_kind(item)
            if free[kind]:
                batch[item] = kind, free[kind].pop(0)
        for item, station in batch.items():
            uses += _start(item, station)
        left = [item for item in left if item not in batch]
        uses += [bowl, *batch.values(), (COUNTER, 0) if left else (HATCH, 0)]
    return uses


def single_script(items: Sequence[Item]) -> list[Use]:
    """Returns uses that prepare one food after the other and drop each into a bowl on the first counter."""
    uses: list[Use] = []
    for number, item in enumerate(items):
        station = station_kind(item), 0
        uses += [*_start(item, station), station]
        uses += [(RACK, 0), (COUNTER, 0)] if number == 0 else [(COUNTER, 0)]
    return [*uses, (COUNTER, 0), (HATCH, 0)]


def interleaved_script(
    items_of_orders: Sequence[Sequence[Item]], boards: int, stoves: int, ahead: Sequence[int], carry: bool
) -> list[Use]:
    """Returns uses that serve the orders one by one, and meanwhile begin foods of the next order on free stations.

    `ahead` holds the kinds of station (BOARD, STOVE) on which the next order may begin. With `carry`, the cook takes
    the first food of an order to the rack; otherwise it takes a bowl to the foods.
    """
    uses: list[Use] = []
    free = {BOARD: list(range(boards)), STOVE: list(range(stoves))}
    waiting = [(order, item) for order, items in enumerate(items_of_orders) for item in items]
    begun: dict[tuple[int, Item], Use] = {}
    for order, items in enumerate(items_of_orders):
        left, is_first = list(items), True
        while left:
            for entry in [entry for entry in waiting if entry[0] <= order + 1]:
                kind = station_kind(entry[1])
                is_needed = any(station_kind(item) == kind for number, item in waiting if number == order)
                if free[kind] and (entry[0] == order or (kind in ahead and not is_needed)):
                    begun[entry] = kind, free[kind].pop(0)
                    uses += _start(entry[1], begun[entry])
                    waiting.remove(entry)
            done = [item for item in left if (order, item) in begun]
            stations = [begun.pop((order, item)) for item in done]
            bowl = (RACK, 0) if is_first else (COUNTER, 0)
            uses += [stations[0], bowl, *stations[1:]] if is_first and carry else [bowl, *stations]
            is_first = False
            for kind, number in stations:
                free[kind].append(number)
            left = [item for item in left if item not in done]
            uses.append((COUNTER, 0) if left else (HATCH, 0))
    return uses


def distinct_plans(game: OrderGame) -> Iterator[Plan]:
    """Yields the different scripts for the orders in all sequences, and for the later orders if these change."""
    boards, stoves = game.kitchen.equipment.boards, game.kitchen.equipment.stoves
    seen: set[Plan] = set()
    for orders in dict.fromkeys((game.orders, game.changed.orders)):
        for dishes in permutations([tuple(sorted(order.dish)) for order in orders]):
            for plan in _plans(dishes, boards, stoves):
                if plan not in seen:
                    seen.add(plan)
                    yield plan


@lru_cache(maxsize=128)
def _plans(dishes: tuple[tuple[Item, ...], ...], boards: int, stoves: int) -> tuple[Plan, ...]:
    """Returns every script for dishes in this sequence: with grilled foods first, in the dish's sequence, and last."""
    plans: list[list[Use]] = []
    for sign in (-1, 0, 1):
        arranged = [sorted(items, key=lambda item: sign * item.form) for items in dishes]
        plans.append([use for items in arranged for use in batch_script(items, boards, stoves)])
        plans.append([use for items in arranged for use in single_script(items)])
        plans += [interleaved_script(arranged, boards, stoves, *how) for how in product(AHEAD, (False, True))]
    return tuple(dict.fromkeys(map(tuple, plans)))


class _Point:
    """A state that scripts reach, with what follows the use of each station: a point, or True for a won game."""

    __slots__ = ("after", "game", "state")

    def __init__(self, game: OrderGame, state: State) -> None:
        self.game, self.state = game, state
        self.after: dict[int, _Point | bool] = {}


class _Runs:
    """Runs of scripts in one game. Scripts that begin alike or reach the same state share the rest of their runs."""

    def __init__(self, game: OrderGame) -> None:
        self.kitchen = game.kitchen
        self.start = _Point(game, game.start())
        self.visits_left = MOST_VISITS
        self._points: dict[tuple[bool, State], _Point] = {}
        self._chosen: dict[Use, int] = {}

    def wins(self, plan: Plan, point: _Point, done: int = 0) -> bool:
        """Tests whether a plan wins from its use number `done` on, with any choice of stations not chosen yet."""
        for number in range(done, len(plan)):
            station = self._chosen.get(plan[number], -1)
            if station < 0:
                return self._wins_with_any(plan, point, number)
            if station not in point.after:
                point.after[station] = self._use(point, station)
            self.visits_left -= 1
            if self.visits_left <= 0:
                return False
            following = point.after[station]
            if isinstance(following, bool):
                return following
            point = following
        return False

    def _wins_with_any(self, plan: Plan, point: _Point, number: int) -> bool:
        use = plan[number]
        for station in stations_for(self.kitchen, use):
            self._chosen[use] = station
            if self.wins(plan, point, number):
                return True
        del self._chosen[use]
        return False

    def _use(self, point: _Point, station: int) -> _Point | bool:
        """Returns the point after the use of a station, True for a won game and False for a lost one."""
        game, before = point.game, point.state
        after = game.perform(before, station)
        if game.is_interrupted(before, after):
            before = game.until_change(before, station)
            game = game.at(before)
            after = game.perform(before, station)
        if game.misses(before, after):
            return False
        if after.served == game.all:
            return True
        return self._points.setdefault((game.change is None, after), _Point(game, after))


def won_by_script(game: OrderGame) -> bool:
    """Tests whether a script wins that reads the orders alone, in any sequence of them and with any choice of stations.

    Each script uses one crate of each food, one rack and one hatch throughout. If the orders change, scripts for the
    first orders and scripts that foresee the change are tried. The search gives up after MOST_VISITS uses of stations.
    """
    runs = _Runs(game)
    return any(runs.visits_left > 0 and runs.wins(plan, runs.start) for plan in distinct_plans(game))
