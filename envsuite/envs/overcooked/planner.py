"""The exact planner: the fewest commands that serve the order, by A* over macro-actions.

Among plans of equally many commands it takes one of fewest primitive steps, over macro-actions that get something done;
where things can be reached from several sides, a walk for its own sake could still save steps, though never a command.
Exact for a lone cook and dynamics without slips; other cooks are taken to stand where they are.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from envsuite.envs.overcooked.engine import GET_FOOD, Macro, Simulation
from envsuite.envs.overcooked.kitchen import BOARD, UNREACHABLE
from envsuite.envs.overcooked.motion import CHOPS, State
from envsuite.envs.overcooked.offers import helps
from envsuite.errors import EngineFailure

COMMAND = 1 << 16  # the cost of a command; a primitive step costs 1 on top, to break ties
SEARCH_LIMIT = 200_000  # states opened before a search is given up


class Plan(NamedTuple):
    """The rest of a shortest solution."""

    commands: int
    steps: int
    first: Macro | None
    """None where nothing remains"""


class Planner:
    """Plans for one cook of one kitchen and recipe. What is found is kept, so that following a plan costs nothing."""

    def __init__(self, sim: Simulation, macros: Sequence[Macro], cook: int = 0) -> None:
        """`sim` is only read, for its kitchen, recipe and window."""
        self.cook, self.macros = cook, macros
        kitchen = sim.kitchen
        self.sim = Simulation(kitchen, (kitchen.foods[food] for food in sim.recipe), sim.rewards, sim.radius)
        self.known: dict[State, tuple[int, Macro | None] | None] = {}
        self.opened = 0
        self._between: dict[tuple[int, int], int] = {}

    def plan(self, state: State) -> Plan | None:
        """The shortest plan from a state; None where the order can no longer be served. Raises EngineFailure beyond
        SEARCH_LIMIT."""
        key = self._key(state)
        if key not in self.known:
            self._search(key)
        found = self.known[key]
        if found is None:
            return None
        cost, first = found
        return Plan(cost // COMMAND, cost % COMMAND, first)

    def _key(self, state: State) -> State:
        """The order in which a bowl was filled makes no difference."""
        cooks, place, chops, *contents, delivered = state
        return cooks, place, chops, *(tuple(sorted(foods)) for foods in contents), delivered

    def _search(self, start: State) -> None:
        cost = {start: 0}
        parent: dict[State, tuple[State, Macro]] = {}
        self.sim.load(start)
        heap: list[tuple[int, int, int, State, bool]] = [(self._bound(), 0, 0, start, False)]
        count = 0
        opened = 0
        while heap:
            _, _, so_far, state, final = heapq.heappop(heap)
            if final:
                self._keep(start, state, parent)
                return
            if cost[state] < so_far:
                continue
            if state[-1][0]:
                self.known[state] = (0, None)
                self._keep(start, state, parent)
                return
            if state in self.known:
                rest = self.known[state]
                if rest is not None:
                    count += 1
                    heapq.heappush(heap, (so_far + rest[0], -count, so_far, state, True))
                continue
            opened += 1
            self.opened += 1
            if opened > SEARCH_LIMIT:
                raise EngineFailure(f"No plan found within {SEARCH_LIMIT} states in kitchen {self.sim.kitchen.name!r}.")
            for macro, steps, next_state, bound in self._branches(state):
                total = so_far + COMMAND + steps
                if total < cost.get(next_state, 1 << 60):
                    cost[next_state] = total
                    parent[next_state] = (state, macro)
                    count += 1
                    heapq.heappush(heap, (total + bound, -count, total, next_state, False))
        self.known.update(dict.fromkeys(cost))  # all that can be reached from here, and none of it solves

    def _branches(self, state: State) -> list[tuple[Macro, int, State, int]]:
        """(macro, primitive steps, state after, bound from there) of each macro-action that gets something done."""
        sim, cook = self.sim, self.cook
        sim.load(state)
        worthwhile = [macro for macro in self.macros if self._worthwhile(macro)]
        found = []
        for macro in worthwhile:
            sim.load(state)
            sim.begin(cook, macro)
            steps = sim.hasten()
            while sim.macro[cook] is not None:
                sim.tick()
                steps += 1
            found.append((macro, steps, self._key(sim.save()), self._bound()))
        return found

    def _worthwhile(self, macro: Macro) -> bool:
        """Getting something done, and not fetching from its place a food that the recipe does without."""
        sim = self.sim
        if macro.verb == GET_FOOD and macro.which not in sim.recipe:
            home = sim.kitchen.homes[macro.which]
            if sim.lying[home] == macro.which and not sim.chops[macro.which]:
                return False
        return helps(sim, self.cook, macro)

    def _keep(self, start: State, end: State, parent: dict[State, tuple[State, Macro]]) -> None:
        """Notes the cost of every state on the solution from `start` to `end`, whose own is known."""
        rest = self.known[end]
        assert rest is not None
        cost, state = rest[0], end
        while state != start:
            before, macro = parent[state]
            self.sim.load(before)
            self.sim.begin(self.cook, macro)
            cost += COMMAND + self.sim.hasten()
            while self.sim.macro[self.cook] is not None:
                self.sim.tick()
                cost += 1
            self.known[before] = (cost, macro)
            state = before

    # ---- the lower bound -------------------------------------------------------------------------------------------

    def _walk(self, here: int, there: int) -> int:
        """Moves from next to one cell to next to another."""
        found = self._between.get((here, there))
        if found is None:
            steps = self.sim.kitchen.way(there).steps
            around = self.sim.kitchen.way(here).steps
            beside = [steps[cell] for cell in self.sim.kitchen.floor if around[cell] == 1]
            found = self._between[here, there] = min(beside, default=UNREACHABLE) - 1
        return found

    def _bound(self) -> int:
        """A lower bound on the cost of serving the order from the present state of `self.sim`.

        Commands: each food must be fetched, put on a board, chopped and joined to the bowl, which must be fetched and
        handed in; a hand that is in the way is emptied; where boards are too few, what stands on them goes somewhere and is
        fetched again. Primitive steps: as many acts, three for chopping, and the walks between (see `_walks`).
        """
        sim = self.sim
        if sim.delivered:
            return 0
        kind, n_foods = sim.kitchen.kind, sim.n_foods
        hand = sim.hand[self.cook]
        commands, acts = 1, 1  # to hand in the dish
        apart: list[int] = []  # where raw foods lie that are not on boards
        on_boards: list[int] = []
        chopped: list[int] = []
        raw_in_hand = False
        for food in sim.recipe:
            if sim.bowl_of[food] >= 0:
                continue
            commands += 1
            acts += 1
            where = sim.place[food]
            if sim.chops[food] >= CHOPS:
                if food != hand:
                    chopped.append(where)
                continue
            commands += 1
            acts += CHOPS - sim.chops[food]
            if food == hand:
                raw_in_hand = True
                commands += 1
                acts += 1
            elif kind[where] == BOARD:
                on_boards.append(where)
            else:
                commands += 2
                acts += 2
                apart.append(where)
        joins = acts > 1
        with_bowl, with_food = hand >= n_foods, 0 <= hand < n_foods
        raw = bool(apart or on_boards or raw_in_hand)
        chopped_in_hand = with_food and hand in sim.recipe and not raw_in_hand
        bowls = [sim.place[n_foods + bowl] for bowl in range(len(sim.contents))]
        if not with_bowl:
            commands += not (chopped_in_hand and not raw)  # else joining takes the bowl along
            acts += not (joins and any(kind[cell] == BOARD for cell in bowls))
        if with_bowl and raw:
            commands += 2
            acts += 1
        elif with_food and not raw_in_hand and (raw or not chopped_in_hand):
            commands += 1
            acts += not chopped_in_hand
        if raw:
            boards = sim.kitchen.boards
            short = len(apart) + raw_in_hand - sum(sim.lying[board] < 0 for board in boards)
            if short > 0:
                rounds = -(-short // len(boards)) - (hand >= 0 and not raw_in_hand)  # one goes with what is held
                commands += 2 * max(0, rounds)
        return COMMAND * commands + max(0, acts + self._walks(apart, on_boards, chopped, raw_in_hand, bowls))

    def _walks(
        self, apart: list[int], on_boards: list[int], chopped: list[int], raw_in_hand: bool, bowls: list[int]
    ) -> int:
        """Moves that any solution makes: from here to each raw food, from there to a board, from a board to the next, and
        at last to the delivery; with all chopped, to the bowl or any food out of it, and from there to the delivery."""
        kitchen, boards = self.sim.kitchen, self.sim.kitchen.boards
        here = self.sim.cell[self.cook]
        away = lambda cell: kitchen.way(cell).steps[here] - 1
        to_end = lambda cell: min(self._walk(cell, end) for end in kitchen.deliveries)
        if not (apart or on_boards or raw_in_hand):
            by = [away(cell) + to_end(cell) for cell in chopped]
            if self.sim.hand[self.cook] >= self.sim.n_foods:
                return max([min(map(away, kitchen.deliveries)), *by])
            return max([min(away(cell) + to_end(cell) for cell in bowls), *by])
        out = [min(self._walk(board, cell) for board in boards) for cell in apart]
        walks = sum(out) + sum(min(self._walk(cell, board) for board in boards) for cell in apart)
        if raw_in_hand:
            walks += min(map(away, boards))
        elif apart:
            walks += min([*(away(cell) - back for cell, back in zip(apart, out)), *map(away, on_boards)])
        else:
            walks += max(map(away, on_boards))
        return walks + min(map(to_end, boards))
