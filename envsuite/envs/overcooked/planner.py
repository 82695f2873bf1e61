"""Exact planner: an A* search over macro-actions for the fewest commands that serve the order.

Among plans with equally many commands it prefers fewer primitive steps, considering only macro-actions that change
something. (A walk without another effect could save primitive steps where a thing is accessible from several sides, but
never a command.) The plan is exact for a single cook without slips; other cooks are assumed to stand still.
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

COMMAND = 1 << 16  # cost of a command; a primitive step costs 1 in addition, to break ties
SEARCH_LIMIT = 200_000  # expanded states before a search fails


class Plan(NamedTuple):
    """Length and first macro-action of a shortest plan."""

    commands: int
    steps: int
    first: Macro | None
    """None if the order has been served"""


class Planner:
    """Plans for one cook in one kitchen and recipe; caches every state on a plan, so that following it is free."""

    def __init__(self, sim: Simulation, macros: Sequence[Macro], cook: int = 0) -> None:
        """`sim` provides kitchen, recipe and view radius; it is not modified."""
        self.cook, self.macros = cook, macros
        kitchen = sim.kitchen
        self.sim = Simulation(kitchen, (kitchen.foods[food] for food in sim.recipe), sim.rewards, sim.radius)
        self.solved: dict[State, tuple[int, Macro | None] | None] = {}
        self.opened = 0
        self._between: dict[tuple[int, int], int] = {}

    def plan(self, state: State) -> Plan | None:
        """Returns the shortest plan from a state, or None if the order can no longer be served.

        Raises EngineFailure if the search expands more than SEARCH_LIMIT states.
        """
        key = self._key(state)
        if key not in self.solved:
            self._search(key)
        solution = self.solved[key]
        if solution is None:
            return None
        cost, first = solution
        return Plan(cost // COMMAND, cost % COMMAND, first)

    def _key(self, state: State) -> State:
        """Returns the state with sorted bowl contents, since the filling order does not matter."""
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
            _, _, cost_so_far, state, final = heapq.heappop(heap)
            if final:
                self._store_path(start, state, parent)
                return
            if cost[state] < cost_so_far:
                continue
            if state[-1][0]:
                self.solved[state] = (0, None)
                self._store_path(start, state, parent)
                return
            if state in self.solved:
                solution = self.solved[state]
                if solution is not None:
                    count += 1
                    heapq.heappush(heap, (cost_so_far + solution[0], -count, cost_so_far, state, True))
                continue
            opened += 1
            self.opened += 1
            if opened > SEARCH_LIMIT:
                raise EngineFailure(f"No plan found within {SEARCH_LIMIT} states in kitchen {self.sim.kitchen.name!r}.")
            for macro, steps, next_state, bound in self._branches(state):
                total = cost_so_far + COMMAND + steps
                if total < cost.get(next_state, 1 << 60):
                    cost[next_state] = total
                    parent[next_state] = (state, macro)
                    count += 1
                    heapq.heappush(heap, (total + bound, -count, total, next_state, False))
        self.solved.update(dict.fromkeys(cost))  # everything reachable from here, none of which serves the order

    def _branches(self, state: State) -> list[tuple[Macro, int, State, int]]:
        """Returns (macro, primitive steps, next state, lower bound from there) of each useful macro-action."""
        sim, cook = self.sim, self.cook
        sim.load(state)
        useful = [macro for macro in self.macros if self._useful(macro)]
        branches = []
        for macro in useful:
            sim.load(state)
            sim.begin(cook, macro)
            steps = sim.fast_forward()
            while sim.macro[cook] is not None:
                sim.tick()
                steps += 1
            branches.append((macro, steps, self._key(sim.save()), self._bound()))
        return branches

    def _useful(self, macro: Macro) -> bool:
        """Returns True if a macro-action achieves something and does not fetch a food that the recipe does not need."""
        sim = self.sim
        if macro.verb == GET_FOOD and macro.which not in sim.recipe:
            home = sim.kitchen.homes[macro.which]
            if sim.lying[home] == macro.which and not sim.chops[macro.which]:
                return False
        return helps(sim, self.cook, macro)

    def _store_path(self, start: State, end: State, parent: dict[State, tuple[State, Macro]]) -> None:
        """Stores the cost of every state on the path from `start` to `end`, whose cost is known."""
        solution = self.solved[end]
        assert solution is not None
        cost, state = solution[0], end
        while state != start:
            before, macro = parent[state]
            self.sim.load(before)
            self.sim.begin(self.cook, macro)
            cost += COMMAND + self.sim.fast_forward()
            while self.sim.macro[self.cook] is not None:
                self.sim.tick()
                cost += 1
            self.solved[before] = (cost, macro)
            state = before

    # ---- the lower bound -------------------------------------------------------------------------------------------

    def _walk(self, here: int, there: int) -> int:
        """Returns the moves from a cell adjacent to `here` to a cell adjacent to `there`."""
        moves = self._between.get((here, there))
        if moves is None:
            steps = self.sim.kitchen.way(there).steps
            around = self.sim.kitchen.way(here).steps
            beside = [steps[cell] for cell in self.sim.kitchen.floor if around[cell] == 1]
            moves = self._between[here, there] = min(beside, default=UNREACHABLE) - 1
        return moves

    def _bound(self) -> int:
        """Returns a lower bound on the cost of serving the order from the current state of `self.sim`.

        Commands: each food must be fetched, put on a board, chopped and added to the bowl, which must be fetched and
        delivered. A hand that holds something else must be emptied. If there are too few boards, food on them must be
        moved and fetched again. Primitive steps: one per interaction, three per chopping, and the walks (`_walks`).
        """
        sim = self.sim
        if sim.delivered:
            return 0
        kind, n_foods = sim.kitchen.kind, sim.n_foods
        hand = sim.hand[self.cook]
        commands, acts = 1, 1  # deliver the dish
        raw_elsewhere: list[int] = []  # cells of raw foods that are not on boards
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
                raw_elsewhere.append(where)
        joins = acts > 1
        with_bowl, with_food = hand >= n_foods, 0 <= hand < n_foods
        raw = bool(raw_elsewhere or on_boards or raw_in_hand)
        chopped_in_hand = with_food and hand in sim.recipe and not raw_in_hand
        bowls = [sim.place[n_foods + bowl] for bowl in range(len(sim.contents))]
        if not with_bowl:
            commands += not (chopped_in_hand and not raw)  # otherwise adding the food also picks up the bowl
            acts += not (joins and any(kind[cell] == BOARD for cell in bowls))
        if with_bowl and raw:
            commands += 2
            acts += 1
        elif with_food and not raw_in_hand and (raw or not chopped_in_hand):
            commands += 1
            acts += not chopped_in_hand
        if raw:
            boards = sim.kitchen.boards
            short = len(raw_elsewhere) + raw_in_hand - sum(sim.lying[board] < 0 for board in boards)
            if short > 0:
                rounds = -(-short // len(boards)) - (
                    hand >= 0 and not raw_in_hand
                )  # one round coincides with emptying the hand
                commands += 2 * max(0, rounds)
        return COMMAND * commands + max(0, acts + self._walks(raw_elsewhere, on_boards, chopped, raw_in_hand, bowls))

    def _walks(
        self, raw_elsewhere: list[int], on_boards: list[int], chopped: list[int], raw_in_hand: bool, bowls: list[int]
    ) -> int:
        """Returns a lower bound on the moves of any plan.

        With raw food left: from here to each raw food, from there to a board, between boards, and to the delivery. With
        everything chopped: to the bowl or to any food outside it, and from there to the delivery.
        """
        kitchen, boards = self.sim.kitchen, self.sim.kitchen.boards
        here = self.sim.cell[self.cook]

        def away(cell: int) -> int:
            return kitchen.way(cell).steps[here] - 1

        def to_end(cell: int) -> int:
            return min(self._walk(cell, end) for end in kitchen.deliveries)

        if not (raw_elsewhere or on_boards or raw_in_hand):
            by = [away(cell) + to_end(cell) for cell in chopped]
            if self.sim.hand[self.cook] >= self.sim.n_foods:
                return max([min(map(away, kitchen.deliveries)), *by])
            return max([min(away(cell) + to_end(cell) for cell in bowls), *by])
        out = [min(self._walk(board, cell) for board in boards) for cell in raw_elsewhere]
        walks = sum(out) + sum(min(self._walk(cell, board) for board in boards) for cell in raw_elsewhere)
        if raw_in_hand:
            walks += min(map(away, boards))
        elif raw_elsewhere:
            walks += min(
                [*(away(cell) - back for cell, back in zip(raw_elsewhere, out, strict=True)), *map(away, on_boards)]
            )
        else:
            walks += max(map(away, on_boards))
        return walks + min(map(to_end, boards))
