"""Remaining work of a game: an estimate of its steps, and the trips between stations that make progress.

The work depends on the kinds of stations and on the things in the kitchen, but not on the map. Searches meet the same
things in many kitchens, so that the results are cached.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
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
    StationChoice,
    Stop,
    Stops,
)
from envsuite.envs.overcooked.orders.rules import (
    BURNT,
    CHOPPED,
    GRILLED,
    RAW,
    Dish,
    Item,
    OrderGame,
    State,
    Thing,
    is_bowl,
    is_raw,
    is_ready,
)

NEVER_BEFORE = {CRATE: (RACK,), HATCH: (RACK, HATCH), RACK: (RACK,)}
"""Kinds of station that no sensible cook uses just before a station of some kind."""
USED_BEFORE = (BOARD, STOVE, COUNTER, HATCH, RACK)
"""Kinds of station that a sensible cook may use before others."""
WASTE = 8
"""estimated steps to get rid of a thing that no order needs"""
CACHED = 50_000
"""results that each cache keeps, about 25 MB"""


class Work(NamedTuple):
    """Remaining work for some dishes, given the things in the kitchen."""

    unstarted: tuple[Item, ...]
    """items still to be started, each as often as it is missing"""
    bowls: int
    """missing bowls; below 0 if there are more than needed"""
    fixed: int
    """estimated steps that do not depend on the map"""
    visits: tuple[int, ...]
    """stations to be visited once more"""
    to_prepare: tuple[Item, ...]
    """items to be prepared from raw foods in the cook's hand or on counters"""
    boards: tuple[int, ...]
    """slots of needed raw foods on boards: cuts that are done save steps"""
    stoves: tuple[int, ...]
    """slots of raw foods on stoves, which must be waited for"""


class _WorkCounter:
    """Counts the remaining work, one thing after the other."""

    def __init__(self, equipment: Equipment, chops: int, dishes: tuple[Dish, ...]) -> None:
        self.equipment, self.chops, self.dishes = equipment, chops, dishes
        self.missing: dict[Item, int] = defaultdict(int)
        for dish in dishes:
            for item in dish:
                self.missing[item] += 1
        self.bowls, self.fixed = len(dishes), 0
        self.visits: list[int] = []
        self.to_prepare: list[Item] = []
        self.boards: list[int] = []
        self.stoves: list[int] = []

    def add_slot(self, slot: int, thing: Thing) -> None:
        """Counts the thing on a board, stove or counter."""
        station = self.equipment.holders[slot]
        if isinstance(thing, frozenset):
            self.visits.append(station)
            self._add_bowl(thing)
        elif isinstance(thing, Item) and thing.form == RAW:
            self._add_raw(slot, thing.food, station)
        elif isinstance(thing, Item) and thing.form == BURNT:
            self.fixed += WASTE
        elif isinstance(thing, Item):
            self.visits.append(station)
            if self.missing[thing] > 0:
                self.missing[thing] -= 1

    def add_hand(self, thing: Thing) -> None:
        """Counts the thing in the cook's hand."""
        if isinstance(thing, frozenset):
            self._add_bowl(thing)
        elif isinstance(thing, Item):
            item = self._best_form(thing.food) if thing.form == RAW else thing
            if item.form == BURNT or self.missing[item] <= 0:
                self.fixed += WASTE
                return
            self.missing[item] -= 1
            if item == thing:
                self.fixed += 1
            else:
                self.to_prepare.append(item)

    def _best_form(self, food: int) -> Item:
        """Returns the item to prepare from a raw food."""
        chopped = Item(food, CHOPPED)
        return chopped if self.missing[chopped] > 0 else Item(food, GRILLED)

    def _add_bowl(self, contents: Dish) -> None:
        self.bowls -= 1
        if not any(contents <= dish for dish in self.dishes):
            self.fixed += WASTE
            return
        for item in contents:
            self.missing[item] -= 1
            if self.missing[item] < 0:
                self.fixed += WASTE

    def _add_raw(self, slot: int, food: int, station: int) -> None:
        kind = self.equipment.kind_of_slot[slot]
        item = Item(food, CHOPPED) if kind == BOARD else Item(food, GRILLED)
        if kind == COUNTER:
            item = self._best_form(food)
        needed = self.missing[item] > 0
        if kind == STOVE:
            self.stoves.append(slot)
        elif needed and kind == BOARD:
            self.fixed += self.chops
            self.boards.append(slot)
        elif needed:
            self.to_prepare.append(item)
        if needed:
            self.missing[item] -= 1
            self.visits.append(station)


