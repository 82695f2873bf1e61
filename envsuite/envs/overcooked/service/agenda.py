"""Situations of a service: everything but the cook's place and time, as a graph that kitchens with equal orders share.

A search meets the same situations again and again, in different places and at different times. What a use of a station
does and what is left to do follow from the situation alone, so each is computed once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from envsuite.envs.overcooked.service.engine import BOWL, BURNT, GRILLED, NOTHING, RAW, Service, State, is_raw
from envsuite.envs.overcooked.service.layout import STOVE

MOST_AGENDAS = 16  # agendas that are remembered


class Situation:
    """Things in the kitchen and orders served, with what follows from them as far as it is known.

    `work` counts cuts on boards; the ages of food on stoves are not part of a situation, but its form is.
    """

    __slots__ = ("burning", "chains", "forms", "greedy", "hand", "moves", "served", "slots", "tally", "uses", "work")

    def __init__(self, hand: int, slots: tuple[int, ...], work: tuple[int, ...], served: int, stoves: range) -> None:
        self.hand, self.slots, self.work, self.served = hand, slots, work, served
        self.burning = [(slot, i) for i, slot in enumerate(stoves) if slots[slot] >= 0 and slots[slot] & 3 != BURNT]
        """slot and number of each stove whose food changes with time"""
        self.uses: dict[int, tuple[Situation, int]] = {}
        """per station: the situation after its whole use, and the steps of further cuts"""
        self.chains: dict[tuple[int, ...], tuple[Situation, int]] = {}
        """the same for several stations one after the other, none of which is a stove"""
        self.forms: dict[tuple[int, int], Situation] = {}
        """the situation when the food in a slot has come to another form"""
        self.greedy: dict[int, list[int]] = {}
        """per order: the stations at which the greedy cook goes on with it"""
        self.tally: object = None
        self.moves: object = None


Spot = tuple[int, Situation, tuple[int, ...], int]
"""A state: cell, situation, the time at which the food on each stove was put there (0: no food), and time."""


class Agenda:
    """All situations of a service that were met so far. A pair of equal situations is one object."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._stations = service.layout.stations
        self._stoves = range(service.layout.boards, service.layout.boards + service.layout.stoves)
        self._known: dict[tuple[int, tuple[int, ...], tuple[int, ...], int], Situation] = {}
        self.dishes = [order.dish for order in service.orders]

    def situation(self, hand: int, slots: tuple[int, ...], work: tuple[int, ...], served: int) -> Situation:
        """Returns the situation with these things; `work` is 0 on stoves."""
        key = hand, slots, work, served
        known = self._known.get(key)
        return self._known.setdefault(key, Situation(*key, self._stoves)) if known is None else known

    def use(self, situation: Situation, number: int) -> tuple[Situation, int]:
        """Returns the situation after a whole use of a station beside the cook, and the steps of further cuts."""
        service, station = self._service, self._stations[number]
        state = service.use(
            State(0, situation.hand, situation.slots, situation.work, situation.served, 0), station
        )
        cuts = 0
        while service.goes_on(state, number):
            state, cuts = service.use(state, station), cuts + 1
        after = self.situation(state.hand, state.slots, state.work, state.served)
        situation.uses[number] = after, cuts
        return after, cuts

    def chain(self, situation: Situation, numbers: tuple[int, ...]) -> tuple[Situation, int]:
        """Returns the situation after whole uses of stations, none of which is a stove, and the steps of cuts."""
        after, cuts = situation, 0
        for number in numbers:
            after, more = after.uses.get(number) or self.use(after, number)
            cuts += more
        situation.chains[numbers] = after, cuts
        return after, cuts

    def in_form(self, situation: Situation, slot: int, form: int) -> Situation:
        """Returns the situation in which the food in a slot has another form."""
        after = situation.forms.get((slot, form))
        if after is None:
            slots = situation.slots
            slots = (*slots[:slot], (slots[slot] & ~3) + form, *slots[slot + 1 :])
            after = self.situation(situation.hand, slots, situation.work, situation.served)
            situation.forms[slot, form] = after
        return after


class _Brief(NamedTuple):
    """What an agenda depends on, and a service to make it from."""

    key: tuple[object, ...]
    service: Service

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Brief) and self.key == other.key

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.key)


@lru_cache(maxsize=MOST_AGENDAS)
def _agenda(brief: _Brief) -> Agenda:
    return Agenda(brief.service)


