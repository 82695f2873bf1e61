"""Plans on the full state: A* over the model, exact for the local levels, fast for the others.

The heuristic adds up what remains to be done on a grid without loose objects: walk to the target
(with turns), pick up, carry, drop, and fetch the key of a locked door on the way. In exact mode it
counts only what cannot be avoided, so plans are shortest. Otherwise the heuristic is weighted and
includes doors and locks.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from envsuite.envs.babyai.model import (
    ACTIONS,
    DESTROYED,
    IN_BOX,
    IN_HAND,
    LOCKED,
    NONE,
    OPEN,
    PICKUP,
    TOGGLE,
    Clause,
    GridModel,
    GridState,
)

LOCK_DISTANCE = 10_000  # distance of a locked door in route searches
BLOCK_COST = 8  # what an object beside a door, in the way, adds to the heuristic
LOCK_COST = 6  # what a lock adds to the heuristic, without the way to its key
UNREACHABLE = 1_000_000


class Effort(NamedTuple):
    """How hard a search tries, and for what."""

    weight: float  # of the heuristic
    states: int  # expanded at most
    needed_only: bool = False  # pick up only keys of locked doors and objects of the mission
    count_blocked: bool = False  # the heuristic counts objects beside doors
    unlocking: bool = False  # open any lock: the heuristic of a clause does not fetch keys for what is carried


EFFORTS = (
    Effort(3.0, 3_000),
    Effort(3.0, 6_000, count_blocked=True),
    Effort(3.0, 6_000, needed_only=True),
    Effort(3.0, 6_000, count_blocked=True, unlocking=True),
    Effort(2.0, 4_000),
    Effort(3.0, 8_000, count_blocked=True),
    Effort(20.0, 6_000, count_blocked=True),
    Effort(6.0, 12_000, count_blocked=True),
)
EXACT_EFFORTS = (Effort(1.0, 100_000),)
ARRIVED = -1  # stage of a successful state


class RouteTable(NamedTuple):
    """For each pose (cell * 4 + heading): steps until a goal cell is in front, and the first lock."""

    steps: list[int]
    lock: list[int]


class GridPlanner:
    """Plans for one episode; keeps its plan while the player follows it."""

    def __init__(self, model: GridModel, exact: bool) -> None:
        self.model, self.exact = model, exact
        self._route_cache: dict[tuple[frozenset[int], tuple[bool, ...], frozenset[int]], RouteTable] = {}
        self._carry_cache: dict[tuple[int, frozenset[int], tuple[bool, ...], frozenset[int]], int] = {}
        self._thresholds = frozenset(cell + step for cell in model.door_cells for step in model.ahead)
        self._effort = EXACT_EFFORTS[0]
        # Where a wrong object in hand ends the game, opening a box, which removes it, is the only way to clear a cell.
        self._may_not_pick_up = any(clause.strict and clause.kind == "pickup" for clause in model.clauses)
        self._blocked: dict[tuple[int, ...], frozenset[int]] = {}
        self._locks: dict[tuple[int, ...], tuple[bool, ...]] = {}
        self._around: dict[int, frozenset[int]] = {}
        self._failed: set[object] = set()
        self._plan: dict[GridState, tuple[int, int]] = {}  # state -> (action, actions left)

    def advice(self, state: GridState) -> tuple[int, int] | None:
        """Returns (next action, actions left); None if the mission is lost or no plan was found.

        A failed search is not repeated until a clause is done or a door changes, because neighbouring
        states are as hard. An exact planner tries every state once.
        """
        if state not in self._plan:
            situation = state if self.exact else (state.stage, state.done, state.doors)
            if situation in self._failed or self.model.is_lost(state):
                return None
            plan = self.search(state)
            if plan is None:
                self._failed.add(situation)
                return None
            self._plan = {}
            for done, action in enumerate(plan):
                self._plan[state] = action, len(plan) - done
                state, _ = self.model.step(state, action)
            return self._plan[next(iter(self._plan))]
        return self._plan[state]

    def forget_failures(self) -> None:
        """Allows searches again where earlier ones failed."""
        self._failed.clear()

    def search(self, start: GridState) -> list[int] | None:
        """Returns the actions to success: in one search if exact, otherwise clause by clause."""
        actions: list[int] = []
        state, status = start, "continue"
        while status != "success":
            efforts = EXACT_EFFORTS if self.exact else EFFORTS
            leg = next(filter(None, (self._a_star(state, effort) for effort in efforts)), None)
            if leg is None:
                return None
            for action in leg:
                state, status = self.model.step(state, action)
            actions += leg
        return actions

    def _a_star(self, start: GridState, effort: Effort) -> list[int] | None:
        """Returns the actions to success or, unless exact, to the next completed clause or opened lock."""
        if effort.unlocking and LOCKED not in start.doors:
            return None
        self._effort = effort
        weight, budget, needed_only, _, _ = effort
        order = count()
        costs, parents = {start: 0}, {start: (start, -1)}
        heap = [(weight * self.bound(start), 0, next(order), start)]
        closed = set()
        first = sorted(ACTIONS, key=lambda action: not self.model.applicable(start, action))
        while heap and budget:
            _, _, _, state = heapq.heappop(heap)
            if state in closed:
                continue
            closed.add(state)
            budget -= 1
            if self._is_goal(start, state):
                actions = []
                while state is not start:
                    state, action = parents[state]
                    actions.append(action)
                return actions[::-1]
            cost = costs[state] + 1
            for action in first if state is start else ACTIONS:
                # An action without effect matters only at the start, where the mission may already be fulfilled.
                if state is not start and not self._worth_trying(state, action):
                    continue
                if needed_only and action == PICKUP and not self._is_needed(state):
                    continue
                after, status = self.model.step(state, action)
                if status == "failure":
                    continue
                if action == TOGGLE and after.where != state.where and self.model.is_lost(after):
                    continue  # the box that it opened and so destroyed is needed later
                if status == "success":
                    after = after._replace(stage=ARRIVED)
                if cost < costs.get(after, UNREACHABLE):
                    costs[after], parents[after] = cost, (state, action)
                    ahead = 0 if self._is_goal(start, after) else self.bound(after)
                    if ahead < UNREACHABLE:
                        heapq.heappush(heap, (cost + weight * ahead, -cost, next(order), after))
        return None

    def _is_goal(self, start: GridState, state: GridState) -> bool:
        if state.stage == ARRIVED or self.exact:
            return state.stage == ARRIVED
        unlocked = self._effort.unlocking and state.doors.count(LOCKED) < start.doors.count(LOCKED)
        return unlocked or (state.stage, state.done) != (start.stage, start.done)

    def _worth_trying(self, state: GridState, action: int) -> bool:
        model = self.model
        if not model.applicable(state, action):
            return False
        if self.exact or action != TOGGLE:
            return True
        front = state.cell + model.ahead[state.heading]
        door = model.door_at.get(front)
        if door is None:
            return self._may_not_pick_up or state.where.index(front) in model.content
        return state.doors[door] != OPEN or any(door in clause.doors for clause in model.clauses)

    def _is_needed(self, state: GridState) -> bool:
        """Tests whether the object in front is a key of a locked door, or part of the mission."""
        front = state.cell + self.model.ahead[state.heading]
        if front not in state.where:
            return False
        number = state.where.index(front)
        color = self.model.key_colors.get(number)
        locked = {self.model.door_colors[door] for door, door_state in enumerate(state.doors) if door_state == LOCKED}
        return color in locked or any(number in clause.objects | clause.fixed for clause in self.model.clauses)

    # ---- the bound

    def bound(self, state: GridState) -> int:
        """Estimates the remaining actions (a lower bound if exact); UNREACHABLE if there are none."""
        model = self.model
        if self._effort.unlocking:
            return min(self._open_cost(state, door) for door, lock in enumerate(state.doors) if lock == LOCKED)
        if not self.exact:
            first = len(model.stages[0]) if state.stage else 0
            stage = model.stages[state.stage]
            return min(self._clause_cost(state, stage[i], first + i) for i, done in enumerate(state.done) if not done)
        number, costs = 0, [0]
        for index, clauses in enumerate(model.stages):
            for i, clause in enumerate(clauses):
                if index > state.stage or (index == state.stage and not state.done[i]):
                    costs.append(self._clause_cost(state, clause, number))
                number += 1
        return max(costs)

    def _clause_cost(self, state: GridState, clause: Clause, number: int) -> int:
        where, held = state.where, state.held
        if clause.kind == "goto":
            if held in clause.objects:
                return 1  # dropping it in front of the player counts as going to it
            cells = set(state.marks[number]) | {cell for n in clause.objects if (cell := self._cell(state, n)) >= 0}
            return min((self._approach_cost(state, cell) for cell in cells), default=UNREACHABLE)
        if clause.kind == "pickup":
            if held in clause.objects:
                return 2
            return min(
                (self._fetch_cost(state, n) for n in clause.objects if where[n] != DESTROYED), default=UNREACHABLE
            )
        if clause.kind == "open":
            return min(self._open_cost(state, door) for door in clause.doors)
        return self._put_cost(state, clause)

    def _open_cost(self, state: GridState, door: int) -> int:
        cell = self.model.door_cells[door]
        if state.doors[door] != LOCKED or self.model.key_colors.get(state.held) == self.model.door_colors[door]:
            return self._approach_cost(state, cell) + (2 if state.doors[door] == OPEN else 1)
        return min(
            (
                self._fetch_cost(state, key) + self._carry_cost(state, key, frozenset((cell,))) + 1
                for key in self._keys(state, door)
            ),
            default=UNREACHABLE,
        )

    def _put_cost(self, state: GridState, clause: Clause) -> int:
        fixed = [state.where[n] for n in clause.fixed if state.where[n] >= 0]
        fixed += [self.model.door_cells[n] for n in clause.fixed_doors]
        if state.held in clause.objects:
            ways = [
                min(self._reach_cost(state, self._neighbours(cell)), self._approach_cost(state, cell)) + 1
                for cell in fixed
            ]
            # No fixed object is on the grid: it is in a box, say, and must be fetched first.
            return min(ways, default=6)
        movable = [n for n in clause.objects if state.where[n] not in (DESTROYED, IN_HAND)]
        best = UNREACHABLE
        for n in movable:
            fetch = self._fetch_cost(state, n)
            if state.held in clause.fixed:
                best = min(best, fetch + 1)
            for cell in fixed:
                if cell != self._cell(state, n):
                    best = min(best, fetch + self._carry_cost(state, n, self._neighbours(cell)) + 1)
            for neighbour in clause.fixed:
                # Alternatively bring the fixed object next to it, pick it up and put it back.
                if neighbour != n and state.where[neighbour] >= 0 and self._cell(state, n) >= 0:
                    to = self._carry_cost(state, neighbour, self._neighbours(self._cell(state, n)))
                    best = min(best, self._fetch_cost(state, neighbour) + to + 3)
        return best

    def _fetch_cost(self, state: GridState, item: int) -> int:
        """Steps until an item is in hand: walk to it, empty the hand, open its box, pick it up."""
        cell = self._cell(state, item)
        if cell < 0:
            return 1 + (state.where[item] == IN_BOX)  # the box is in hand
        return self._approach_cost(state, cell) + 1 + (state.held != NONE) + (state.where[item] == IN_BOX)

    def _keys(self, state: GridState, door: int) -> Iterable[int]:
        color = self.model.door_colors[door]
        return (n for n, own in self.model.key_colors.items() if own == color and state.where[n] != DESTROYED)

    def _cell(self, state: GridState, item: int) -> int:
        """Returns the cell of an item, or of the box that contains it."""
        while state.where[item] == IN_BOX:
            item = next(box for box, content in self.model.content.items() if content == item)
        return state.where[item]

    def _neighbours(self, cell: int) -> frozenset[int]:
        """Returns the neighbouring cells where an object could be dropped."""
        if cell not in self._around:
            model = self.model
            cells = (cell + step for step in model.ahead)
            self._around[cell] = frozenset(c for c in cells if c not in model.walls and c not in model.door_at)
        return self._around[cell]

    def _approach_cost(self, state: GridState, cell: int) -> int:
        return self._reach_cost(state, frozenset((cell,)))

    def _reach_cost(self, state: GridState, goals: frozenset[int], unlocking: tuple[int, ...] = ()) -> int:
        """Estimates the steps until the agent faces a goal cell.

        Unless the planner is exact, this includes fetching the keys of locked doors on the way. A key
        behind one of the doors in `unlocking`, for which it is fetched, is out of reach.
        """
        routes = self._routes_to(state, goals)
        pose = state.cell * 4 + state.heading
        steps = routes.steps[pose]
        if steps < LOCK_DISTANCE or steps >= UNREACHABLE or self.exact:
            return steps % LOCK_DISTANCE if steps < UNREACHABLE else UNREACHABLE
        locks, steps = divmod(steps, LOCK_DISTANCE)
        door, model = routes.lock[pose], self.model
        total = steps + locks * LOCK_COST
        if model.key_colors.get(state.held) == model.door_colors[door]:
            return total
        if door in unlocking:
            return UNREACHABLE
        keys = [
            self._reach_cost(state, frozenset((cell,)), (*unlocking, door))
            + 1
            + (state.held != NONE)
            + (state.where[key] == IN_BOX)
            for key in self._keys(state, door)
            if (cell := self._cell(state, key)) >= 0
        ]
        return min(UNREACHABLE, total + min(keys, default=UNREACHABLE))

    def _carry_cost(self, state: GridState, item: int, goals: frozenset[int]) -> int:
        """Steps from the item until a goal cell is in front."""
        cell = self._cell(state, item)
        if cell < 0:
            return 0
        key = cell, goals, self._door_locks(state), self._blocked_thresholds(state)
        if key not in self._carry_cache:
            model, steps = self.model, self._routes_to(state, goals).steps
            self._carry_cache[key] = min(
                (
                    steps[(cell - step) * 4 + heading]
                    for heading, step in enumerate(model.ahead)
                    if cell - step not in model.walls
                ),
                default=UNREACHABLE,
            )
        distance = self._carry_cache[key]
        if distance >= UNREACHABLE:
            return UNREACHABLE
        return distance % LOCK_DISTANCE + (0 if self.exact else distance // LOCK_DISTANCE * LOCK_COST)

    def _door_locks(self, state: GridState) -> tuple[bool, ...]:
        if state.doors not in self._locks:
            self._locks[state.doors] = tuple(door == LOCKED for door in state.doors)
        return self._locks[state.doors]

    def _blocked_thresholds(self, state: GridState) -> frozenset[int]:
        """Returns the cells beside doors that hold an object, if the heuristic counts them."""
        if not self._effort.count_blocked:
            return frozenset()
        if state.where not in self._blocked:
            self._blocked[state.where] = self._thresholds.intersection(state.where)
        return self._blocked[state.where]

    def _routes_to(self, state: GridState, goals: frozenset[int]) -> RouteTable:
        key = goals, self._door_locks(state), self._blocked_thresholds(state)
        if key not in self._route_cache:
            self._route_cache[key] = self._dijkstra(*key)
        return self._route_cache[key]

    def _dijkstra(self, goals: frozenset[int], locked: tuple[bool, ...], blocked: frozenset[int]) -> RouteTable:
        model = self.model
        size = model.width * model.height * 4
        steps, lock = [UNREACHABLE] * size, [-1] * size
        heap = []
        for goal in goals:
            for heading, step in enumerate(model.ahead):
                if 0 <= goal - step < size // 4 and goal - step not in model.walls:
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
            behind = cell - model.ahead[heading]
            door = model.door_at.get(cell, -1)
            enter = 1 if door < 0 else 1 + toll + (LOCK_DISTANCE if locked[door] and not self.exact else 0)
            enter += BLOCK_COST if cell in blocked else 0
            moves = [
                (pose - heading + (heading + 1) % 4, 1, lock[pose]),
                (pose - heading + (heading - 1) % 4, 1, lock[pose]),
            ]
            if 0 <= behind < size // 4 and behind not in model.walls:
                moves.append((behind * 4 + heading, enter, door if door >= 0 and locked[door] else lock[pose]))
            for neighbour, price, first in moves:
                if cost + price < steps[neighbour]:
                    steps[neighbour], lock[neighbour] = cost + price, first
                    heapq.heappush(heap, (cost + price, neighbour))
        return RouteTable(steps, lock)
