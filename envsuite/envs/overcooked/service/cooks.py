"""Scripted cooks that a kept kitchen must defeat: the greedy cook, and scripts that read only the orders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, product

from envsuite.envs.overcooked.service.engine import (
    BOWL,
    CHOPPED,
    GRILLED,
    NEVER,
    NOTHING,
    Service,
    State,
    is_raw,
    is_ready,
)
from envsuite.envs.overcooked.service.layout import BIN, BOARD, COUNTER, CRATE, HATCH, RACK, STOVE
from envsuite.envs.overcooked.service.outlook import items_of

MOST_SCRIPTS = 1000
MOST_USES = 200  # uses after which a scripted cook counts as never serving

Use = tuple[int, int]
"""A use of a station: its kind and its number from 0; for a crate the food."""


def greedy_use(service: Service, state: State, sequence: Iterable[int] = ()) -> int:
    """Returns the station that the greedy cook uses next: the nearest step of the first open order.

    `sequence` is another sequence of the orders than theirs.
    """
    orders = sequence or range(len(service.orders))
    dish = next(service.orders[i].dish for i in orders if not state.served >> i & 1)
    options = _greedy_options(service, state, dish)
    return min(options, key=lambda number: service.layout.steps(number, state.cell))


def _greedy_options(service: Service, state: State, dish: int) -> list[int]:
    layout, hand, slots = service.layout, state.hand, state.slots
    kinds, holders, boards = layout.of_kind, layout.holders, layout.boards
    free = [holders[i] for i, thing in enumerate(slots) if thing == NOTHING]
    free_of = {kind: [i for i in free if layout.stations[i].kind == kind] for kind in (BOARD, STOVE, COUNTER)}
    items = items_of(dish)
    bowls = [thing for thing in (hand, *slots) if thing >= BOWL and not (thing - BOWL) & ~dish]
    bowl = max(bowls, key=lambda thing: thing.bit_count(), default=NOTHING)
    missing = [item for item in items if bowl == NOTHING or not bowl >> item & 1]
    if hand >= BOWL:
        if hand - BOWL == dish:
            return kinds[HATCH]
        if hand != bowl:
            return kinds[BIN] if hand > BOWL else kinds[RACK]
        waiting = [item - GRILLED for item in missing if item & 3 == GRILLED]
        gather = [
            holders[i]
            for i, thing in enumerate(slots)
            if thing in missing or (boards <= i < boards + layout.stoves and thing in waiting)
        ]
        return gather or free_of[COUNTER] or free_of[BOARD] or kinds[BIN if hand > BOWL else RACK]
    if is_raw(hand):
        places = free_of[BOARD] if hand + CHOPPED in missing else []
        places = places + (free_of[STOVE] if hand + GRILLED in missing else [])
        return places or kinds[BIN]
    if is_ready(hand):
        if hand not in missing:
            return kinds[BIN]
        if bowl == NOTHING:
            return kinds[RACK]
        return [holders[i] for i, thing in enumerate(slots) if thing == bowl]
    if hand != NOTHING:
        return kinds[BIN]
    options = []
    prepared = False
    for item in missing:
        raw, kind = item & ~3, BOARD if item & 3 == CHOPPED else STOVE
        begun = [i for i, thing in enumerate(slots) if thing == raw and layout.stations[holders[i]].kind == kind]
        done = [holders[i] for i, thing in enumerate(slots) if thing == item]
        if begun and kind == BOARD:
            options.append(holders[begun[0]])
        elif done:
            options.append(done[0])
        elif not begun and free_of[kind]:
            options += [i for i in kinds[CRATE] if layout.stations[i].food == item >> 2]
        prepared = prepared or bool(begun or done)
    if bowl == NOTHING and prepared:
        options += kinds[RACK]
    elif bowl != NOTHING and (prepared or not missing):
        options += [holders[i] for i, thing in enumerate(slots) if thing == bowl]
    return options or _clearing(service, state)


def _clearing(service: Service, state: State) -> list[int]:
    """Returns the boards and stoves that hold things, which block the order."""
    holders, stations = service.layout.holders, service.layout.stations
    return [
        i for i, thing in zip(holders, state.slots, strict=True) if thing != NOTHING and stations[i].kind != COUNTER
    ]


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


def batch_script(items: list[int], boards: int, stoves: int) -> list[Use]:
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


def single_script(items: list[int]) -> list[Use]:
    """Returns uses that prepare one food after the other and drop each into a bowl on the first counter."""
    uses: list[Use] = []
    for number, item in enumerate(items):
        place = (BOARD if item & 3 == CHOPPED else STOVE, 0)
        uses += [(CRATE, item >> 2), place, place] + ([place] if place[0] == BOARD else [])
        uses += [(RACK, 0), (COUNTER, 0)] if number == 0 else [(COUNTER, 0)]
    return [*uses, (COUNTER, 0), (HATCH, 0)]


def serving_times(service: Service, uses: Iterable[int]) -> list[int]:
    """Returns the step at which each order is served by whole uses of stations, NEVER for the others."""
    state, times = service.start(), [NEVER] * len(service.orders)
    for number in uses:
        after = service.perform(state, number)
        for i in range(len(times)):
            if (after.served & ~state.served) >> i & 1:
                times[i] = after.time
        state = after
    return times


def wins(service: Service, uses: Iterable[int]) -> bool:
    """Returns True if whole uses of stations serve every order by its deadline."""
    state = service.start()
    for number in uses:
        before, state = state, service.perform(state, number)
        if service.expired(state) >= 0 or service.served_late(before, state):
            return False
        if state.served == service.all:
            return True
    return False


def play_greedy(service: Service, sequence: Iterable[int] = ()) -> list[int]:
    """Plays the greedy cook. Returns the step at which each order is served, NEVER for the others."""

    def uses() -> Iterator[int]:
        state = service.start()
        for _ in range(MOST_USES):
            if state.served == service.all:
                break
            number = greedy_use(service, state, sequence)
            state = service.perform(state, number)
            yield number

    return serving_times(service, uses())