def agenda_of(service: Service) -> Agenda:
    """Returns the agenda of a service: that of another one with the same stations, rules and dishes, if it is known."""
    dishes = tuple(order.dish for order in service.orders)
    urgency = tuple(i for _, i in service.urgency) if len(set(dishes)) < len(dishes) else ()
    return _agenda(_Brief((service.layout.equipment, service.rules, dishes, urgency), service))


class Play:
    """Whole uses of stations in one service, on spots."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.agenda = agenda_of(service)
        layout, rules = service.layout, service.rules
        self.walks, self._kinds = layout.walks, layout.kinds
        self._stations = layout.stations
        self._boards = layout.boards
        self._cooking, self._spoilt = rules.cooking, rules.cooking + rules.burning
        self.changed = self if service.changed is service else Play(service.changed)

    def spot(self, state: State) -> Spot:
        """Returns the spot of a state."""
        cell, hand, slots, work, served, time = state
        first, end = self._boards, self._boards + self.service.layout.stoves
        since = tuple(
            time - work[i] if slots[i] >= 0 and slots[i] & 3 != BURNT else 0 for i in range(first, end)
        )
        work = (*work[:first], *(0 for _ in since), *work[end:])
        return cell, self.agenda.situation(hand, slots, work, served), since, time

    def state(self, spot: Spot) -> State:
        """Returns the state of a spot."""
        cell, situation, since, time = spot
        situation = self.aged(situation, since, time)
        work = [*situation.work]
        for slot, i in situation.burning:
            work[slot] = time - since[i]
        return State(cell, situation.hand, situation.slots, tuple(work), situation.served, time)

    def aged(self, situation: Situation, since: tuple[int, ...], time: int) -> Situation:
        """Returns a situation with the forms that the food on stoves has at some time."""
        for slot, i in situation.burning:
            age = time - since[i]
            form = RAW if age < self._cooking else GRILLED if age < self._spoilt else BURNT
            if situation.slots[slot] & 3 != form:
                situation = self.agenda.in_form(situation, slot, form)
        return situation

    def settled(self, spot: Spot) -> tuple[Spot, tuple[int, ...]]:
        """Returns a spot with the forms of food up to date, and the age of each food that changes with time."""
        cell, situation, since, time = spot
        if not situation.burning:
            return spot, ()
        situation = self.aged(situation, since, time)
        return (cell, situation, since, time), tuple([time - since[i] for _, i in situation.burning])

    def perform(self, spot: Spot, number: int) -> Spot:
        """Returns the spot after a whole use of a station; the forms of food on stoves may be out of date."""
        cell, situation, since, time = spot
        steps, cell = self.walks[number][cell]
        time += steps
        if self._kinds[number] != STOVE:
            situation, cuts = situation.uses.get(number) or self.agenda.use(situation, number)
            return cell, situation, since, time + cuts
        slot = self._stations[number].slot
        stove = slot - self._boards
        before = situation.slots[slot]
        if before >= 0:
            situation = self.aged(situation, since, time - 1)
            before, hand = situation.slots[slot], situation.hand
            if is_raw(before) and (hand == NOTHING or hand >= BOWL):
                time = since[stove] + self._cooking + 1
                situation = self.aged(situation, since, time - 1)
        situation, _ = situation.uses.get(number) or self.agenda.use(situation, number)
        after = situation.slots[slot]
        if after == NOTHING != before:
            since = (*since[:stove], 0, *since[stove + 1 :])
        elif before == NOTHING != after:
            since = (*since[:stove], time - 1, *since[stove + 1 :])
        return cell, situation, since, time

    def at(self, spot: Spot) -> tuple[Play, Spot]:
        """Returns the play with the orders as they stand at a spot, and the spot in it."""
        change = self.service.change
        if change is None or spot[3] < change.time or spot[1].served >> change.order & 1:
            return self, spot
        return self.changed, self.changed.spot(self.state(spot))

    def is_interrupted(self, before: Spot, after: Spot) -> bool:
        """Tests whether the orders change on the way from a spot to another one."""
        change = self.service.change
        return change is not None and not before[1].served >> change.order & 1 and after[3] > change.time

    def until_change(self, spot: Spot, number: int) -> Spot:
        """Returns the spot at the change of the orders, during a whole use of station `number`, in `changed`."""
        return self.changed.spot(self.service.until_change(self.state(spot), number))

    def misses(self, before: Spot, after: Spot) -> bool:
        """Tests whether an order has expired in `after`, or was served too late by the use of a station before it."""
        served, time = after[1].served, after[3]
        now = served & ~before[1].served
        for deadline, i in self.service.urgency:
            if now >> i & 1:
                if deadline < time:
                    return True
            elif deadline > time:
                return False
            elif not served >> i & 1:
                return True
        return False
