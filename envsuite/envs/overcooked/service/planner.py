"""Planner: a best-first search over whole uses of stations for a plan that serves all orders early.

It proves that a service can be won. It does not prove that no shorter plan exists.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

from envsuite.envs.overcooked.service.cooks import greedy_use
from envsuite.envs.overcooked.service.engine import NEVER, Service, State
from envsuite.envs.overcooked.service.outlook import Outlook
from envsuite.envs.overcooked.service.search_outlook import SearchOutlook
from envsuite.envs.overcooked.service.situations import Play, Spot

GREED = 3.0  # weight of the estimated remaining steps against the elapsed ones
EFFORT = 500  # states expanded from a state off the plan


class Follower:
    """Turns the uses that a cook decides on into primitive steps, and remembers them while they are followed."""

    def __init__(
        self,
        service: Service,
        decide: Callable[[Service, State], Iterable[int]],
        plan: Iterable[int] = (),
        rest: Iterable[int] = (),
    ) -> None:
        """`decide` returns at least one use for a state off the remembered steps, with the orders as they stand.

        `plan` starts at the start, and `rest` at the change of the orders.
        """
        self.service, self._decide = service, decide
        self._steps: dict[State, tuple[int, int]] = {}
        """direction and station of the next step"""
        self._follow(self._follow(service.start(), plan), rest)

    def next_step(self, state: State) -> tuple[int, int]:
        """Returns (direction, station) of the next primitive step."""
        if state not in self._steps:
            self._follow(state, self._decide(self.service.at(state), state))
        return self._steps[state]

    def _follow(self, state: State, uses: Iterable[int]) -> State:
        """Remembers the steps of uses until the orders change. Returns the state after them."""
        service, layout = self.service.at(state), self.service.layout
        for number in uses:
            over = False
            while not over:
                if service.changes_by(state):
                    return state
                direction = service.direction(state, number)
                touches = state.cell + layout.kitchen.delta[direction] == layout.stations[number].cell
                self._steps[state] = direction, number
                state = service.step(state, direction)
                over = touches and not service.goes_on(state, number)
        return state


def planner(service: Service, outlook: Outlook, plan: Iterable[int] = (), rest: Iterable[int] = ()) -> Follower:
    """Returns the cook that follows the shortest plan found, and the greedy cook where none is found.

    It does not foresee a change of the orders.
    """

    def decide(now: Service, state: State) -> list[int]:
        return search(now, outlook.at(state), state) or [greedy_use(now, state)]

    return Follower(service, decide, plan, rest)


def search(service: Service, outlook: Outlook, start: State, limit: int = NEVER, effort: int = EFFORT) -> list[int]:
    """Returns the uses of a plan that serves every order before its deadline and by step `limit`.

    Returns [] if `effort` expanded states lead to no such plan.
    """
    play, orders = Play(service), service.all
    search_outlook = SearchOutlook(outlook, play)
    estimate, moves = search_outlook.estimate, search_outlook.moves
    misses, perform, settled = play.misses, play.perform, play.settled
    chains, chain, burning = play.situations.chains, play.situations.chain, play.situations.burning
    timed = service.urgency[0][0] < NEVER
    first, young = play.settled(play.spot(start))
    heap: list[tuple[float, int, Spot, Any, Any]] = [(0.0, 0, first, (*first[:3], young), None)]
    seen = {heap[0][3]: first[4]}
    limit += 1
    best: Any = None
    count = 0
    while heap and effort:
        _, _, spot, key, path = heapq.heappop(heap)
        cell, situation, served, since, time = spot
        if seen[key] < time:
            continue
        effort -= 1
        for trips, plain in moves(situation, served):
            numbers, steps, end = trips[cell]
            if plain:
                then, cuts = chains.get((situation, numbers)) or chain(situation, numbers)
                after = end, then, served, since, time + steps + cuts
            else:
                after = spot
                for number in numbers:
                    after = perform(after, number)
            later = after[4]
            if later >= limit or (timed and misses(served, after[2], later)):
                continue
            ages: tuple[int, ...] = ()
            if burning[after[1]]:
                after, ages = settled(after)
            key = after[0], after[1], after[2], ages
            if later >= seen.get(key, NEVER):
                continue
            if after[2] == orders:
                limit, best = later, (numbers, path)
                continue
            remaining = estimate(after, ages)
            if later + remaining < limit:
                seen[key] = later
                count += 1
                heapq.heappush(heap, (later + GREED * remaining, -count, after, key, (numbers, path)))
    uses: list[int] = []
    while best is not None:
        uses += best[0][::-1]
        best = best[1]
    return uses[::-1]
