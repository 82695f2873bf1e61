"""Remaining work of a service: an estimate of the steps, and the uses of stations that make progress."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from envsuite.envs.overcooked.service.engine import (
    BOWL,
    BURNT,
    CHOPPED,
    GRILLED,
    NOTHING,
    RAW,
    Fields,
    Service,
    is_raw,
    is_ready,
)
from envsuite.envs.overcooked.service.layout import BIN, BOARD, COUNTER, CRATE, HATCH, RACK, STOVE

NEVER_BEFORE = {CRATE: (RACK,), HATCH: (RACK, HATCH), RACK: (RACK,)}
"""Kinds of station that no sensible cook uses just before a station of some kind."""
WASTE = 8  # estimated steps to get rid of a thing that no order needs


@cache
def items_of(dish: int) -> tuple[int, ...]:
    """Returns the foods in a dish, as things."""
    return tuple(item for item in range(dish.bit_length()) if dish >> item & 1)


class View(NamedTuple):
    """Remaining work for some orders, given the things in the kitchen."""

    left: list[int]  # per item: how many are still to be started
    bowls: int  # missing bowls
    begun: int  # estimated steps for what is begun; those that the next two fields change are counted in full
    later: int  # estimated steps for the rest
    boards: list[int]  # slots of raw foods that are needed: work done on them saves steps
    stoves: list[int]  # slots of raw foods on stoves, which must be waited for


class Outlook:
    """Estimates and candidates for the orders of one service; a set of orders is a bit mask."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._changed = self if service.changed is service else Outlook(service.changed)
        layout = self.layout = service.layout
        count = len(layout.stations)
        of_kind = layout.of_kind
        self._visit = [self._fewest_steps(b) for b in range(count)]
        """per station, the fewest steps from using another station to using it"""
        self._serve, self._take_bowl = (min(self._visit[i] for i in of_kind[kind]) for kind in (HATCH, RACK))
        self.crates = [[i for i in of_kind[CRATE] if layout.stations[i].food == f] for f in range(len(layout.foods))]
        self._detours: dict[tuple[int, int, int], int] = {}
        self._open: dict[int, tuple[list[int], frozenset[int], int]] = {}
        self._views: dict[tuple[int, tuple[int, ...], int], View] = {}
        self._cost: dict[int, tuple[int, int]] = {}
        """per item: steps to prepare it from its crate, and steps from the cook's hand"""
        for food, crates in enumerate(self.crates):
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
        steps, never = layout.ways[number].steps, NEVER_BEFORE.get(layout.stations[number].kind, ())
        return min(
            steps[cell]
            for kind in (BOARD, STOVE, COUNTER, HATCH, RACK)
            if kind not in never
            for other in layout.of_kind[kind]
            if other != number
            for cell in layout.sides[other]
        )

    def at(self, state: Fields) -> Outlook:
        """Returns the outlook for the orders as they stand in a state."""
        return self._changed if self.service.changes_by(state) else self

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

    def estimate(self, state: Fields, orders: int) -> int:
        """Returns the estimated steps until all of `orders` are served; a function of the state alone."""
        cell, hand, slots, work, served, _ = state
        orders &= ~served
        if not orders:
            return 0
        view = self._views.get((hand, slots, orders))
        _, _, total, later, boards, stoves = self._view(hand, slots, orders) if view is None else view
        for slot in boards:
            station = self.layout.holders[slot]
            total -= work[slot]
            if self.layout.steps(station, cell) > 1:
                total += self._visit[station]
        for slot in stoves:
            total = max(total, self.service.rules.cooking - work[slot])
        return total + later

    def _view(self, hand: int, slots: tuple[int, ...], orders: int) -> View:
        """Returns what does not depend on the place of the cook and on the work done, and remembers it."""
        counts, parts, total = self.needs(orders)
        left = counts[:]
        bowls = orders.bit_count()
        layout, visit, costs = self.layout, self._visit, self._cost
        cooking = layout.boards + layout.stoves
        raw_on_boards: list[int] = []
        raw_on_stoves: list[int] = []
        for slot, thing in enumerate(slots):
            if thing == NOTHING:
                continue
            station = layout.holders[slot]
            if thing >= BOWL:
                bowls -= 1
                total += visit[station]
                if thing - BOWL not in parts:
                    total += WASTE
                    continue
                for item in items_of(thing - BOWL):
                    left[item] -= 1
                    if left[item] < 0:
                        total += WASTE
            elif thing & 3 == RAW:
                if slot < layout.boards:
                    item, cost = thing + CHOPPED, self.service.rules.chops + visit[station]
                    if left[item] > 0:
                        raw_on_boards.append(slot)
                elif slot < cooking:
                    item, cost = thing + GRILLED, visit[station]
                    raw_on_stoves.append(slot)
                else:
                    item = thing + CHOPPED if left[thing + CHOPPED] > 0 else thing + GRILLED
                    cost = visit[station] + costs.get(item, (0, 0))[1]
                if left[item] > 0:
                    left[item] -= 1
                    total += cost
            elif thing & 3 == BURNT:
                total += WASTE
            else:
                total += visit[station]
                if left[thing] > 0:
                    left[thing] -= 1
        if hand >= BOWL:
            bowls -= 1
            if hand - BOWL not in parts:
                total += WASTE
            else:
                for item in items_of(hand - BOWL):
                    left[item] -= 1
                    if left[item] < 0:
                        total += WASTE
        elif hand != NOTHING:
            if hand & 3 == RAW:
                item = hand + CHOPPED if left[hand + CHOPPED] > 0 else hand + GRILLED
                if left[item] > 0:
                    left[item] -= 1
                    total += costs[item][1]
                else:
                    total += WASTE
            elif hand & 3 != BURNT and left[hand] > 0:
                left[hand] -= 1
                total += 1
            else:
                total += WASTE
        later = max(0, bowls) * self._take_bowl
        for item, count in enumerate(left):
            if count > 0:
                later += count * costs[item][0]
        view = self._views[hand, slots, orders] = View(left, bowls, total, later, raw_on_boards, raw_on_stoves)
        return view

    def candidates(self, state: Fields, orders: int) -> list[tuple[int, ...]]:
        """Returns sequences of stations whose use makes progress with `orders`."""
        cell, hand, slots, _, served, _ = state
        orders &= ~served
        view = self._views.get((hand, slots, orders)) or self._view(hand, slots, orders)
        left, bowls = view.left, view.bowls
        if hand == NOTHING:
            return self._with_empty_hands(cell, slots, left, bowls, self.needs(orders)[1])
        counts, parts, _ = self.needs(orders)
        boards, cooking, holders = self.layout.boards, self.layout.boards + self.layout.stoves, self.layout.holders
        if hand >= BOWL:
            if self.service.order_for(state) >= 0:
                return [(hatch,) for hatch in self.layout.of_kind[HATCH]]
            dish = hand - BOWL
            if dish not in parts:
                return [(self._nearest(BIN, cell),)]
            chosen: list[tuple[int, ...]] = []
            for slot, thing in enumerate(slots):
                if NOTHING < thing < BOWL and thing & 3 != BURNT:
                    item = thing
                    if thing & 3 == RAW:
                        if not boards <= slot < cooking:
                            continue
                        item = thing + GRILLED
                    if not dish >> item & 1 and dish | 1 << item in parts:
                        chosen.append((holders[slot],))
            free = self._free_counters(cell, slots)
            return chosen + (free[:2] or [(holders[i],) for i in range(boards) if slots[i] == NOTHING][:1])
        if is_raw(hand):
            chosen = [(holders[i],) * 2 for i in range(boards) if slots[i] == NOTHING and counts[hand + CHOPPED]]
            chosen += [(holders[i],) for i in range(boards, cooking) if slots[i] == NOTHING and counts[hand + GRILLED]]
            return chosen or [*self._free_counters(cell, slots)[:1], (self._nearest(BIN, cell),)]
        if is_ready(hand):
            chosen = [(bowl,) for bowl in self._bowls_for(hand, slots, parts)]
            if bowls > 0 and max(slots) < BOWL:
                chosen += [(rack,) for rack in self.layout.of_kind[RACK]]
            return [*chosen, *self._free_counters(cell, slots)[:1]] or [(self._nearest(BIN, cell),)]
        return [(self._nearest(BIN, cell),)]  # burnt

    def _with_empty_hands(
        self, cell: int, slots: tuple[int, ...], left: list[int], bowls: int, parts: frozenset[int]
    ) -> list[tuple[int, ...]]:
        """Returns the candidates of a cook with empty hands."""
        layout = self.layout
        boards, cooking, holders = layout.boards, layout.boards + layout.stoves, layout.holders
        chosen: list[tuple[int, ...]] = []
        for item, count in enumerate(left):
            if count > 0:
                places = range(boards) if item & 3 == CHOPPED else range(boards, cooking)
                for slot in places:
                    if slots[slot] == NOTHING:
                        place = holders[slot]
                        crate = self._crate_on_the_way(item >> 2, cell, place)
                        chosen.append((crate, place, place) if slot < boards else (crate, place))
        free = self._free_counters(cell, slots)
        short = len(chosen) == 0 and any(count > 0 for count in left)
        bowls = 0 if max(slots) >= BOWL else bowls
        for slot, thing in enumerate(slots):
            if thing == NOTHING:
                continue
            station = holders[slot]
            if thing >= BOWL:
                chosen.append((station,))
                continue
            if thing & 3 == BURNT:
                chosen.append((station, self._nearest(BIN, layout.end(station, cell))))
                continue
            item = thing
            if thing & 3 == RAW:
                if slot < boards:
                    chosen.append((station,))
                    continue
                if slot >= cooking:
                    chosen.append((station,))
                    continue
                item += GRILLED
            end = layout.end(station, cell)
            chosen += [(station, bowl) for bowl in self._bowls_for(item, slots, parts)]
            if bowls > 0:
                chosen.append((station, self._nearest(RACK, end)))
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

    def _nearest(self, kind: int, cell: int) -> int:
        steps = self.layout.steps
        return min(self.layout.of_kind[kind], key=lambda number: steps(number, cell))

    def _crate_on_the_way(self, food: int, cell: int, place: int) -> int:
        """Returns the crate of a food with the shortest way from `cell` over the crate to `place`."""
        key = food, cell, place
        best = self._detours.get(key)
        if best is None:
            layout = self.layout
            best = self._detours[key] = min(
                self.crates[food],
                key=lambda crate: layout.steps(crate, cell) + layout.steps(place, layout.end(crate, cell)),
            )
        return best

    def _free_counters(self, cell: int, slots: tuple[int, ...]) -> list[tuple[int]]:
        """Returns the free counters, nearest first."""
        layout = self.layout
        free = [i for i in layout.of_kind[COUNTER] if slots[layout.stations[i].slot] == NOTHING]
        free.sort(key=lambda i: layout.steps(i, cell))
        return [(number,) for number in free]