@lru_cache(maxsize=CACHED)
def count_work(
    equipment: Equipment, chops: int, dishes: tuple[Dish, ...], hand: Thing, slots: tuple[Thing, ...]
) -> Work:
    """Returns the remaining work for some dishes."""
    counter = _WorkCounter(equipment, chops, dishes)
    for slot, thing in enumerate(slots):
        counter.add_slot(slot, thing)
    counter.add_hand(hand)
    unstarted = tuple(item for item, count in sorted(counter.missing.items()) for _ in range(count))
    return Work(
        unstarted,
        counter.bowls,
        counter.fixed,
        tuple(counter.visits),
        tuple(counter.to_prepare),
        tuple(counter.boards),
        tuple(counter.stoves),
    )


class Estimator:
    """Estimates the remaining steps in one kitchen, whose map decides how long each part of the work takes."""

    def __init__(self, game: OrderGame) -> None:
        self.game = game
        kitchen = self.kitchen = game.kitchen
        of_kind = kitchen.equipment.of_kind
        self._visit = [self._fewest_steps(number) for number in range(len(kitchen.stations))]
        """per station, the fewest steps from using another station to using it"""
        self._serve, self._take_bowl = (min(self._visit[i] for i in of_kind[kind]) for kind in (HATCH, RACK))
        self._from_crate: dict[Item, int] = {}
        """steps to prepare an item from its crate"""
        self._from_hand: dict[Item, int] = {}
        """steps to prepare an item from the raw food in the cook's hand"""
        for food, crates in enumerate(kitchen.equipment.crates):
            for form, kind, cuts in ((CHOPPED, BOARD, game.durations.chops), (GRILLED, STOVE, 0)):
                if stations := of_kind[kind]:
                    back = cuts + min(self._visit[station] for station in stations) + 1
                    carry = min(
                        self._visit[crate] + kitchen.between(crate, station) for crate in crates for station in stations
                    )
                    self._from_hand[Item(food, form)] = back
                    self._from_crate[Item(food, form)] = carry + back

    def _fewest_steps(self, number: int) -> int:
        kitchen = self.kitchen
        excluded = NEVER_BEFORE.get(kitchen.stations[number].kind, ())
        kinds = [kind for kind in USED_BEFORE if kind not in excluded]
        used_before = [i for kind in kinds for i in kitchen.equipment.of_kind[kind] if i != number]
        return min(kitchen.steps(number, cell) for i in used_before for cell in kitchen.sides[i])

    def work(self, state: State, dishes: tuple[Dish, ...]) -> Work:
        """Returns the remaining work for some dishes."""
        return count_work(self.kitchen.equipment, self.game.durations.chops, dishes, state.hand, state.slots)

    def estimate(self, state: State, dishes: tuple[Dish, ...]) -> int:
        """Returns the estimated steps until some dishes are served; a function of the state alone."""
        if not dishes:
            return 0
        work = self.work(state, dishes)
        begun = work.fixed + len(dishes) * self._serve
        begun += sum(self._visit[station] for station in work.visits)
        begun += sum(self._from_hand[item] for item in work.to_prepare)
        for slot in work.boards:
            station = self.kitchen.equipment.holders[slot]
            begun -= state.work[slot]
            if self.kitchen.steps(station, state.cell) > 1:
                begun += self._visit[station]
        for slot in work.stoves:
            begun = max(begun, self.game.durations.cooking - state.work[slot])
        later = max(work.bowls, 0) * self._take_bowl
        return begun + later + sum(self._from_crate[item] for item in work.unstarted)


def open_dishes(game: OrderGame, served: Iterable[int]) -> tuple[Dish, ...]:
    """Returns the dishes of the orders that are not served, in a fixed sequence."""
    return tuple(sorted((game.orders[number].dish for number in game.all.difference(served)), key=sorted))


# ---- trips ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=CACHED)
def useful_trips(
    equipment: Equipment, chops: int, dishes: tuple[Dish, ...], hand: Thing, slots: tuple[Thing, ...]
) -> tuple[Stops, ...]:
    """Returns the trips that make progress with some dishes."""
    work = count_work(equipment, chops, dishes, hand, slots)
    trips = _TripFinder(equipment, dishes, slots, work)
    if hand is None:
        return tuple(trips.with_empty_hands())
    if isinstance(hand, frozenset):
        return tuple(trips.with_bowl(hand))
    return tuple(trips.with_item(hand))


