"""Remaining work of a service: an estimate of the steps, and the uses of stations that make progress."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from envsuite.envs.overcooked.service.engine import (
    BOWL,
    BURNT,
    CHOPPED,
    GRILLED,
    NOTHING,
    RAW,
    Service,
    State,
    is_raw,
    is_ready,
)
from envsuite.envs.overcooked.service.layout import (
    BIN,
    BOARD,
    COUNTER,
    CRATE,
    HATCH,
    ON_THE_WAY,
    RACK,
    STOVE,
    Part,
    chosen_station,
)

NEVER_BEFORE = {CRATE: (RACK,), HATCH: (RACK, HATCH), RACK: (RACK,)}
"""Kinds of station that no sensible cook uses just before a station of some kind."""
USED_BEFORE = (BOARD, STOVE, COUNTER, HATCH, RACK)
"""Kinds of station that a sensible cook may use before others."""
WASTE = 8  # estimated steps to get rid of a thing that no order needs


@cache
def items_of(dish: int) -> tuple[int, ...]:
    """Returns the foods in a dish, as things."""
    return tuple(item for item in range(dish.bit_length()) if dish >> item & 1)


Moves = tuple[tuple[tuple[Part, ...], bool], ...]
"""Sequences of stations, and whether neither a stove nor a hatch is among them."""


Tally = tuple[tuple[int, ...], int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Remaining work for some orders, given the things in the kitchen. It does not depend on the kitchen's map.

- items still to be started, each as often as it is missing
- missing bowls
- estimated steps that do not depend on the map
- stations to be visited once more
- items to be prepared from the cook's hand or from a counter
- slots of raw foods on boards that are needed: work done on them saves steps
- slots of raw foods on stoves, which must be waited for
"""


