"""Situations of kitchens: the things in a kitchen, without the cook's place, the orders and the time.

Searches reach the same situations in different places, at different times, and in all kitchens with the same stations.
The effect of a station on a situation is therefore computed once and remembered for all of them.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import count

from envsuite.envs.overcooked.service.engine import BOWL, BURNT, GRILLED, NOTHING, RAW, Rules, Service, State, is_raw
from envsuite.envs.overcooked.service.layout import HATCH, STOVE, Equipment
from envsuite.envs.overcooked.service.outlook import Moves, Tally

MOST_ENTRIES = 50_000  # length of `Situations` that is kept; about 25 MB
MOST_KINDS = 4  # sets of stations and rules whose situations are remembered

Things = tuple[int, tuple[int, ...], tuple[int, ...]]
"""A situation: hand, thing in each slot, and cuts on each board (0 elsewhere)."""
Dishes = tuple[int, ...]
"""Dishes of open orders, sorted."""
Spot = tuple[int, int, int, tuple[int, ...], int]
"""A state: cell, situation, orders served, the time at which the food on each stove was put there, time.

The time of a stove has no meaning where the stove is empty or its food is burnt.
"""


class Situations:
    """Numbers of the situations reached so far in kitchens with the same stations and rules, and tables of results.

    The form of food on a stove is part of a situation; its age is not. The tables depend on the stations and rules
    alone, not on the map or the deadlines, and hold integers and tuples, which Python's garbage collector can skip.
    Threads may share them: an entry that two threads compute is the same.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._stations = service.layout.stations
        self._stoves = range(service.layout.boards, service.layout.boards + service.layout.stoves)
        self._count = count()
        self._numbers: dict[Things, int] = {}
        self.things: dict[int, Things] = {}
        self.burning: dict[int, tuple[tuple[int, int, int], ...]] = {}
        """per situation: slot and number of each stove whose food changes with time, and the form of this food"""
        self.uses: list[dict[int, tuple[int, int]]] = [{} for _ in self._stations]
        """per station and situation: the situation after a whole use of the station, and the steps of further cuts"""
        self.chains: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}
        """per situation and stations, none of them a stove or a hatch: as `uses`, after one use of each"""
        self._forms: dict[tuple[int, int, int], int] = {}
        self.greedy: dict[tuple[int, int], tuple[int, ...]] = {}
        """per situation and dish: the stations among which the greedy cook chooses"""
        self.tallies: dict[tuple[Dishes, int], Tally] = {}
        """per dishes of the open orders and situation: the remaining work"""
        self.moves: dict[tuple[Dishes, int], Moves] = {}
        """per dishes of the open orders and situation: the moves that make progress"""

    def __len__(self) -> int:
        """Returns the number of situations and of their remaining work and moves, which use most of the memory."""
        return len(self.things) + len(self.tallies) + len(self.moves)

    def number(self, things: Things) -> int:
        """Returns the number of a situation."""
        known = self._numbers.get(things)
        if known is not None:
            return known
        number, slots = next(self._count), things[1]
        self.things[number] = things
        self.burning[number] = tuple(
            [
                (slot, i, slots[slot] & 3)
                for i, slot in enumerate(self._stoves)
                if slots[slot] >= 0 and slots[slot] & 3 != BURNT
            ]
        )
        return self._numbers.setdefault(things, number)

    def use(self, situation: int, number: int) -> tuple[int, int]:
        """Returns the situation after a whole use of a station beside the cook, and the steps of further cuts.

        A hatch is used with success: the bowl is gone.
        """
        service, station = self._service, self._stations[number]
        hand, slots, work = self.things[situation]
        cuts = 0
        if station.kind == HATCH:
            after = self.number((NOTHING, slots, work))
        else:
            state = service.use(State(0, hand, slots, work, 0, 0), station)
            while service.goes_on(state, number):
                state, cuts = service.use(state, station), cuts + 1
            after = self.number(state[1:4])
        self.uses[number][situation] = after, cuts
        return after, cuts

    def chain(self, situation: int, numbers: tuple[int, ...]) -> tuple[int, int]:
        """Returns the situation after whole uses of stations, no stove or hatch among them, and the steps of cuts."""
        after, cuts = situation, 0
        for number in numbers:
            after, more = self.uses[number].get(after) or self.use(after, number)
            cuts += more
        self.chains[situation, numbers] = after, cuts
        return after, cuts

    def in_form(self, situation: int, slot: int, form: int) -> int:
        """Returns the situation in which the food in a slot has another form."""
        after = self._forms.get((situation, slot, form))
        if after is None:
            hand, slots, work = self.things[situation]
            slots = (*slots[:slot], (slots[slot] & ~3) + form, *slots[slot + 1 :])
            after = self._forms[situation, slot, form] = self.number((hand, slots, work))
        return after


@lru_cache(maxsize=MOST_KINDS)
def _shared(equipment: Equipment, rules: Rules) -> list[Situations]:
    """Returns a list that holds the situations of all kitchens with some stations and rules, or nothing yet."""
    return []


