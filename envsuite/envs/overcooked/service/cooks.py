"""The greedy cook, which a kept kitchen must defeat, and the times at which uses of stations serve the orders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile

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
from envsuite.envs.overcooked.service.layout import BIN, BOARD, COUNTER, CRATE, HATCH, RACK, STOVE, Layout
from envsuite.envs.overcooked.service.outlook import items_of
from envsuite.envs.overcooked.service.situations import Play, Spot

PerformedUse = tuple[Play, Spot, Spot]
"""A whole use of a station, or a part of it: the play with the orders as they stand, and the spots around it."""
MOST_USES = 200  # uses after which a scripted cook counts as never serving


def greedy_use(service: Service, state: State, sequence: Iterable[int] = ()) -> int:
    """Returns the station that the greedy cook uses next: the nearest step of the first open order.

    `sequence` is another sequence of the orders than theirs.
    """
    orders = sequence or range(len(service.orders))
    dish = next(service.orders[i].dish for i in orders if not state.served >> i & 1)
    options = _greedy_options(service.layout, state.hand, state.slots, dish)
    return min(options, key=lambda number: service.layout.steps(number, state.cell))


def _greedy_options(layout: Layout, hand: int, slots: tuple[int, ...], dish: int) -> list[int]:
    """Returns the stations among which the greedy cook chooses the nearest one, to prepare a dish."""
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
    return options or _clearing(layout, slots)


def _clearing(layout: Layout, slots: tuple[int, ...]) -> list[int]:
    """Returns the boards and stoves that hold things, which block the order."""
    stations = layout.stations
    return [
        i for i, thing in zip(layout.holders, slots, strict=True) if thing != NOTHING and stations[i].kind != COUNTER
    ]


def follow(service: Service, uses: Iterable[int]) -> Iterator[PerformedUse]:
    """Yields each whole use of a station. A use during which the orders change has two parts, before and after that."""
    play = Play(service)
    spot = play.spot(service.start())
    for number in uses:
        play = play.at(spot)
        after = play.perform(spot, number)
        if play.is_interrupted(spot, after):
            end = play.until_change(spot, number)
            yield play, spot, end
            play, spot = play.at(end), end
            after = play.perform(spot, number)
        yield play, spot, after
        spot = after


def served_at(uses: Iterable[PerformedUse], orders: int) -> list[int]:
    """Returns the step at which each of some orders is served, NEVER for the others."""
    times = [NEVER] * orders
    for _, before, after in uses:
        if now := after[2] & ~before[2]:
            times[now.bit_length() - 1] = after[4]
    return times


def serving_times(service: Service, uses: Iterable[int]) -> list[int]:
    """Returns the step at which each order is served by whole uses of stations, NEVER for the others."""
    return served_at(follow(service, uses), len(service.orders))


def is_won(uses: Iterable[PerformedUse]) -> bool:
    """Returns True if whole uses of stations serve every order by its deadline."""
    for play, before, after in uses:
        if play.misses(before[2], after[2], after[4]):
            return False
        if after[2] == play.service.all:
            return True
    return False


def wins(service: Service, uses: Iterable[int]) -> bool:
    """Returns True if whole uses of stations serve every order by its deadline."""
    return is_won(follow(service, uses))


def follow_greedy(service: Service, sequence: Iterable[int] = ()) -> Iterator[PerformedUse]:
    """Yields each whole use of a station by the greedy cook, who decides anew when the orders change.

    `sequence` is another sequence of the orders than theirs.
    """
    orders = tuple(sequence) or range(len(service.orders))
    play = Play(service)
    walks, greedy = play.walks, play.situations.greedy
    spot = play.spot(service.start())
    open_before, dish = -1, 0
    for _ in range(MOST_USES):
        play = play.at(spot)
        cell, situation, served, since, time = spot
        if served == service.all:
            break
        if play.situations.burning[situation]:
            situation = play.aged(situation, since, time)
            spot = cell, situation, served, since, time
        if service.change is not None or served != open_before:
            open_before = served
            dish = play.service.orders[next(i for i in orders if not served >> i & 1)].dish
        options = greedy.get((situation, dish))
        if options is None:
            hand, slots, _ = play.situations.things[situation]
            options = greedy[situation, dish] = tuple(_greedy_options(service.layout, hand, slots, dish))
        number = options[0]
        if len(options) > 1:
            steps = [walks[option][cell][0] for option in options]
            number = options[steps.index(min(steps))]
        after = play.perform(spot, number)
        if play.is_interrupted(spot, after):
            after = play.until_change(spot, number)
        yield play, spot, after
        spot = after


def play_greedy(service: Service, sequence: Iterable[int] = (), limit: int = NEVER) -> list[int]:
    """Plays the greedy cook. Returns the step at which each order is served, NEVER for the others and after `limit`."""
    uses = takewhile(lambda use: use[2][4] < limit, follow_greedy(service, sequence))
    return served_at(uses, len(service.orders))
