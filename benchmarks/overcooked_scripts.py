"""Scripts for Overcooked's services that the generator does not know, and how many games the best of them wins.

A script reads the orders and nothing else. It is made by a rule: which of the tasks that are possible at this point
comes first. Tasks are to begin a food on a free board or stove, and to gather foods in a bowl and serve it. Rules are
drawn at random. The best rule is chosen on training games and counted on test games, once for all games and once for
each kind of objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from envsuite.envs.overcooked.service.cooks import wins
from envsuite.envs.overcooked.service.engine import CHOPPED, Order, Service
from envsuite.envs.overcooked.service.layout import BOARD, COUNTER, CRATE, HATCH, RACK, STOVE
from envsuite.envs.overcooked.service.outlook import items_of
from envsuite.envs.overcooked.service.scripts import Use

RULES = 400


class Rule(NamedTuple):
    """Priorities of the tasks of a script, and its choices among equal stations."""

    ranks: tuple[float, ...]  # of the orders; the order with the least comes first
    begin: dict[int, float]  # for each kind of station
    gather: float  # all foods of an order
    part: float  # some foods of an order
    arrange: int  # foods of an order: 1 grilled first, 0 as stated, -1 chopped first
    carry: bool  # takes the first food to the rack, not a bowl to the foods
    picks: dict[int, int]  # for crates, racks and hatches: 0 the first, 1 the second, 2 in turn
    by_deadline: bool
    foresees: bool  # reads the orders after their change from the start


def draw_rule(number: int) -> Rule:
    """Returns the rule of a number."""
    rng = np.random.default_rng([number, 9])
    spread = rng.choice([0.3, 1.0, 3.0, 10.0])
    return Rule(
        tuple(spread * rng.permutation(4)),
        {BOARD: rng.normal(0, 3), STOVE: rng.normal(0, 3)},
        rng.normal(0, 3),
        rng.normal(2, 3),
        int(rng.integers(-1, 2)),
        bool(rng.integers(2)),
        {kind: int(rng.integers(3)) for kind in (CRATE, RACK, HATCH)},
        bool(rng.integers(2)),
        bool(rng.integers(2)),
    )


def script(orders: Sequence[Order], boards: int, stoves: int, rule: Rule) -> list[Use]:
    """Returns the uses of stations that serve orders by a rule, or [] if it comes to a dead end."""
    dishes = [sorted(items_of(order.dish), key=lambda item: -rule.arrange * (item & 3)) for order in orders]
    left, waiting = [list(items) for items in dishes], [list(items) for items in dishes]
    begun: list[list[tuple[int, Use]]] = [[] for _ in dishes]
    bowls: set[int] = set()  # orders whose bowl stands on the counter
    free = {BOARD: list(range(boards)), STOVE: list(range(stoves))}
    uses: list[Use] = []
    while any(left):
        options: list[tuple[float, int, int]] = []
        for order, items in enumerate(waiting):
            for item in items:
                kind = BOARD if item & 3 == CHOPPED else STOVE
                if free[kind]:
                    options.append((rule.ranks[order] + rule.begin[kind], order, item))
            whole = len(begun[order]) == len(left[order])
            if begun[order] and (whole or not bowls - {order}):
                options.append((rule.ranks[order] + (rule.gather if whole else rule.part), order, -1))
        if not options:
            return []
        _, order, item = min(options, key=lambda option: option[0])
        if item >= 0:
            kind = BOARD if item & 3 == CHOPPED else STOVE
            place = kind, free[kind].pop(0)
            waiting[order].remove(item)
            begun[order].append((item, place))
            uses += [(CRATE, item >> 2), place] + [place] * (kind == BOARD)
            continue
        places = [place for _, place in begun[order]]
        if order in bowls:
            uses += [(COUNTER, 0), *places]
        else:
            uses += [places[0], (RACK, 0), *places[1:]] if rule.carry else [(RACK, 0), *places]
        for done, (kind, number) in begun[order]:
            left[order].remove(done)
            free[kind].append(number)
        begun[order] = []
        bowls = bowls | {order} if left[order] else bowls - {order}
        uses.append((COUNTER, 0) if left[order] else (HATCH, 0))
    return uses


def stations(service: Service, uses: Sequence[Use], picks: dict[int, int]) -> tuple[int, ...]:
    """Returns the stations of a script in a kitchen."""
    layout, counts = service.layout, dict.fromkeys(uses, 0)
    numbers = []
    for use in uses:
        kind, which = use
        options = layout.of_kind[kind]
        if kind in picks:
            if kind == CRATE:
                options = [i for i in options if layout.stations[i].food == which]
            which = (picks[kind] if picks[kind] < 2 else counts[use]) % len(options)
            counts[use] += 1
        numbers.append(options[which])
    return tuple(numbers)


def table(services: Sequence[Service], rules: Sequence[Rule]) -> npt.NDArray[np.bool_]:
    """Returns which games are won by which rules, bool [games, rules]."""
    won = np.zeros((len(services), len(rules)), bool)
    for game, service in enumerate(services):
        results: dict[tuple[int, ...], bool] = {}
        for number, rule in enumerate(rules):
            orders = list((service.changed if rule.foresees else service).orders)
            if rule.by_deadline:
                orders.sort(key=lambda order: order.deadline)
            uses = script(orders, service.layout.boards, service.layout.stoves, rule)
            numbers = stations(service, uses, rule.picks)
            if numbers not in results:
                results[numbers] = wins(service, numbers)
            won[game, number] = results[numbers]
    return won


def kind_of_objective(service: Service) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Returns the foods of the first orders and how they are prepared, regardless of the names of the foods."""
    names: dict[int, int] = {}
    return tuple(
        tuple((names.setdefault(item >> 2, len(names)), item & 3) for item in items_of(order.dish))
        for order in service.orders
    )


def best_scripts(train: Sequence[Service], test: Sequence[Service], rules: int = RULES) -> dict[str, int]:
    """Returns how many test games the best rule on training games wins: one rule, and one per kind of objective.

    A kind of objective that does not occur in training is played by the rule that is best on all games.
    """
    drawn = [draw_rule(number) for number in range(rules)]
    trained, tested = table(train, drawn), table(test, drawn)
    overall = int(trained.sum(0).argmax())
    kinds = [kind_of_objective(service) for service in train]
    by_kind = 0
    for game, service in enumerate(test):
        same = [i for i, kind in enumerate(kinds) if kind == kind_of_objective(service)]
        by_kind += bool(tested[game, trained[same].sum(0).argmax() if same else overall])
    return {"one": int(tested[:, overall].sum()), "by kind": by_kind, "on train": int(trained[:, overall].sum())}
