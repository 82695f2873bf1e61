"""The greedy cook, which a kept kitchen must defeat, and the times at which uses of stations serve the orders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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

MOST_USES = 200  # uses after which a scripted cook counts as never serving


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


def follow(service: Service, uses: Iterable[int], resume: bool = True) -> Iterator[tuple[Service, State, State]]:
    """Yields (service, before, after) for each whole use of a station, with the orders as they stand then.

    A use is interrupted if the orders change meanwhile. `resume` continues it under the changed orders.
    """
    state = service.start()
    for number in uses:
        now = service.at(state)
        after = now.perform(state, number)
        if now.changes_by(state, after):
            before, after = state, now.until_change(state, number)
            yield now, before, after
            if not resume:
                state = after
                continue
            now, state = now.changed, after
            after = now.perform(state, number)
        yield now, state, after
        state = after


def serving_times(service: Service, uses: Iterable[int], resume: bool = True) -> list[int]:
    """Returns the step at which each order is served by whole uses of stations, NEVER for the others."""
    times = [NEVER] * len(service.orders)
    for _, before, after in follow(service, uses, resume):
        for i in range(len(times)):
            if (after.served & ~before.served) >> i & 1:
                times[i] = after.time
    return times


def wins(service: Service, uses: Iterable[int], resume: bool = True) -> bool:
    """Returns True if whole uses of stations serve every order by its deadline."""
    for now, before, after in follow(service, uses, resume):
        if now.expired(after) >= 0 or now.served_late(before, after):
            return False
        if after.served == now.all:
            return True
    return False


def greedy_uses(service: Service, sequence: Iterable[int] = ()) -> Iterator[int]:
    """Yields the uses of the greedy cook, to be followed without `resume`."""
    state = service.start()
    for _ in range(MOST_USES):
        if state.served == service.all:
            break
        now = service.at(state)
        number = greedy_use(now, state, sequence)
        yield number
        after = now.perform(state, number)
        state = now.until_change(state, number) if now.changes_by(state, after) else after


def play_greedy(service: Service, sequence: Iterable[int] = ()) -> list[int]:
    """Plays the greedy cook. Returns the step at which each order is served, NEVER for the others."""
    return serving_times(service, greedy_uses(service, sequence), resume=False)
