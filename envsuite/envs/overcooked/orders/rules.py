"""Rules of kitchens with orders: what a cook's steps do to things, stoves and orders.

All functions are pure: they return a new state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envsuite.envs.overcooked.grid import STAY
from envsuite.envs.overcooked.orders.kitchen import BIN, BOARD, CRATE, HATCH, RACK, STOVE, OrderKitchen, Station

RAW, CHOPPED, GRILLED, BURNT = range(4)
"""Forms of a food."""
NEVER = 1 << 30
"""Deadline of an order that never expires."""


class Item(NamedTuple):
    """A food (its number in the kitchen) in one of the forms."""

    food: int
    form: int


Dish = frozenset[Item]
"""Items that an order names, or that a bowl holds."""
Thing = Item | Dish | None
"""Item, bowl with its items, or nothing: the content of a hand or a station."""
EMPTY_BOWL: Dish = frozenset()


def is_bowl(thing: Thing) -> bool:
    """Returns True for a bowl."""
    return isinstance(thing, frozenset)


def is_raw(thing: Thing) -> bool:
    """Returns True for a raw food."""
    return isinstance(thing, Item) and thing.form == RAW


def is_ready(thing: Thing) -> bool:
    """Returns True for a chopped or grilled food."""
    return isinstance(thing, Item) and thing.form in (CHOPPED, GRILLED)


class Order(NamedTuple):
    """An order: its dish, and the step by which it must have been served."""

    dish: Dish
    deadline: int = NEVER


class OrderChange(NamedTuple):
    """A change of the orders: at a step, another order replaces one that is not served by then."""

    time: int
    order: int
    replacement: Order


class Durations(NamedTuple):
    """Durations in steps."""

    chops: int = 2  # cuts that turn a raw food into a chopped one
    cooking: int = 6  # on the stove until a raw food is grilled
    burning: int = 8  # further steps on the stove until a grilled food is burnt


class State(NamedTuple):
    """Complete state of a game."""

    cell: int
    hand: Thing
    slots: tuple[Thing, ...]  # thing on each board, stove and counter
    work: tuple[int, ...]  # per slot: cuts of a raw food on a board, steps of a food on a stove
    served: frozenset[int]  # numbers of the orders
    time: int


class OrderGame:
    """A kitchen with its orders.

    If the orders change during the game, this object has the first ones and `changed` has the later ones. Only
    `at`, `changes_by` and `until_change` look at both.
    """

    def __init__(
        self, kitchen: OrderKitchen, orders: Sequence[Order], durations: Durations, change: OrderChange | None = None
    ) -> None:
        self.kitchen, self.orders, self.durations, self.change = kitchen, tuple(orders), durations, change
        self._changed: OrderGame | None = None  # not the object itself, so that it is freed at once
        if change is not None:
            later = [*orders[: change.order], change.replacement, *orders[change.order + 1 :]]
            self._changed = OrderGame(kitchen, later, durations)
        self.all = frozenset(range(len(self.orders)))
        """numbers of all orders"""
        self.urgency = sorted(self.all, key=lambda number: (self.orders[number].deadline, number))
        """numbers of the orders, the most urgent one first"""

    @property
    def changed(self) -> OrderGame:
        """The game with the later orders; this one if the orders do not change."""
        return self._changed or self

    def start(self) -> State:
        """Returns the initial state."""
        slots = self.kitchen.slots
        return State(self.kitchen.start, None, (None,) * slots, (0,) * slots, frozenset(), 0)

    # ---- orders ----------------------------------------------------------------------------------------------------

    def at(self, state: State) -> OrderGame:
        """Returns the game with the orders as they are in a state."""
        return self.changed if self.changes_by(state) else self

    def changes_by(self, state: State) -> bool:
        """Tests whether the orders have changed in a state."""
        change = self.change
        return change is not None and state.time >= change.time and change.order not in state.served

    def is_interrupted(self, before: State, after: State) -> bool:
        """Tests whether the orders change on the way from a state to another one."""
        change = self.change
        return change is not None and after.time > change.time and change.order not in before.served

    def until_change(self, state: State, number: int) -> State:
        """Returns the state at the change of the orders, during a whole use of station `number`."""
        while not self.changes_by(state):
            state = self.step(state, self.direction(state, number))
        return state

    def expired(self, state: State) -> int:
        """Returns the first order whose deadline has passed unserved, or -1."""
        for number, order in enumerate(self.orders):
            if order.deadline <= state.time and number not in state.served:
                return number
        return -1

    def misses(self, before: State, after: State) -> bool:
        """Tests whether an order has expired by a state, or was served too late by the use of a station before it."""
        for number in self.urgency:
            deadline = self.orders[number].deadline
            if number in after.served:
                if number not in before.served and deadline < after.time:
                    return True
            elif deadline <= after.time:
                return True
        return False

    def order_for(self, thing: Thing, served: frozenset[int]) -> int:
        """Returns the most urgent unserved order that a thing serves, or -1."""
        for number in self.urgency:
            if self.orders[number].dish == thing and number not in served:
                return number
        return -1

    # ---- single steps ----------------------------------------------------------------------------------------------

    def step(self, state: State, direction: int) -> State:
        """Returns the state after one step of time: a move, the use of a station, or nothing (STAY)."""
        if direction != STAY:
            cell = state.cell + self.kitchen.grid.delta[direction]
            number = self.kitchen.station_at.get(cell)
            if number is not None:
                state = self.use(state, self.kitchen.stations[number])
            elif self.kitchen.grid.is_floor[cell]:
                state = state._replace(cell=cell)
        return self.wait(state, 1)

    def wait(self, state: State, steps: int, cell: int = -1) -> State:
        """Returns the state some steps later, when food on stoves is older. `cell` moves the cook."""
        here, hand, slots, work, served, time = state
        for slot in self.kitchen.equipment.stove_slots:
            item = slots[slot]
            if item is not None:
                assert isinstance(item, Item)
                form, age = self._cooked(item.form, work[slot] + steps)
                work = (*work[:slot], age, *work[slot + 1 :])
                if form != item.form:
                    slots = (*slots[:slot], Item(item.food, form), *slots[slot + 1 :])
        return State(here if cell < 0 else cell, hand, slots, work, served, time + steps)

    def _cooked(self, form: int, age: int) -> tuple[int, int]:
        """Returns form and age of a food that has been on a stove for `age` steps; burnt food has no age."""
        if form == BURNT or age >= self.durations.cooking + self.durations.burning:
            return BURNT, 0
        return (RAW if age < self.durations.cooking else GRILLED), age

    def use(self, state: State, station: Station) -> State:
        """Returns the state after the cook beside a station uses it, without the step of time."""
        cell, hand, slots, work, served, time = state
        kind = station.kind
        if station.slot >= 0:
            return self._use_slot(state, kind, station.slot)
        if kind == CRATE:
            raw = Item(station.food, RAW)
            hand = raw if hand is None else None if hand == raw else hand
        elif kind == RACK:
            if hand is None:
                hand = EMPTY_BOWL
            elif hand == EMPTY_BOWL:
                hand = None
            elif isinstance(hand, Item) and is_ready(hand):
                hand = frozenset((hand,))
        elif kind == BIN:
            hand = EMPTY_BOWL if is_bowl(hand) else None
        elif kind == HATCH and (order := self.order_for(hand, served)) >= 0:
            hand, served = None, served | {order}
        return State(cell, hand, slots, work, served, time)

    def _use_slot(self, state: State, kind: int, slot: int) -> State:
        cell, hand, slots, work, served, time = state
        thing, cuts = slots[slot], 0
        if hand is None:
            if kind == STOVE and is_raw(thing):
                return state
            if kind == BOARD and isinstance(thing, Item) and thing.form == RAW:
                cuts = work[slot] + 1
                if cuts == self.durations.chops:
                    thing, cuts = Item(thing.food, CHOPPED), 0
            else:
                hand, thing = thing, None
        elif thing is None:
            if kind == STOVE and not is_raw(hand):
                return state
            hand, thing = None, hand
        elif isinstance(hand, frozenset) and isinstance(thing, Item) and is_ready(thing) and thing not in hand:
            hand, thing = hand | {thing}, None
        elif isinstance(thing, frozenset) and isinstance(hand, Item) and is_ready(hand) and hand not in thing:
            thing, hand = thing | {hand}, None
        else:
            return state
        slots = (*slots[:slot], thing, *slots[slot + 1 :])
        work = (*work[:slot], cuts, *work[slot + 1 :])
        return State(cell, hand, slots, work, served, time)

    # ---- whole uses: walk to a station and use it ------------------------------------------------------------------

    def direction(self, state: State, number: int) -> int:
        """Returns the next primitive step of a whole use of station `number`; STAY waits for food on a stove."""
        station = self.kitchen.stations[number]
        if self.kitchen.steps(number, state.cell) == 1 and self._waits(state, station):
            return STAY
        return self.kitchen.paths[number].direction(state.cell)

    def _waits(self, state: State, station: Station) -> bool:
        """Returns True if the cook wants the food on a stove and it is not done yet."""
        wants = state.hand is None or is_bowl(state.hand)
        return wants and station.kind == STOVE and is_raw(state.slots[station.slot])

    def goes_on(self, state: State, number: int) -> bool:
        """Returns True if a whole use of a station continues after a step in which the cook used it: cutting."""
        station = self.kitchen.stations[number]
        return station.kind == BOARD and state.hand is None and state.work[station.slot] > 0

    def perform(self, state: State, number: int) -> State:
        """Returns the state after a whole use of a station: walk, wait for the stove, use it, cut until it is cut."""
        station = self.kitchen.stations[number]
        steps, end = self.kitchen.walk(number, state.cell)
        if station.kind == STOVE:
            state = self.wait(state, steps - 1, end)
            if self._waits(state, station):
                state = self.wait(state, self.durations.cooking - state.work[station.slot])
            return self.wait(self.use(state, station), 1)
        state = self.use(state._replace(cell=end), station)
        while self.goes_on(state, number):
            state, steps = self.use(state, station), steps + 1
        return self.wait(state, steps)