class _TripFinder:
    """Finds useful trips for given things in a kitchen."""

    def __init__(self, equipment: Equipment, dishes: tuple[Dish, ...], slots: tuple[Thing, ...], work: Work) -> None:
        self.equipment, self.dishes, self.slots, self.work = equipment, dishes, slots, work
        self.holders, self.kinds = equipment.holders, equipment.kind_of_slot
        self.racks, self.hatches = equipment.of_kind[RACK], equipment.of_kind[HATCH]
        self.to_bin: Stops = (_choice(equipment.of_kind[BIN]),)
        self.wants_bowl = work.bowls > 0 and not any(map(is_bowl, slots))

    def with_bowl(self, contents: Dish) -> list[Stops]:
        """Returns the trips of a cook that carries a bowl."""
        if contents in self.dishes:
            return [(hatch,) for hatch in self.hatches]
        if not self._is_part(contents):
            return [self.to_bin]
        trips: list[Stops] = []
        for slot, thing in enumerate(self.slots):
            item = self._item_for_bowl(slot, thing)
            if item is not None and item not in contents and self._is_part(contents | {item}):
                trips.append((self.holders[slot],))
        return trips + (self._free_counters() or self._free(BOARD)[:1])

    def _item_for_bowl(self, slot: int, thing: Thing) -> Item | None:
        """Returns the item that a cook with a bowl gets at a slot, if it waits there for food on a stove."""
        if not isinstance(thing, Item) or thing.form == BURNT:
            return None
        if thing.form == RAW:
            return Item(thing.food, GRILLED) if self.kinds[slot] == STOVE else None
        return thing

    def with_item(self, item: Item) -> list[Stops]:
        """Returns the trips of a cook that carries a food."""
        counters = self._free_counters()[:1]
        if is_raw(item):
            needed = {each for dish in self.dishes for each in dish}
            trips: list[Stops] = []
            if Item(item.food, CHOPPED) in needed:
                trips += [stops * 2 for stops in self._free(BOARD)]
            if Item(item.food, GRILLED) in needed:
                trips += self._free(STOVE)
            return trips or [*counters, self.to_bin]
        if is_ready(item):
            trips = [(bowl,) for bowl in self._bowls_for(item)]
            if self.wants_bowl:
                trips += [(rack,) for rack in self.racks]
            return [*trips, *counters] or [self.to_bin]
        return [self.to_bin]

    def with_empty_hands(self) -> list[Stops]:
        """Returns the trips of a cook with empty hands."""
        trips: list[Stops] = []
        for item in dict.fromkeys(self.work.unstarted):
            crate = _choice(self.equipment.crates[item.food], "shortest")
            kind = BOARD if item.form == CHOPPED else STOVE
            trips += [(crate, *stops * (2 if kind == BOARD else 1)) for stops in self._free(kind)]
        is_short = not trips and bool(self.work.unstarted)
        for slot, thing in enumerate(self.slots):
            trips += self._from_slot(slot, thing, is_short)
        if self.wants_bowl:
            trips += [(rack,) for rack in self.racks]
        return trips

    def _from_slot(self, slot: int, thing: Thing, is_short: bool) -> list[Stops]:
        """Returns the trips that begin with the thing in a slot; `is_short` if boards and stoves are blocked."""
        station, kind = self.holders[slot], self.kinds[slot]
        if thing is None:
            return []
        if is_bowl(thing):
            return [(station,)]
        item = self._item_for_bowl(slot, thing)
        if item is None:
            return [(station,)] if is_raw(thing) else [(station, *self.to_bin)]
        trips: list[Stops] = [(station, bowl) for bowl in self._bowls_for(item)]
        if self.wants_bowl:
            trips.append((station, _choice(self.racks)))
        if is_short and kind != COUNTER and (free := self._free_counters()):
            trips.append((station, *free[0]))
        return trips

    def _is_part(self, items: Dish) -> bool:
        """Returns True if an open order contains some items."""
        return any(items <= dish for dish in self.dishes)

    def _bowls_for(self, item: Item) -> list[int]:
        """Returns the stations with a bowl that may take an item."""
        return [
            self.holders[slot]
            for slot, thing in enumerate(self.slots)
            if isinstance(thing, frozenset) and item not in thing and self._is_part(thing | {item})
        ]

    def _free(self, kind: int) -> list[Stops]:
        """Returns the empty boards, stoves or counters, as trips."""
        return [
            (station,)
            for station, each, thing in zip(self.holders, self.kinds, self.slots, strict=True)
            if each == kind and thing is None
        ]

    def _free_counters(self) -> list[Stops]:
        """Returns the nearest free counters, at most two, as trips."""
        free = self._free(COUNTER)
        if len(free) < 2:
            return free
        stations = tuple(stop for (stop,) in free if isinstance(stop, int))
        return [(StationChoice(stations, rule),) for rule in ("first", "second")]


def _choice(stations: list[int], rule: str = "nearest") -> Stop:
    return StationChoice(tuple(stations), rule) if len(stations) > 1 else stations[0]
