"""Scripts of uses of stations that read nothing but the orders. A kept kitchen must be lost by them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, permutations, product

from envsuite.envs.overcooked.service.engine import CHOPPED, Service
from envsuite.envs.overcooked.service.layout import BOARD, COUNTER, CRATE, HATCH, RACK, STOVE
from envsuite.envs.overcooked.service.outlook import items_of
from envsuite.envs.overcooked.service.situations import Play, Spot

MOST_SCRIPTS = 1000
MOST_VISITS = 20_000  # uses of stations that a search for a winning script performs
AHEAD = ((), (BOARD,), (STOVE,), (BOARD, STOVE))
"""Kinds of station on which an interleaved script begins foods of the next order."""

WON, LOST = -1, -2
"""Ends of a run, in place of the number of a point."""

Use = tuple[int, int]
"""A use of a station: its kind and its number from 0; for a crate the food."""


def scripts(service: Service, distinct: bool = True) -> Iterator[list[int]]:
    """Yields scripts of stations for all orders that read nothing but the orders; at most MOST_SCRIPTS.

    They work in batches that fill boards and stoves, or one food at a time; with grilled foods first, or in the order's
    sequence, or backwards. Each comes with every choice among the crates of a food, the racks and the hatches.
    `distinct` skips arrangements that repeat in this service.
    """
    layout, of_kind = service.layout, service.layout.of_kind
    crates = [[i for i in of_kind[CRATE] if layout.stations[i].food == food] for food in range(len(layout.foods))]
    plans = list(_plans(service, distinct))
    for choice in islice(product(*crates, of_kind[RACK], of_kind[HATCH]), MOST_SCRIPTS // len(plans)):
        *crate, rack, hatch = choice
        numbers = {**dict(enumerate(of_kind)), CRATE: crate, RACK: [rack], HATCH: [hatch]}
        for uses in plans:
            yield [numbers[kind][which] for kind, which in uses]


def first_script(service: Service) -> list[int]:
    """Returns the first one of `scripts`."""
    layout = service.layout
    plan = _first_plan(tuple([order.dish for order in service.orders]), layout.boards, layout.stoves)
    return [layout.options(*use)[0] for use in plan]


@lru_cache(maxsize=1024)
def _first_plan(dishes: tuple[int, ...], boards: int, stoves: int) -> tuple[Use, ...]:
    batches = (sorted(items_of(dish), key=lambda item: -(item & 3)) for dish in dishes)
    return tuple([use for items in batches for use in batch_script(items, boards, stoves)])


def _plans(service: Service, distinct: bool) -> Iterator[list[Use]]:
    """Yields the scripts without their choice among equal stations."""
    layout = service.layout
    dishes = [items_of(order.dish) for order in service.orders]
    seen: list[list[list[int]]] = []
    for arrange in (lambda items: sorted(items, key=lambda i: -(i & 3)), list, lambda items: list(items)[::-1]):
        arranged = [arrange(items) for items in dishes]
        if arranged not in seen or not distinct:
            seen.append(arranged)
            yield [use for items in arranged for use in batch_script(items, layout.boards, layout.stoves)]
            yield [use for items in arranged for use in single_script(items)]


def batch_script(items: Sequence[int], boards: int, stoves: int) -> list[Use]:
    """Returns uses that prepare as many foods at once as there are boards and stoves, and gather them in a bowl."""
    uses: list[Use] = []
    left = list(items)
    while left:
        first = len(left) == len(items)
        free = {BOARD: list(range(boards)), STOVE: list(range(stoves))}
        places: list[tuple[int, Use]] = []
        for item in left:
            kind = BOARD if item & 3 == CHOPPED else STOVE
            if free[kind]:
                places.append((item, (kind, free[kind].pop(0))))
        for item, place in places:
            uses += [(CRATE, item >> 2), place] + ([place] if place[0] == BOARD else [])
        uses.append((RACK, 0) if first else (COUNTER, 0))
        uses += [place for _, place in places]
        left = [item for item in left if item not in dict(places)]
        uses.append((COUNTER, 0) if left else (HATCH, 0))
    return uses


def single_script(items: Sequence[int]) -> list[Use]:
    """Returns uses that prepare one food after the other and drop each into a bowl on the first counter."""
    uses: list[Use] = []
    for number, item in enumerate(items):
        place = (BOARD if item & 3 == CHOPPED else STOVE, 0)
        uses += [(CRATE, item >> 2), place, place] + ([place] if place[0] == BOARD else [])
        uses += [(RACK, 0), (COUNTER, 0)] if number == 0 else [(COUNTER, 0)]
    return [*uses, (COUNTER, 0), (HATCH, 0)]


def interleaved_script(
    items_of_orders: Sequence[Sequence[int]], boards: int, stoves: int, ahead: Sequence[int], carry: bool
) -> list[Use]:
    """Returns uses that serve the orders one by one, and meanwhile begin foods of the next order on free stations.

    `ahead` holds the kinds of station (BOARD, STOVE) on which the next order may begin. With `carry`, the cook takes
    the first food of an order to the rack; otherwise it takes a bowl to the foods.
    """
    uses: list[Use] = []
    free = {BOARD: list(range(boards)), STOVE: list(range(stoves))}
    waiting = [(order, item) for order, items in enumerate(items_of_orders) for item in items]
    begun: dict[tuple[int, int], Use] = {}
    for order, items in enumerate(items_of_orders):
        left, first = list(items), True
        while left:
            for entry in [entry for entry in waiting if entry[0] <= order + 1]:
                kind = _kind(entry[1])
                needed = any(_kind(item) == kind for number, item in waiting if number == order)
                if free[kind] and (entry[0] == order or (kind in ahead and not needed)):
                    begun[entry] = place = (kind, free[kind].pop(0))
                    uses += [(CRATE, entry[1] >> 2), place] + ([place] if kind == BOARD else [])
                    waiting.remove(entry)
            done = [item for item in left if (order, item) in begun]
            places = [begun.pop((order, item)) for item in done]
            bowl = (RACK, 0) if first else (COUNTER, 0)
            uses += [places[0], bowl, *places[1:]] if first and carry else [bowl, *places]
            first = False
            for kind, number in places:
                free[kind].append(number)
            left = [item for item in left if item not in done]
            uses.append((COUNTER, 0) if left else (HATCH, 0))
    return uses


def won_by_script(service: Service) -> bool:
    """Tests whether a script wins that reads the orders alone, in any sequence of them and with any choice of stations.

    These are the scripts of `scripts` and of `interleaved_script`. Each uses one crate of each food, one rack and one
    hatch throughout. If the orders change, scripts for the first orders and scripts that foresee the change are tried.
    The search gives up after MOST_VISITS uses of stations.
    """
    runs = _Runs(service)
    return any(runs.budget > 0 and runs.wins(0, runs.coded(plan)) for plan in distinct_plans(service))


def distinct_plans(service: Service) -> Iterator[tuple[Use, ...]]:
    """Yields the different scripts for the orders in all sequences, without their choice among equal stations."""
    layout = service.layout
    seen: set[tuple[Use, ...]] = set()
    for orders in dict.fromkeys((service.orders, service.changed.orders)):
        for sequence in permutations([items_of(order.dish) for order in orders]):
            for plan in all_plans(sequence, layout.boards, layout.stoves):
                if plan not in seen:
                    seen.add(plan)
                    yield plan


@lru_cache(maxsize=128)
def all_plans(dishes: tuple[tuple[int, ...], ...], boards: int, stoves: int) -> tuple[tuple[Use, ...], ...]:
    """Returns every script for dishes in this sequence without its choice among equal stations."""
    plans: list[list[Use]] = []
    for arranged in dict.fromkeys(_arranged(dishes, arrange) for arrange in (1, 0, -1)):
        plans.append([use for items in arranged for use in batch_script(items, boards, stoves)])
        plans.append([use for items in arranged for use in single_script(items)])
        plans += [interleaved_script(arranged, boards, stoves, *how) for how in product(AHEAD, (False, True))]
    return tuple(dict.fromkeys(map(tuple, plans)))


def _arranged(dishes: Iterable[tuple[int, ...]], arrange: int) -> tuple[tuple[int, ...], ...]:
    """Returns the dishes with their grilled foods first (1), last (-1), or in the dish's sequence (0)."""
    return tuple(tuple(sorted(items, key=lambda item: -arrange * (item & 3))) for items in dishes)


