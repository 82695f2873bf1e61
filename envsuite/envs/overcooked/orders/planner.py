"""Planner: a best-first search over whole uses of stations for a plan that serves all orders early.

It proves that a game can be won. It does not prove that no shorter plan exists.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

from envsuite.envs.overcooked.orders.rules import NEVER, OrderGame, State
from envsuite.envs.overcooked.orders.scripts import greedy_use
from envsuite.envs.overcooked.orders.work import Estimator, open_dishes, useful_trips

GREED = 3.0
"""weight of the estimated remaining steps against the elapsed ones"""
EFFORT = 500
"""states expanded from a state off the plan"""


def search(game: OrderGame, start: State, limit: int = NEVER, effort: int = EFFORT) -> list[int]:
    """Returns the stations of a plan that serves every order before its deadline and by step `limit`.

    Returns [] if `effort` expanded states lead to no such plan.
    """
    kitchen, estimator, chops = game.kitchen, Estimator(game), game.durations.chops
    heap: list[tuple[float, int, State, Any]] = [(0.0, 0, start, None)]
    earliest = {start[:-1]: start.time}
    limit += 1
    best: Any = None
    count = 0
    while heap and effort:
        _, _, state, path = heapq.heappop(heap)
        if earliest[state[:-1]] < state.time:
            continue
        effort -= 1
        dishes = open_dishes(game, state.served)
        for stops in useful_trips(kitchen.equipment, chops, dishes, state.hand, state.slots):
            stations = kitchen.trip(stops, state.cell).stations
            after = state
            for number in stations:
                after = game.perform(after, number)
            if after.time >= limit or game.misses(state, after):
                continue
            key = after[:-1]  # without the time
            if after.time >= earliest.get(key, NEVER):
                continue
            if after.served == game.all:
                limit, best = after.time, (stations, path)
                continue
            remaining = estimator.estimate(after, open_dishes(game, after.served))
            if after.time + remaining < limit:
                earliest[key] = after.time
                count += 1
                heapq.heappush(heap, (after.time + GREED * remaining, -count, after, (stations, path)))
    plan: list[int] = []
    while best is not None:
        stations, best = best
        plan = [*stations, *plan]
    return plan


class Follower:
    """Turns the uses that a cook decides on into primitive steps, and remembers them while they are followed."""

    def __init__(
        self, game: OrderGame, decide: Callable[[OrderGame, State], Iterable[int]], plans: Iterable[Iterable[int]] = ()
    ) -> None:
        """`decide` returns at least one use for a state off the remembered steps, with the orders as they are.

        `plans` are uses from the start, and uses from the change of the orders.
        """
        self.game, self._decide = game, decide
        self._directions: dict[State, int] = {}
        state = game.start()
        for plan in plans:
            state = self._follow(state, plan)

    def next_direction(self, state: State) -> int:
        """Returns the next primitive step."""
        if state not in self._directions:
            self._follow(state, self._decide(self.game.at(state), state))
        return self._directions[state]

    def _follow(self, state: State, uses: Iterable[int]) -> State:
        """Remembers the steps of uses until the orders change. Returns the state after them."""
        game, kitchen = self.game.at(state), self.game.kitchen
        for number in uses:
            is_done = False
            while not is_done:
                if game.changes_by(state):
                    return state
                direction = game.direction(state, number)
                touches = state.cell + kitchen.grid.delta[direction] == kitchen.stations[number].cell
                self._directions[state] = direction
                state = game.step(state, direction)
                is_done = touches and not game.goes_on(state, number)
        return state


def greedy_follower(game: OrderGame) -> Follower:
    """Returns the greedy cook."""
    return Follower(game, lambda now, state: [greedy_use(now, state)])


def planner(game: OrderGame, plans: Iterable[Iterable[int]] = ()) -> Follower:
    """Returns the cook that follows the shortest plan found, and the greedy cook where none is found.

    It does not foresee a change of the orders.
    """
    return Follower(game, lambda now, state: search(now, state) or [greedy_use(now, state)], plans)