def situations_of(service: Service) -> Situations:
    """Returns the situations of all kitchens with the stations and rules of a service; new ones when they are full."""
    shared = _shared(service.layout.equipment, service.rules)
    situations = shared[0] if shared else None
    if situations is None or len(situations) > MOST_ENTRIES:
        situations = Situations(service)
        shared[:] = [situations]
    return situations


class Play:
    """Whole uses of stations in one service, on spots."""

    def __init__(self, service: Service, situations: Situations | None = None) -> None:
        self.service = service
        self.situations = situations_of(service) if situations is None else situations
        layout, rules = service.layout, service.rules
        self.walks, self._kinds, self._stations = layout.walks, layout.kinds, layout.stations
        self._boards, self._stoves = layout.boards, layout.stoves
        self._cooking, self._spoilt = rules.cooking, rules.cooking + rules.burning
        self._changed = None if service.change is None else Play(service.changed, self.situations)

    def spot(self, state: State) -> Spot:
        """Returns the spot of a state."""
        cell, hand, slots, work, served, time = state
        first, end = self._boards, self._boards + self._stoves
        since = [time - work[i] if slots[i] >= 0 and slots[i] & 3 != BURNT else 0 for i in range(first, end)]
        cuts = (*work[:first], *[0] * self._stoves, *work[end:])
        return cell, self.situations.number((hand, slots, cuts)), served, tuple(since), time

    def state(self, spot: Spot) -> State:
        """Returns the state of a spot."""
        cell, situation, served, since, time = spot
        situation = self.aged(situation, since, time)
        hand, slots, cuts = self.situations.things[situation]
        work = [*cuts]
        for slot, i, _ in self.situations.burning[situation]:
            work[slot] = time - since[i]
        return State(cell, hand, slots, tuple(work), served, time)

    def aged(self, situation: int, since: tuple[int, ...], time: int) -> int:
        """Returns a situation with the forms that the food on stoves has at some time."""
        for slot, i, before in self.situations.burning[situation]:
            age = time - since[i]
            form = RAW if age < self._cooking else GRILLED if age < self._spoilt else BURNT
            if form != before:
                situation = self.situations.in_form(situation, slot, form)
        return situation

    def settled(self, spot: Spot) -> tuple[Spot, tuple[int, ...]]:
        """Returns a spot with the forms of food up to date, and the age of each food that changes with time."""
        cell, situation, served, since, time = spot
        burning = self.situations.burning
        if not burning[situation]:
            return spot, ()
        situation = self.aged(situation, since, time)
        return (cell, situation, served, since, time), tuple([time - since[i] for _, i, _ in burning[situation]])

    def perform(self, spot: Spot, number: int) -> Spot:
        """Returns the spot after a whole use of a station; the forms of food on stoves may be out of date."""
        cell, situation, served, since, time = spot
        steps, cell = self.walks[number][cell]
        time += steps
        situations, kind = self.situations, self._kinds[number]
        if kind != STOVE:
            if kind == HATCH:
                order = self.service.order_for(situations.things[situation][0], served)
                if order < 0:
                    return cell, situation, served, since, time
                served |= 1 << order
            situation, cuts = situations.uses[number].get(situation) or situations.use(situation, number)
            return cell, situation, served, since, time + cuts
        slot = self._stations[number].slot
        stove = slot - self._boards
        before = situations.things[situation][1][slot]
        if before >= 0:
            situation = self.aged(situation, since, time - 1)
            hand, slots, _ = situations.things[situation]
            if is_raw(slots[slot]) and (hand == NOTHING or hand >= BOWL):
                time = since[stove] + self._cooking + 1
                situation = self.aged(situation, since, time - 1)
        situation, _ = situations.uses[number].get(situation) or situations.use(situation, number)
        after = situations.things[situation][1][slot]
        if after == NOTHING != before:
            since = (*since[:stove], 0, *since[stove + 1 :])
        elif before == NOTHING != after:
            since = (*since[:stove], time - 1, *since[stove + 1 :])
        return cell, situation, served, since, time

    def changes_by(self, spot: Spot) -> bool:
        """Tests whether the orders have changed at a spot."""
        change = self.service.change
        return change is not None and spot[4] >= change.time and not spot[2] >> change.order & 1

    def at(self, spot: Spot) -> Play:
        """Returns the play with the orders as they stand at a spot."""
        return self._changed if self._changed is not None and self.changes_by(spot) else self

    def is_interrupted(self, before: Spot, after: Spot) -> bool:
        """Tests whether the orders change on the way from a spot to another one."""
        change = self.service.change
        return change is not None and after[4] > change.time and not before[2] >> change.order & 1

    def until_change(self, spot: Spot, number: int) -> Spot:
        """Returns the spot at the change of the orders, during a whole use of station `number`."""
        return self.spot(self.service.until_change(self.state(spot), number))

    def misses(self, before: int, after: int, time: int) -> bool:
        """Tests whether an order has expired by a time, or was served too late by the use of a station until then.

        `before` and `after` are the orders served before and after the use.
        """
        now = after & ~before
        for deadline, i in self.service.urgency:
            if now >> i & 1:
                if deadline < time:
                    return True
            elif deadline > time:
                return False
            elif not after >> i & 1:
                return True
        return False
