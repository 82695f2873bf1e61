"""The outlook of a search: the estimates and moves of `outlook`, remembered per situation."""

from __future__ import annotations

from envsuite.envs.overcooked.service.engine import Service
from envsuite.envs.overcooked.service.layout import Trips
from envsuite.envs.overcooked.service.outlook import Outlook, Tally
from envsuite.envs.overcooked.service.situations import Play, Spot


class _Table:
    """Results that a search remembers for the situations with the same open orders."""

    def __init__(self, service: Service, orders: int) -> None:
        self.orders = orders
        self.dishes = tuple(sorted(order.dish for i, order in enumerate(service.orders) if orders >> i & 1))
        self.steps: dict[int, tuple[int, int, tuple[int, ...], tuple[int, ...]]] = {}
        """per situation: steps as from `Outlook.steps_of`, slots of boards, and indices of the stoves to wait for"""
        self.trips: dict[int, list[tuple[Trips, bool]]] = {}


class SearchOutlook:
    """An outlook for one search. Results that do not depend on the map are kept with the situations."""

    def __init__(self, outlook: Outlook, play: Play) -> None:
        self._outlook, self._situations = outlook, play.situations
        service = play.service
        self._cooking = service.rules.cooking
        self._tables = [_Table(service, service.all & ~served) for served in range(service.all + 1)]

    def estimate(self, spot: Spot, ages: tuple[int, ...]) -> int:
        """Returns `Outlook.estimate` at a spot before the last order is served. `ages` come from `Play.settled`."""
        cell, situation, served, _, _ = spot
        table = self._tables[served]
        begun, later, boards, waits = table.steps.get(situation) or self._steps(table, situation)
        if boards:
            begun += self._outlook.at_boards(boards, cell, self._situations.things[situation][2])
        for i in waits:
            begun = max(begun, self._cooking - ages[i])
        return begun + later

    def moves(self, situation: int, served: int) -> list[tuple[Trips, bool]]:
        """Returns the trips that make progress, and whether each uses neither a stove nor a hatch."""
        table = self._tables[served]
        return table.trips.get(situation) or self._trips(table, situation)

    def _steps(self, table: _Table, situation: int) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
        tally = self._tally(table, situation)
        *_, boards, stoves = tally
        slots = [slot for slot, _, _ in self._situations.burning[situation]]
        waits = tuple([slots.index(slot) for slot in stoves])
        steps = table.steps[situation] = *self._outlook.steps_of(tally, table.orders), boards, waits
        return steps

    def _trips(self, table: _Table, situation: int) -> list[tuple[Trips, bool]]:
        key = table.dishes, situation
        moves = self._situations.moves.get(key)
        if moves is None:
            hand, slots, _ = self._situations.things[situation]
            moves = self._outlook.moves(hand, slots, table.orders, self._tally(table, situation))
            self._situations.moves[key] = moves
        known = self._outlook.layout.trips
        trips = table.trips[situation] = [(known[parts], plain) for parts, plain in moves]
        return trips

    def _tally(self, table: _Table, situation: int) -> Tally:
        key = table.dishes, situation
        tally = self._situations.tallies.get(key)
        if tally is None:
            hand, slots, _ = self._situations.things[situation]
            tally = self._situations.tallies[key] = self._outlook.tally(hand, slots, table.orders)
        return tally
