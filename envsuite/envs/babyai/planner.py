"""Plans on the whole state: A* over the model, exact for the local levels, good and quick for the others.

The bound under a state adds up what must still be done on a board without loose objects: walk up to the target (with
turns), pick up, carry, drop, fetch the key of a locked door that is in the way. In exact mode nothing is counted that
could be avoided, so that the plan is the shortest of all; otherwise the bound is weighted, and doors and locks count.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from envsuite.envs.babyai.model import (
    ACTIONS,
    BOXED,
    GONE,
    HAND,
    LOCKED,
    NONE,
    OPEN,
    TOGGLE,
    Board,
    Clause,
    State,
)

LOCK = 10_000  # steps that going through a locked door stands for while routes are looked for
LOCK_WORTH = 6  # and what it adds to the bound, the way to its key apart
FAR = 1_000_000
EFFORTS = ((3.0, 3_000), (8.0, 10_000), (1.5, 15_000))  # (weight of the bound, states expanded), one after the other
EXACT = ((1.0, 100_000),)
ARRIVED = -1  # the stage of a state of success


class Routes(NamedTuple):
    """From each pose (cell * 4 + heading): steps until one of the goal cells is in front, and the first lock met."""

    steps: list[int]
    lock: list[int]


class Planner:
    """Plans for one episode; remembers its plan for as long as the player keeps to it."""

    def __init__(self, board: Board, exact: bool) -> None:
        self.board, self.exact = board, exact
        self._routes: dict[tuple[frozenset[int], tuple[bool, ...]], Routes] = {}
        self._between: dict[tuple[int, frozenset[int], tuple[bool, ...]], int] = {}
        self._plan: dict[State, tuple[int, int]] = {}  # state -> (action, actions left)

    def advice(self, state: State) -> tuple[int, int] | None:
        """(next action, actions left) from a state; None where the mission is lost or no plan was found."""
        if state not in self._plan:
            plan = None if self.board.lost(state) else self.search(state)
            if plan is None:
                return None
            self._plan = {}
            for done, action in enumerate(plan):
                self._plan[state] = action, len(plan) - done
                state, _ = self.board.step(state, action)
            return self._plan[next(iter(self._plan))]
        return self._plan[state]

    def search(self, start: State) -> list[int] | None:
        """The actions to success: at once in exact mode, otherwise clause by clause."""
        actions: list[int] = []
        state, status = start, "continue"
        while status != "success":
            leg = next(
                filter(None, (self._a_star(state, *effort) for effort in (EXACT if self.exact else EFFORTS))), None
            )
            if leg is None:
                return None
            for action in leg:
                state, status = self.board.step(state, action)
            actions += leg
        return actions

    def _a_star(self, start: State, weight: float, budget: int) -> list[int] | None:
        """The actions to success, or, unless exact, to the next clause done."""
        order = count()
        costs, came = {start: 0}, {start: (start, -1)}
        heap = [(weight * self.bound(start), 0, next(order), start)]
        closed = set()
        first = sorted(ACTIONS, key=lambda action: not self.board.applicable(start, action))
        while heap and budget:
            _, _, _, state = heapq.heappop(heap)
            if state in closed:
                continue
            closed.add(state)
            budget -= 1
            if self._arrived(start, state):
                actions = []
                while state is not start:
                    state, action = came[state]
                    actions.append(action)
                return actions[::-1]
            cost = costs[state] + 1
            for action in first if state is start else ACTIONS:
                # An action without effect can matter only at the start: whoever faces a target has been judged since.
                if state is not start and not self._worth_trying(state, action):
                    continue
                after, status = self.board.step(state, action)
                if status == "failure":
                    continue
                if status == "success":
                    after = after._replace(stage=ARRIVED)
                if cost < costs.get(after, FAR):
                    costs[after], came[after] = cost, (state, action)
                    ahead = 0 if self._arrived(start, after) else self.bound(after)
                    if ahead < FAR:
                        heapq.heappush(heap, (cost + weight * ahead, -cost, next(order), after))
        return None

    def _arrived(self, start: State, state: State) -> bool:
        progress = (state.stage, state.done) != (start.stage, start.done)
        return state.stage == ARRIVED or (progress and not self.exact)

    def _worth_trying(self, state: State, action: int) -> bool:
        board = self.board
        if not board.applicable(state, action):
            return False
        if self.exact or action != TOGGLE:
            return True
        front = state.cell + board.ahead[state.heading]
        door = board.door_at.get(front)
        if door is None:
            return state.where.index(front) in board.content
        return state.doors[door] != OPEN or any(door in clause.doors for clause in board.clauses)

    # ---- the bound --------------------------------------------------------------------------------------------------

    def bound(self, state: State) -> int:
        """Actions that are needed from here at least (in exact mode), or thereabouts; FAR where all is lost."""
        board = self.board
        if not self.exact:
            first = len(board.stages[0]) if state.stage else 0
            stage = board.stages[state.stage]
            return min(self._clause(state, stage[i], first + i) for i, done in enumerate(state.done) if not done)
        number, costs = 0, [0]
        for index, clauses in enumerate(board.stages):
            for i, clause in enumerate(clauses):
                if index > state.stage or (index == state.stage and not state.done[i]):
                    costs.append(self._clause(state, clause, number))
                number += 1
        return max(costs)

    def _clause(self, state: State, clause: Clause, number: int) -> int:
        where, held = state.where, state.held
        if clause.kind == "goto":
            if held in clause.objects:
                return 1  # set down before the player, it has been gone to
            cells = set(state.marks[number]) | {cell for n in clause.objects if (cell := self._cell(state, n)) >= 0}
            return min((self._approach(state, cell) for cell in cells), default=FAR)
        if clause.kind == "pickup":
            if held in clause.objects:
                return 2
            return min((self._fetch(state, n) for n in clause.objects if where[n] != GONE), default=FAR)
        if clause.kind == "open":
            return min(self._open(state, door) for door in clause.doors)
        return self._put(state, clause)

    def _open(self, state: State, door: int) -> int:
        cell = self.board.door_cells[door]
        if state.doors[door] != LOCKED or self.board.key_colors.get(state.held) == self.board.door_colors[door]:
            return self._approach(state, cell) + (2 if state.doors[door] == OPEN else 1)
        return min(
            (
                self._fetch(state, key) + self._carry(state, key, frozenset((cell,))) + 1
                for key in self._keys(state, door)
            ),
            default=FAR,
        )

    def _put(self, state: State, clause: Clause) -> int:
        fixed = [state.where[n] for n in clause.fixed if state.where[n] >= 0]
        fixed += [self.board.door_cells[n] for n in clause.fixed_doors]
        if state.held in clause.objects:
            ways = [min(self._reach(state, self._beside(cell)), self._approach(state, cell)) + 1 for cell in fixed]
            # The fixed one may lie where only the other hand could bring it: then it is fetched, and all begins again.
            return min(ways, default=6)
        movable = [n for n in clause.objects if state.where[n] not in (GONE, HAND)]
        best = FAR
        for n in movable:
            fetch = self._fetch(state, n)
            if state.held in clause.fixed:
                best = min(best, fetch + 1)
            for cell in fixed:
                if cell != self._cell(state, n):
                    best = min(best, fetch + self._carry(state, n, self._beside(cell)) + 1)
            for other in clause.fixed:
                # Or the fixed one is brought to it, and it is picked up and put back.
                if other != n and state.where[other] >= 0 and self._cell(state, n) >= 0:
                    to = self._carry(state, other, self._beside(self._cell(state, n)))
                    best = min(best, self._fetch(state, other) + to + 3)
        return best

    def _fetch(self, state: State, thing: int) -> int:
        """Until it is in hand: walk up to it, empty the hand, open its box, pick it up."""
        cell = self._cell(state, thing)
        if cell < 0:
            return 1 + (state.where[thing] == BOXED)  # its box is in hand
        return self._approach(state, cell) + 1 + (state.held != NONE) + (state.where[thing] == BOXED)

    def _keys(self, state: State, door: int) -> Iterable[int]:
        color = self.board.door_colors[door]
        return (n for n, own in self.board.key_colors.items() if own == color and state.where[n] != GONE)

    def _cell(self, state: State, thing: int) -> int:
        """Where a thing, or the box it is in, lies."""
        while state.where[thing] == BOXED:
            thing = next(box for box, content in self.board.content.items() if content == thing)
        return state.where[thing]

    def _beside(self, cell: int) -> frozenset[int]:
        """Cells next to a cell where something could be dropped."""
        board = self.board
        return frozenset(
            cell + step for step in board.ahead if cell + step not in board.walls and cell + step not in board.door_at
        )

    def _approach(self, state: State, cell: int) -> int:
        return self._reach(state, frozenset((cell,)))

    def _reach(self, state: State, goals: frozenset[int], depth: int = 0) -> int:
        """Steps until one of the goal cells is in front; the way to keys on the way included unless exact."""
        routes = self._routes_to(state, goals)
        pose = state.cell * 4 + state.heading
        steps = routes.steps[pose]
        if steps < LOCK or steps >= FAR or self.exact:
            return steps % LOCK if steps < FAR else FAR
        locks, steps = divmod(steps, LOCK)
        door, board = routes.lock[pose], self.board
        total = steps + locks * LOCK_WORTH
        if board.key_colors.get(state.held) == board.door_colors[door]:
            return total
        if depth > len(board.door_cells):
            return FAR
        keys = [
            self._reach(state, frozenset((cell,)), depth + 1) + 1 + (state.held != NONE) + (state.where[key] == BOXED)
            for key in self._keys(state, door)
            if (cell := self._cell(state, key)) >= 0
        ]
        return min(FAR, total + min(keys, default=FAR))

    def _carry(self, state: State, thing: int, goals: frozenset[int]) -> int:
        """Steps from before the thing until one of the goal cells is in front."""
        cell = self._cell(state, thing)
        if cell < 0:
            return 0
        key = cell, goals, self._locked(state)
        if key not in self._between:
            board, steps = self.board, self._routes_to(state, goals).steps
            self._between[key] = min(
                (
                    steps[(cell - step) * 4 + heading]
                    for heading, step in enumerate(board.ahead)
                    if cell - step not in board.walls
                ),
                default=FAR,
            )
        found = self._between[key]
        if found >= FAR:
            return FAR
        return found % LOCK + (0 if self.exact else found // LOCK * LOCK_WORTH)

    def _locked(self, state: State) -> tuple[bool, ...]:
        return tuple(door == LOCKED for door in state.doors)

    def _routes_to(self, state: State, goals: frozenset[int]) -> Routes:
        key = goals, self._locked(state)
        if key not in self._routes:
            self._routes[key] = self._dijkstra(goals, key[1])
        return self._routes[key]

    def _dijkstra(self, goals: frozenset[int], locked: tuple[bool, ...]) -> Routes:
        board = self.board
        size = board.width * board.height * 4
        steps, lock = [FAR] * size, [-1] * size
        heap = []
        for goal in goals:
            for heading, step in enumerate(board.ahead):
                if 0 <= goal - step < size // 4 and goal - step not in board.walls:
                    pose = (goal - step) * 4 + heading
                    steps[pose] = 0
                    heap.append((0, pose))
        heapq.heapify(heap)
        toll = 0 if self.exact else 1
        while heap:
            cost, pose = heapq.heappop(heap)
            if cost > steps[pose]:
                continue
            cell, heading = divmod(pose, 4)
            behind = cell - board.ahead[heading]
            door = board.door_at.get(cell, -1)
            enter = 1 if door < 0 else 1 + toll + (LOCK if locked[door] and not self.exact else 0)
            moves = [
                (pose - heading + (heading + 1) % 4, 1, lock[pose]),
                (pose - heading + (heading - 1) % 4, 1, lock[pose]),
            ]
            if 0 <= behind < size // 4 and behind not in board.walls:
                moves.append((behind * 4 + heading, enter, door if door >= 0 and locked[door] else lock[pose]))
            for other, price, first in moves:
                if cost + price < steps[other]:
                    steps[other], lock[other] = cost + price, first
                    heapq.heappush(heap, (cost + price, other))
        return Routes(steps, lock)
