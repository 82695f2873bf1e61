"""The outlook of a search: what is left to do in a situation, remembered for all kitchens with the same stations."""

from __future__ import annotations

from envsuite.envs.overcooked.service.engine import Service
from envsuite.envs.overcooked.service.layout import Trips
from envsuite.envs.overcooked.service.outlook import Outlook, Tally
from envsuite.envs.overcooked.service.situations import Play, Situations, Spot


class _Table:
    """Tables of an outlook for the situations with some open orders."""

    def __init__(self, service: Service, situations: Situations, orders: int) -> None:
        self.orders = orders
        dishes = tuple(sorted(order.dish for i, order in enumerate(service.orders) if orders >> i & 1))
        self.tallies, self.moves = situations.outlooks.setdefault(dishes, ({}, {}))
        self.steps: dict[int, tuple[int, int, tuple[int, ...], tuple[int, ...]]] = {}
        self.trips: dict[int, list[tuple[Trips, bool]]] = {}


class Ahead:
    """An outlook for one search. What does not depend on the map is remembered with the situations."""

    def __init__(self, outlook: Outlook, play: Play) -> None:
        self._outlook, self._situations = outlook, play.situations
        self._cooking = play.service.rules.cooking
        service = play.service
        self._tables = [_Table(service, play.situations, service.all & ~served) for served in range(service.all + 1)]

    def estimate(self, spot: Spot, ages: tuple[int, ...]) -> int:
        """Returns `Outlook.estimate` at a spot before the last order is served."""
        situation = spot[1]
        table = self._tables[spot[2]]
        steps = table.steps.get(situation)
        begun, later, boards, waits = self._steps_of(table, situation) if steps is None else steps
        if boards:
            begun += self._outlook.at_boards(boards, spot[0], self._situations.things[situation][2])
        for i in waits:
            begun = max(begun, self._cooking - ages[i])
        return begun + later

    def _steps_of(self, table: _Table, situation: int) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
        tally = table.tallies.get(situation) or self._tally(table, situation)
        *_, boards, stoves = tally
        waits: tuple[int, ...] = ()
        if stoves:
            slots = [slot for slot, _, _ in self._situations.burning[situation]]
            waits = tuple([slots.index(slot) for slot in stoves])
        steps = table.steps[situation] = *self._outlook.steps_of(tally, table.orders), boards, waits
        return steps

    def _tally(self, table: _Table, situation: int) -> Tally:
        hand, slots, _ = self._situations.things[situation]
        tally = table.tallies[situation] = self._outlook.tally(hand, slots, table.orders)
        return tally

    def moves(self, situation: int, served: int) -> list[tuple[Trips, bool]]:
        """Returns the trips that make progress, and whether each uses neither a stove nor a hatch."""
        table = self._tables[served]
        trips = table.trips.get(situation)
        if trips is None:
            outlook = self._outlook
            moves = table.moves.get(situation)
            if moves is None:
                tally = table.tallies.get(situation) or self._tally(table, situation)
                hand, slots, _ = self._situations.things[situation]
                moves = table.moves[situation] = outlook.moves(hand, slots, table.orders, tally)
            known = outlook.layout.trips
            trips = table.trips[situation] = [(known[parts], plain) for parts, plain in moves]
        return trips
