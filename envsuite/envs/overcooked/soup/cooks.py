"""Scripted cooks of Overcooked-AI: errands for both cooks, and moves that keep them out of each other's way.

An errand is a cell to use next. `Crew.actions` gives each cook an errand that follows from the state, and then chooses
both actions together: the cook with the more urgent errand goes first, and the other one makes way. The expert of one
cook plays its part of these joint actions, so two experts agree without talking.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from envsuite.envs.overcooked.soup.engine import DISH, IDLE, MOST_ONIONS, NOTHING, ONION, SOUP, SoupKitchen, SoupState
from envsuite.envs.overcooked.soup.layout import (
    COOKS,
    DISHES,
    FLOOR,
    INTERACT,
    ONIONS,
    STAY,
    WINDOW,
    SoupLayout,
)

FAR = 1_000
FEEDERS = {"counter_circuit": 0}
"""layout -> cook that only lays onions and dishes on counters for the other cook"""


class Errand(NamedTuple):
    """Next use of a cell by a cook; `cell` is -1 for a cook that has nothing to do."""

    cell: int
    urgency: int
    now: bool = True
    """False if the cook waits there and does not interact yet"""


NO_ERRAND = Errand(-1, 0, False)


class Roads:
    """Numbers of actions until a cook faces an adjacent target, by target, cell and direction."""

    def __init__(self, layout: SoupLayout) -> None:
        self.layout = layout
        self.steps = {target: self._steps_to(target) for target in layout.access}

    def _steps_to(self, target: int) -> dict[tuple[int, int], int]:
        layout = self.layout
        before: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for cell in layout.floor:
            for facing in range(STAY):
                for action in range(STAY):
                    ahead = cell + layout.delta[action]
                    after = (ahead if layout.kind[ahead] == FLOOR else cell), action
                    before.setdefault(after, []).append((cell, facing))
        steps = dict.fromkeys(layout.access[target], 0)
        border = list(steps)
        while border:
            following = []
            for after in border:
                for pose in before.get(after, ()):
                    if pose not in steps:
                        steps[pose] = steps[after] + 1
                        following.append(pose)
            border = following
        return steps

    def distance(self, pose: tuple[int, int], target: int) -> int:
        """Returns the number of actions until a cook in a pose faces the target; FAR if it never can."""
        return self.steps[target].get(pose, FAR) if target in self.steps else FAR


@lru_cache
def roads(layout: SoupLayout) -> Roads:
    """Returns the roads of a layout."""
    return Roads(layout)


class Crew:
    """Chooses the actions of both cooks."""

    def __init__(self, kitchen: SoupKitchen, alone: bool = False) -> None:
        self.kitchen, self.layout = kitchen, kitchen.layout
        self.roads = roads(kitchen.layout)
        self.feeder = -1 if alone else FEEDERS.get(kitchen.layout.name, -1)
        self._decided: dict[SoupState, tuple[int, ...]] = {}

    def actions(self, state: SoupState) -> tuple[int, ...]:
        """Returns the actions of both cooks."""
        key = state._replace(time=0)
        if key not in self._decided:
            if len(self._decided) > 10_000:
                self._decided.clear()
            self._decided[key] = self._moves(state, self.errands(state))
        return self._decided[key]

    # ---- errands -----------------------------------------------------------------------------------------------------

    def errands(self, state: SoupState) -> list[Errand]:
        """Returns the errands of both cooks. They choose one after the other, in the order that costs fewer steps."""
        plans = []
        for order in ((0, 1), (1, 0)):
            errands = [NO_ERRAND] * COOKS
            for cook in order:
                errands[cook] = self._errand(state, cook, errands[1 - cook])
            cost = sum(self._cost(state, cook, errand.cell) for cook, errand in enumerate(errands) if errand.urgency)
            plans.append((-sum(errand.urgency > 0 for errand in errands), cost, errands))
        return min(plans, key=lambda plan: plan[:2])[2]

    def _cost(self, state: SoupState, cook: int, cell: int) -> int:
        return self.roads.distance((state.cells[cook], state.facing[cook]), cell)

    def _nearest(self, state: SoupState, cook: int, cells: list[int]) -> int:
        """Returns the cell that a cook can use soonest, or -1."""
        cost, cell = min(((self._cost(state, cook, cell), cell) for cell in cells), default=(FAR, -1))
        return cell if cost < FAR else -1

    def _pots(self, state: SoupState, cook: int) -> dict[int, tuple[int, int]]:
        """Returns the pots that a cook works at."""
        if cook == self.feeder:
            return {}
        layout = self.layout
        return {cell: state.pots[layout.slot[cell]] for cell in layout.pots if self._cost(state, cook, cell) < FAR}

    def _errand(self, state: SoupState, cook: int, partner_errand: Errand) -> Errand:
        """Returns the next errand of a cook; the partner's errand is NO_ERRAND if it chooses later."""
        held = state.hands[cook]
        pots = self._pots(state, cook)
        if held > SOUP:
            return self._serve(state, cook)
        if not pots and held != NOTHING:
            return self._hand_over(state, cook)
        if held == DISH:
            return self._plate(state, cook, pots, partner_errand)
        if held == ONION:
            return self._fill(state, cook, pots, partner_errand)
        return self._fetch(state, cook, pots, partner_errand)

    def _serve(self, state: SoupState, cook: int) -> Errand:
        window = self._nearest(state, cook, self.layout.cells(WINDOW))
        return Errand(window, 9) if window >= 0 else self._hand_over(state, cook)

    def _bare(self, state: SoupState, cook: int, shared: bool) -> list[int]:
        """Returns empty counters, with `shared` only the ones within reach of both cooks."""
        layout = self.layout
        cells = [cell for cell in layout.counters if state.counters[layout.slot[cell]] == NOTHING]
        return [cell for cell in cells if not shared or self._passes(state, cell)]

    def _passes(self, state: SoupState, cell: int) -> bool:
        """Returns True if things can be handed over at a counter: from two sides, or between two rooms."""
        layout = self.layout
        rooms = layout.distances
        sides = [side for side, _ in layout.access.get(cell, ())]
        if self.feeder >= 0:
            return len(sides) > 1 and abs(sides[0] - sides[1]) == 2 * layout.columns
        return all(any(side in rooms[here] for side in sides) for here in state.cells)

    def _hand_over(self, state: SoupState, cook: int) -> Errand:
        cells = self._bare(state, cook, True)
        costs = [
            (self._cost(state, cook, cell) + self._cost(state, 1 - cook, cell) / 8, cell)
            for cell in cells
            if self._cost(state, cook, cell) < FAR
        ]
        return Errand(min(costs)[1], 6) if costs else NO_ERRAND

    def _drop(self, state: SoupState, cook: int) -> Errand:
        cell = self._nearest(state, cook, self._bare(state, cook, False))
        return Errand(cell, 2) if cell >= 0 else NO_ERRAND

    def _plate(self, state: SoupState, cook: int, pots: dict[int, tuple[int, int]], partner_errand: Errand) -> Errand:
        """Returns the errand of a cook with a dish: the soup that it can take first."""
        taken = partner_errand.cell if state.hands[1 - cook] == DISH else -1
        waits = []
        for cell, (onions, clock) in pots.items():
            if cell != taken and (clock != IDLE or onions == MOST_ONIONS):
                left = self.kitchen.cook_time - clock
                cost = self._cost(state, cook, cell)
                waits.append((max(cost, left), cell, left <= 0, left <= cost + 1))
        if not waits:
            filling = any(onions > 0 for onions, _ in pots.values()) and state.hands[1 - cook] == ONION
            if filling and taken < 0:
                cell = self._nearest(state, cook, [cell for cell, (onions, _) in pots.items() if onions])
                return Errand(cell, 1, False)
            return self._drop(state, cook)
        _, cell, ready, soon = min(waits)
        if state.pots[self.layout.slot[cell]] == (MOST_ONIONS, IDLE):
            return self._drop(state, cook) if state.hands[1 - cook] != NOTHING else Errand(cell, 1, False)
        return Errand(cell, 8 if soon else 1, ready)

    def _fill(self, state: SoupState, cook: int, pots: dict[int, tuple[int, int]], partner_errand: Errand) -> Errand:
        """Returns the errand of a cook with an onion: the fullest pot that needs it, or a pot that will."""
        layout, partner = self.layout, state.hands[1 - cook]
        waiting = []
        for cell, (onions, clock) in pots.items():
            coming = int(partner == ONION and partner_errand.cell == cell)
            if clock == IDLE and onions + coming < MOST_ONIONS:
                waiting.append((-onions, self._cost(state, cook, cell), cell))
        if waiting:
            return Errand(min(waiting)[2], 5)
        unserved = [cell for cell, (onions, clock) in pots.items() if clock != IDLE or onions == MOST_ONIONS]
        full = [cell for cell in unserved if state.pots[layout.slot[cell]][1] == IDLE]
        if (full and partner != NOTHING) or (partner == ONION and DISH not in state.counters):
            return self._drop(state, cook)
        busy = [(-state.pots[layout.slot[cell]][1], cell) for cell in unserved]
        return Errand(min(busy)[1], 1, False) if busy else self._drop(state, cook)

    def _fetch(self, state: SoupState, cook: int, pots: dict[int, tuple[int, int]], partner_errand: Errand) -> Errand:
        """Returns the errand of a cook with empty hands: start a pot, or fetch a dish or an onion."""
        layout = self.layout
        full = [cell for cell, pot in pots.items() if pot == (MOST_ONIONS, IDLE) and cell != partner_errand.cell]
        if full and not self.kitchen.automatic:
            return Errand(self._nearest(state, cook, full), 7)
        laid: dict[int, list[int]] = {}
        for cell in layout.counters:
            thing = state.counters[layout.slot[cell]]
            if thing != NOTHING and cell != partner_errand.cell and (pots or not self._passes(state, cell)):
                laid.setdefault(min(thing, SOUP + 1), []).append(cell)
        if pots and SOUP + 1 in laid:
            soup = self._nearest(state, cook, laid[SOUP + 1])
            if soup >= 0:
                return Errand(soup, 8)
        feeding = not pots
        partner = state.hands[1 - cook]
        offered = [state.counters[layout.slot[cell]] for cell in layout.counters if self._passes(state, cell)]
        dishes = (partner == DISH) + (partner_errand.urgency == 4) + (offered.count(DISH) if feeding else 0)
        onions = (partner == ONION) + (partner_errand.urgency == 3) + (offered.count(ONION) if feeding else 0)
        started = sum(clock != IDLE or held == MOST_ONIONS for held, clock in state.pots)
        room = sum(MOST_ONIONS - held for held, clock in state.pots if clock == IDLE)
        spare = MOST_ONIONS if feeding else 1
        wishes = []
        if started > dishes:
            wishes.append((DISH, 4))
        if room + (spare if started else 0) > onions:
            wishes.append((ONION, 3))
        if feeding and wishes and wishes[0][0] == DISH and onions < min(room, 2):
            wishes.reverse()
        for thing, urgency in wishes:
            crates = layout.cells(ONIONS if thing == ONION else DISHES)
            own = self.feeder < 0 or feeding
            cell = self._nearest(state, cook, laid.get(thing, []) + (crates if own else []))
            if cell >= 0:
                return Errand(cell, urgency)
        return NO_ERRAND

    # ---- moves -----------------------------------------------------------------------------------------------------

    def _moves(self, state: SoupState, errands: list[Errand]) -> tuple[int, ...]:
        """Returns both actions: the urgent cook gets nearer to its errand, and the other one does what is left."""
        costs = [self._cost(state, cook, errand.cell) if errand.cell >= 0 else 0 for cook, errand in enumerate(errands)]
        first = min(range(COOKS), key=lambda cook: (-errands[cook].urgency, costs[cook], cook))
        best: tuple[tuple[int, int, int], tuple[int, ...]] | None = None
        choices = [self._choices(state, cook, errands[cook], costs[cook]) for cook in range(COOKS)]
        for first_action in choices[0]:
            for second_action in choices[1]:
                cells, facing = self.kitchen.move(state, (first_action, second_action))
                after = [
                    self._after(errand, (cells[cook], facing[cook]), action)
                    for cook, (errand, action) in enumerate(zip(errands, (first_action, second_action), strict=True))
                ]
                quiet = (first_action != STAY) + (second_action != STAY)
                value = after[first], after[1 - first], quiet
                if best is None or value < best[0]:
                    best = value, (first_action, second_action)
        assert best is not None
        if errands[first].cell >= 0 and costs[first] > 0 and best[0][0] >= costs[first]:
            return self._search(state, errands[first].cell, first) or best[1]
        return best[1]

    def _choices(self, state: SoupState, cook: int, errand: Errand, cost: int) -> tuple[int, ...]:
        if errand.now and errand.cell >= 0 and cost == 0:
            return (INTERACT,)
        return tuple(range(STAY + 1))

    def _after(self, errand: Errand, pose: tuple[int, int], action: int) -> int:
        if errand.cell < 0:
            return 0
        return -1 if action == INTERACT else self.roads.distance(pose, errand.cell)

    def _search(self, state: SoupState, target: int, first: int) -> tuple[int, ...] | None:
        """Returns the first joint action of the shortest joint way on which one cook reaches its target."""
        known: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
        border: list[SoupState] = [state]
        while border:
            following = []
            for place in border:
                way = known.get((place.cells, place.facing[first]))
                for first_action in range(STAY + 1):
                    for second_action in range(STAY + 1):
                        cells, facing = self.kitchen.move(place, (first_action, second_action))
                        key = cells, facing[first]
                        if key in known:
                            continue
                        known[key] = way or (first_action, second_action)
                        if self.roads.distance((cells[first], facing[first]), target) == 0:
                            return known[key]
                        following.append(place._replace(cells=cells, facing=facing))
            border = following
        return None
