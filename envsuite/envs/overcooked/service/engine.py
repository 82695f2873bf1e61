"""Rules of a service: what a cook's steps do to things, stoves and orders.

All functions are pure: they return a new state. A thing is an integer: NOTHING, a food (`4 * food + form`), or a bowl
(`BOWL` plus one bit per food in it). A dish is the set of foods that an order names, as bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envsuite.envs.overcooked.kitchen import FLOOR, STAY
from envsuite.envs.overcooked.service.layout import BIN, BOARD, CRATE, HATCH, RACK, STOVE, Layout, Station

NOTHING = -1
RAW, CHOPPED, GRILLED, BURNT = range(4)
"""Forms of a food."""
BOWL = 1 << 40
NEVER = 1 << 30
"""Deadline of an order that never expires."""


class Order(NamedTuple):
    """An order: its dish, and the step by which it must have been served."""

    dish: int
    deadline: int = NEVER


class OrderChange(NamedTuple):
    """A change of the orders: at a step, another order replaces one that is not served by then."""

    time: int
    order: int
    replacement: Order


class Rules(NamedTuple):
    """Durations in steps."""

    chops: int = 2  # cuts that turn a raw food into a chopped one
    cooking: int = 6  # on the stove until a raw food is grilled
    burning: int = 8  # further steps on the stove until a grilled food is burnt


class State(NamedTuple):
    """Complete state of a service."""

    cell: int
    hand: int
    slots: tuple[int, ...]  # thing on each board, stove and counter
    work: tuple[int, ...]  # per slot: cuts of a raw food on a board, steps of a food on a stove
    served: int  # bit mask of orders
    time: int


def is_ready(thing: int) -> bool:
    """Returns True for a chopped or grilled food."""
    return 0 <= thing < BOWL and thing & 3 in (CHOPPED, GRILLED)


def is_raw(thing: int) -> bool:
    """Returns True for a raw food."""
    return 0 <= thing < BOWL and thing & 3 == RAW


class Service:
    """A kitchen with its orders.

    If the orders change during the game, this service has the first ones and `changed` has the later ones. All methods
    except `at`, `changes_by` and `until_change` go by the orders of their own service.
    """

    def __init__(
        self, layout: Layout, orders: Sequence[Order], rules: Rules, change: OrderChange | None = None
    ) -> None:
        self.layout, self.orders, self.rules, self.change = layout, tuple(orders), rules, change
        self._changed: Service | None = None  # not the service itself, so that it is freed at once
        if change is not None:
            later = [*orders[: change.order], change.replacement, *orders[change.order + 1 :]]
            self._changed = Service(layout, later, rules)
        self.all = (1 << len(self.orders)) - 1
        """bit mask of all orders"""
        self.urgency = sorted((order.deadline, i) for i, order in enumerate(self.orders))
        """(deadline, number) of each order, the most urgent one first"""
        self._stoves = range(layout.boards, layout.boards + layout.stoves)

    @property
    def changed(self) -> Service:
        """The service with the later orders; this one if the orders do not change."""
        return self._changed or self

    def start(self) -> State:
        """Returns the initial state."""
        empty = (NOTHING,) * self.layout.slots
        return State(self.layout.start, NOTHING, empty, (0,) * self.layout.slots, 0, 0)

    def at(self, state: State) -> Service:
        """Returns the service with the orders as they stand in a state."""
        return self.changed if self.changes_by(state) else self

    def changes_by(self, state: State) -> bool:
        """Tests whether the orders have changed in a state."""
        change = self.change
        return change is not None and state.time >= change.time and not state.served >> change.order & 1

    def until_change(self, state: State, number: int) -> State:
        """Returns the state at the change of the orders, during a whole use of station `number`."""
        while not self.changes_by(state):
            state = self.step(state, self.direction(state, number))
        return state

    def expired(self, state: State) -> int:
        """Returns the first order whose deadline has passed unserved, or -1."""
        for i, order in enumerate(self.orders):
            if order.deadline <= state.time and not state.served >> i & 1:
                return i
        return -1

    def step(self, state: State, direction: int) -> State:
        """Returns the state after one step of time: a move, the use of a station, or nothing (STAY)."""
        if direction != STAY:
            cell = state.cell + self.layout.kitchen.delta[direction]
            number = self.layout.station_at.get(cell)
            if number is not None:
                state = self.use(state, self.layout.stations[number])
            elif self.layout.kitchen.kind[cell] == FLOOR:
                state = state._replace(cell=cell)
        return self.wait(state, 1)

    def wait(self, state: State, steps: int, cell: int = -1) -> State:
        """Returns the state some steps later, when food on stoves is older. `cell` moves the cook."""
        here, hand, slots, work, served, time = state
        for i in self._stoves:
            thing = slots[i]
            if thing >= 0:
                age = work[i] + steps
                form = RAW if age < self.rules.cooking else GRILLED
                if thing & 3 == BURNT or age >= self.rules.cooking + self.rules.burning:
                    form, age = BURNT, 0
                work = (*work[:i], age, *work[i + 1 :])
                slots = (*slots[:i], (thing & ~3) + form, *slots[i + 1 :])
        return State(here if cell < 0 else cell, hand, slots, work, served, time + steps)

    def use(self, state: State, station: Station) -> State:
        """Returns the state after the cook beside a station uses it, without the step of time."""
        cell, hand, slots, work, served, time = state
        kind, _, _, food, slot = station
        if slot >= 0:
            return self._use_slot(state, kind, slot)
        after = hand
        if kind == CRATE:
            after = 4 * food if hand == NOTHING else NOTHING if hand == 4 * food else hand
        elif kind == RACK:
            after = BOWL if hand == NOTHING else NOTHING if hand == BOWL else hand
            if is_ready(hand):
                after = BOWL | 1 << hand
        elif kind == BIN:
            after = BOWL if hand > BOWL else NOTHING if 0 <= hand < BOWL else hand
        elif kind == HATCH and (order := self.order_for(hand, served)) >= 0:
            after, served = NOTHING, served | 1 << order
        return State(cell, after, slots, work, served, time)

    def _use_slot(self, state: State, kind: int, slot: int) -> State:
        cell, hand, slots, work, served, time = state
        thing, done = slots[slot], 0
        if hand == NOTHING:
            if kind == BOARD and is_raw(thing):
                done = work[slot] + 1
                if done == self.rules.chops:
                    thing, done = thing + CHOPPED, 0
            elif kind == STOVE and is_raw(thing):
                return state
            else:
                hand, thing = thing, NOTHING
        elif thing == NOTHING:
            if kind == STOVE and not is_raw(hand):
                return state
            hand, thing = NOTHING, hand
        elif hand >= BOWL and is_ready(thing) and not hand >> thing & 1:
            hand, thing = hand | 1 << thing, NOTHING
        elif thing >= BOWL and is_ready(hand) and not thing >> hand & 1:
            hand, thing = NOTHING, thing | 1 << hand
        else:
            return state
        slots = (*slots[:slot], thing, *slots[slot + 1 :])
        work = (*work[:slot], done, *work[slot + 1 :])
        return State(cell, hand, slots, work, served, time)

    def order_for(self, hand: int, served: int) -> int:
        """Returns the most urgent unserved order that the thing in the cook's hand serves, or -1."""
        for _, i in self.urgency:
            if self.orders[i].dish == hand - BOWL and not served >> i & 1:
                return i
        return -1

    # ---- whole uses: walk to a station and use it ------------------------------------------------------------------

    def direction(self, state: State, number: int) -> int:
        """Returns the next primitive step of a whole use of station `number`; STAY waits for food on a stove."""
        layout = self.layout
        if layout.steps(number, state.cell) == 1 and self._waits(state, layout.stations[number]):
            return STAY
        return layout.ways[number].direction(state.cell)

    def _waits(self, state: State, station: Station) -> bool:
        """Returns True if the cook wants the food on a stove and it is not done yet."""
        wants = state.hand == NOTHING or state.hand >= BOWL
        return wants and station.kind == STOVE and is_raw(state.slots[station.slot])

    def goes_on(self, state: State, number: int) -> bool:
        """Returns True if a whole use of a station continues after a step in which the cook used it: cutting."""
        station = self.layout.stations[number]
        return station.kind == BOARD and state.hand == NOTHING and state.work[station.slot] > 0

    def perform(self, state: State, number: int) -> State:
        """Returns the state after a whole use of a station: walk, wait for the stove, use it, cut until it is cut."""
        layout, station = self.layout, self.layout.stations[number]
        cell, hand, slots, work, served, time = state
        steps, end = layout.walks[number][cell]
        if station.kind == STOVE:
            state = self.wait(state, steps - 1, end)
            if self._waits(state, station):
                state = self.wait(state, self.rules.cooking - state.work[station.slot])
            return self.wait(self.use(state, station), 1)
        state = self.use(State(end, hand, slots, work, served, time), station)
        while self.goes_on(state, number):
            state, steps = self.use(state, station), steps + 1
        return self.wait(state, steps)