class Outlook:
    """Estimates and candidates for the orders of one service; a set of orders is a bit mask."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._changed = None if service.change is None else Outlook(service.changed)
        layout = self.layout = service.layout
        count = len(layout.stations)
        of_kind = layout.of_kind
        self._before = [
            [i for before in USED_BEFORE if before not in NEVER_BEFORE.get(kind, ()) for i in of_kind[before]]
            for kind in range(len(of_kind))
        ]
        """per kind of station, the stations that may be used before it"""
        self._visit = [self._fewest_steps(b) for b in range(count)]
        """per station, the fewest steps from using another station to using it"""
        self._serve, self._take_bowl = (min(self._visit[i] for i in of_kind[kind]) for kind in (HATCH, RACK))
        self._crates = [[i for i in of_kind[CRATE] if layout.stations[i].food == f] for f in range(len(layout.foods))]
        self._open: dict[int, tuple[list[int], frozenset[int], int]] = {}
        self._cost: dict[int, tuple[int, int]] = {}
        """per item: steps to prepare it from its crate, and steps from the cook's hand"""
        for food, crates in enumerate(self._crates):
            for form, kind, work in ((CHOPPED, BOARD, service.rules.chops), (GRILLED, STOVE, 0)):
                if of_kind[kind]:
                    carry = min(
                        self._visit[crate] + layout.between(crate, place) for crate in crates for place in of_kind[kind]
                    )
                    back = min(self._visit[place] for place in of_kind[kind])
                    self._cost[4 * food + form] = carry + work + back + 1, work + back + 1

    def _fewest_steps(self, number: int) -> int:
        """Returns the fewest steps from using another station to using a station."""
        layout = self.layout
        steps, kind = layout.ways[number].steps, layout.kinds[number]
        others = [i for i in self._before[kind] if i != number]
        cells = {cell for i in others for cell in layout.sides[i]}
        return min([steps[cell] for cell in cells])

    def at(self, state: State) -> Outlook:
        """Returns the outlook for the orders as they stand in a state."""
        return self._changed if self._changed is not None and self.service.changes_by(state) else self

    def needs(self, orders: int) -> tuple[list[int], frozenset[int], int]:
        """Returns how often the orders need each item, the sets that are part of an order, and the steps to serve."""
        needs = self._open.get(orders)
        if needs is None:
            dishes = [order.dish for i, order in enumerate(self.service.orders) if orders >> i & 1]
            counts = [0] * (4 * len(self.layout.foods))
            parts: set[int] = set()
            for dish in dishes:
                part = dish
                while True:
                    parts.add(part)
                    if not part:
                        break
                    part = (part - 1) & dish
                for item in items_of(dish):
                    counts[item] += 1
            needs = self._open[orders] = counts, frozenset(parts), len(dishes) * self._serve
        return needs

    def estimate(self, state: State, orders: int) -> int:
        """Returns the estimated steps until all of `orders` are served; a function of the state alone."""
        cell, hand, slots, work, served, _ = state
        orders &= ~served
        if not orders:
            return 0
        tally = self.tally(hand, slots, orders)
        begun, later = self.steps_of(tally, orders)
        *_, boards, stoves = tally
        begun += self.at_boards(boards, cell, work)
        return later + max([begun, *(self.service.rules.cooking - work[slot] for slot in stoves)])

    def steps_of(self, tally: Tally, orders: int) -> tuple[int, int]:
        """Returns the estimated steps for foods in preparation and for all others, without work done so far."""
        visit, costs = self._visit, self._cost
        left, bowls, fixed, visits, raw, _, _ = tally
        begun = fixed + self.needs(orders)[2]
        for station in visits:
            begun += visit[station]
        for item in raw:
            begun += costs[item][1]
        later = bowls * self._take_bowl if bowls > 0 else 0
        for item in left:
            later += costs[item][0]
        return begun, later

    def at_boards(self, boards: Iterable[int], cell: int, work: tuple[int, ...]) -> int:
        """Returns the correction of the estimate for raw foods on boards: cuts that are done, and the way there."""
        steps = 0
        for slot in boards:
            station = self.layout.holders[slot]
            steps -= work[slot]
            if self.layout.steps(station, cell) > 1:
                steps += self._visit[station]
        return steps

    def tally(self, hand: int, slots: tuple[int, ...], orders: int) -> Tally:
        """Returns the remaining work for `orders`."""
        counts, parts, _ = self.needs(orders)
        left = counts[:]
        bowls, fixed = orders.bit_count(), 0
        layout = self.layout
        holders, cooking = layout.holders, layout.boards + layout.stoves
        visits: list[int] = []
        raw: list[int] = []
        on_boards: list[int] = []
        on_stoves: list[int] = []
        for slot, thing in enumerate(slots):
            if thing == NOTHING:
                continue
            if thing >= BOWL:
                bowls -= 1
                visits.append(holders[slot])
                if thing - BOWL not in parts:
                    fixed += WASTE
                    continue
                for item in items_of(thing - BOWL):
                    left[item] -= 1
                    if left[item] < 0:
                        fixed += WASTE
            elif thing & 3 == RAW:
                item = thing + CHOPPED if slot < layout.boards else thing + GRILLED
                if slot >= cooking and left[thing + CHOPPED] > 0:
                    item = thing + CHOPPED
                needed = left[item] > 0
                if slot >= layout.boards and slot < cooking:
                    on_stoves.append(slot)
                elif needed and slot < layout.boards:
                    fixed += self.service.rules.chops
                    on_boards.append(slot)
                elif needed:
                    raw.append(item)
                if needed:
                    left[item] -= 1
                    visits.append(holders[slot])
            elif thing & 3 == BURNT:
                fixed += WASTE
            else:
                visits.append(holders[slot])
                if left[thing] > 0:
                    left[thing] -= 1
        if hand >= BOWL:
            bowls -= 1
            if hand - BOWL not in parts:
                fixed += WASTE
            else:
                for item in items_of(hand - BOWL):
                    left[item] -= 1
                    if left[item] < 0:
                        fixed += WASTE
        elif hand != NOTHING:
            item = hand
            if hand & 3 == RAW:
                item = hand + CHOPPED if left[hand + CHOPPED] > 0 else hand + GRILLED
            if item & 3 == BURNT or left[item] <= 0:
                fixed += WASTE
            else:
                left[item] -= 1
                if hand == item:
                    fixed += 1
                else:
                    raw.append(item)
        missing = tuple([item for item, count in enumerate(left) for _ in range(count)])
        return missing, bowls, fixed, tuple(visits), tuple(raw), tuple(on_boards), tuple(on_stoves)

    def moves(self, hand: int, slots: tuple[int, ...], orders: int, tally: Tally) -> Moves:
        """Returns sequences of stations whose use makes progress with `orders`."""
        of_kind = self.layout.of_kind
        special = {*of_kind[STOVE], *of_kind[HATCH]}
        return tuple([(parts, special.isdisjoint(parts)) for parts in self._moves(hand, slots, orders, tally)])

    def _moves(self, hand: int, slots: tuple[int, ...], orders: int, tally: Tally) -> list[tuple[Part, ...]]:
        layout, (counts, parts, _) = self.layout, self.needs(orders)
        boards, cooking, holders = layout.boards, layout.boards + layout.stoves, layout.holders
        left, bowls = tally[:2]
        if hand == NOTHING:
            return self._with_empty_hands(slots, left, bowls, parts)
        chosen: list[tuple[Part, ...]] = []
        to_bin: tuple[Part, ...] = (self._nearest(layout.of_kind[BIN]),)
        free = self._free_counters(slots)
        if hand >= BOWL:
            dish = hand - BOWL
            if any(order.dish == dish for i, order in enumerate(self.service.orders) if orders >> i & 1):
                return [(hatch,) for hatch in layout.of_kind[HATCH]]
            if dish not in parts:
                return [to_bin]
            for slot, thing in enumerate(slots):
                if NOTHING < thing < BOWL and thing & 3 != BURNT:
                    item = thing
                    if thing & 3 == RAW:
                        if not boards <= slot < cooking:
                            continue
                        item = thing + GRILLED
                    if not dish >> item & 1 and dish | 1 << item in parts:
                        chosen.append((holders[slot],))
            return chosen + (free or [(holders[i],) for i in range(boards) if slots[i] == NOTHING][:1])
        if is_raw(hand):
            chosen += [(holders[i],) * 2 for i in range(boards) if slots[i] == NOTHING and counts[hand + CHOPPED]]
            chosen += [(holders[i],) for i in range(boards, cooking) if slots[i] == NOTHING and counts[hand + GRILLED]]
            return chosen or [*free[:1], to_bin]
        if is_ready(hand):
            chosen += [(bowl,) for bowl in self._bowls_for(hand, slots, parts)]
            if bowls > 0 and max(slots) < BOWL:
                chosen += [(rack,) for rack in layout.of_kind[RACK]]
            return [*chosen, *free[:1]] or [to_bin]
        return [to_bin]  # burnt

    def _with_empty_hands(
        self, slots: tuple[int, ...], left: tuple[int, ...], bowls: int, parts: frozenset[int]
    ) -> list[tuple[Part, ...]]:
        """Returns the moves of a cook with empty hands."""
        layout = self.layout
        boards, cooking, holders = layout.boards, layout.boards + layout.stoves, layout.holders
        chosen: list[tuple[Part, ...]] = []
        for item in dict.fromkeys(left):
            for slot in range(boards) if item & 3 == CHOPPED else range(boards, cooking):
                if slots[slot] == NOTHING:
                    place = holders[slot]
                    crate = self._nearest(self._crates[item >> 2], ON_THE_WAY)
                    chosen.append((crate, place, place) if slot < boards else (crate, place))
        free = self._free_counters(slots)
        short = len(chosen) == 0 and len(left) > 0
        bowls = 0 if max(slots) >= BOWL else bowls
        for slot, thing in enumerate(slots):
            if thing == NOTHING:
                continue
            station = holders[slot]
            if thing >= BOWL:
                chosen.append((station,))
                continue
            if thing & 3 == BURNT:
                chosen.append((station, self._nearest(layout.of_kind[BIN])))
                continue
            item = thing
            if thing & 3 == RAW:
                if slot < boards or slot >= cooking:
                    chosen.append((station,))
                    continue
                item += GRILLED
            chosen += [(station, bowl) for bowl in self._bowls_for(item, slots, parts)]
            if bowls > 0:
                chosen.append((station, self._nearest(layout.of_kind[RACK])))
            if short and slot < cooking and free:
                chosen.append((station, *free[0]))
        if bowls > 0:
            chosen += [(rack,) for rack in layout.of_kind[RACK]]
        return chosen

    def _bowls_for(self, item: int, slots: tuple[int, ...], parts: frozenset[int]) -> list[int]:
        """Returns the stations with a bowl that may take an item."""
        bit, holders = 1 << item, self.layout.holders
        return [
            holders[slot]
            for slot, thing in enumerate(slots)
            if thing >= BOWL and not thing & bit and (thing - BOWL) | bit in parts
        ]

    def _nearest(self, stations: list[int], rank: int = 0) -> Part:
        return chosen_station(tuple(stations), rank) if len(stations) > 1 else stations[0]

    def _free_counters(self, slots: tuple[int, ...]) -> list[tuple[Part]]:
        """Returns the nearest free counters, at most two."""
        holders, first = self.layout.holders, self.layout.boards + self.layout.stoves
        free = tuple([holders[slot] for slot in range(first, len(slots)) if slots[slot] == NOTHING])
        if len(free) < 2:
            return [(number,) for number in free]
        return [(chosen_station(free, rank, True),) for rank in range(2)]