class _Runs:
    """Runs of scripts in one service. Scripts that begin alike or reach the same spot share the rest of their runs.

    A point is the number of a spot that scripts reach; point 0 is the start.
    """

    def __init__(self, service: Service) -> None:
        self.budget = MOST_VISITS
        self._layout, self._width = service.layout, len(service.layout.stations)
        self._codes: dict[Use, int] = {}
        self._options: dict[int, list[int]] = {}
        """per use with a choice, by its negative code: the stations"""
        self._chosen: dict[int, int] = {}
        play = Play(service)
        self._points = [(play, play.spot(service.start()))]
        self._known: dict[tuple[bool, Spot], int] = {}
        self._next: dict[int, int] = {}
        """per point and next station (point * stations + station): the point after its use, WON or LOST"""

    def coded(self, plan: Iterable[Use]) -> list[int]:
        """Returns the station of each use, or the negative code of a use with a choice."""
        codes = self._codes
        return [codes[use] if use in codes else self._new_code(use) for use in plan]

    def _new_code(self, use: Use) -> int:
        options = self._layout.options(*use)
        code = self._codes[use] = options[0] if len(options) == 1 else -1 - len(self._options)
        if code < 0:
            self._options[code] = options
        return code

    def wins(self, point: int, plan: Sequence[int], done: int = 0) -> bool:
        """Tests whether a plan wins from its use number `done` on with any choice of the stations not chosen yet."""
        chosen, width, following = self._chosen, self._width, self._next
        for number in range(done, len(plan)):
            station = plan[number]
            if station < 0:
                code, station = station, chosen.get(station, -1)
                if station < 0:
                    return self._wins_with_any(code, point, plan, number)
            after = following.get(point * width + station)
            if after is None:
                after = self._use(point, station)
            self.budget -= 1
            if self.budget <= 0:
                return False
            if after < 0:
                return after == WON
            point = after
        return False

    def _wins_with_any(self, code: int, point: int, plan: Sequence[int], number: int) -> bool:
        for station in self._options[code]:
            self._chosen[code] = station
            if self.wins(point, plan, number):
                return True
        del self._chosen[code]
        return False

    def _use(self, point: int, station: int) -> int:
        """Returns the point after the use of a station, WON or LOST."""
        play, before = self._points[point]
        after = play.perform(before, station)
        if play.is_interrupted(before, after):
            before = play.until_change(before, station)
            play = play.at(before)
            after = play.perform(before, station)
        if play.misses(before[2], after[2], after[4]):
            number = LOST
        elif after[2] == play.service.all:
            number = WON
        else:
            number = self._known.setdefault((play.service.change is None, after), len(self._points))
            if number == len(self._points):
                self._points.append((play, after))
        self._next[point * self._width + station] = number
        return number


def _kind(item: int) -> int:
    """Returns the kind of station that a food needs."""
    return BOARD if item & 3 == CHOPPED else STOVE
