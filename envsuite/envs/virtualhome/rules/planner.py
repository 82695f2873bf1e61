"""Exact planner for the fixed rules: A* search with an admissible lower bound.

Every command costs 1 and every room is one walk away. A plan therefore needs only the things that the goal mentions,
the things that contain them, and one surface per room to free a hand, since all other surfaces are equivalent.
`HouseholdPlanner` searches a home reduced to these; a test compares it with uninformed search over whole homes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import count

from envsuite.envs.virtualhome.rules.engine import WALK, HomeAction, HomeState
from envsuite.envs.virtualhome.rules.fixed_engine import FixedEngine
from envsuite.envs.virtualhome.rules.goals import GoalTracker, HouseholdGoal, StageTracker
from envsuite.envs.virtualhome.rules.home import Home, Thing
from envsuite.envs.virtualhome.rules.lower_bound import NEVER, LowerBound

Node = tuple[HomeState, int]


class SearchTooLong(Exception):
    """Raised when a search with a budget has visited more states than that."""


class HouseholdPlanner:
    """Shortest plans to one goal in one home; caches every state on a plan."""

    def __init__(self, engine: FixedEngine, tracker: StageTracker) -> None:
        self.engine, self.tracker = engine, tracker
        self._reduced: dict[frozenset[str], ReducedSearch] = {}
        self._plans: dict[Node, tuple[int, HomeAction | None]] = {}

    def next(self, s: HomeState, stage: int) -> tuple[int, HomeAction | None]:
        """Returns the number of commands to the goal and the first of them (None if the goal is reached)."""
        if (s, stage) not in self._plans:
            plan = self._plan(s, stage)
            now, k = s, stage
            for done, action in enumerate(plan):
                self._plans.setdefault((now, k), (len(plan) - done, action))
                after, error = self.engine.apply(now, action)
                assert not error, f"planned {action}, refused as {error}"
                now, k = self.tracker.step(now, after, k)
            self._plans.setdefault((now, k), (0, None))
        return self._plans[s, stage]

    def _plan(self, s: HomeState, stage: int) -> list[HomeAction]:
        relevant = self._relevant(s)
        if relevant not in self._reduced:
            self._reduced[relevant] = ReducedSearch(self.engine, self.tracker.goal, relevant)
        return self._reduced[relevant].plan(s, stage)

    def _relevant(self, s: HomeState, goal: HouseholdGoal | None = None) -> frozenset[str]:
        """Returns the keys of the things that a plan from `s` to a goal (default: the tracker's) can need."""
        home, engine = self.engine.home, self.engine
        goal = goal or self.tracker.goal
        processes = {c.y for stage in goal.stages for c in stage if c.kind == "mark"}
        keys = set(goal.keys) | {key for key, thing in home.things.items() if thing.process in processes}
        keys -= home.rooms.keys()
        places = s.near | s.seat
        for key in keys:
            bit = home.bit[key]
            if bit & home.movable:
                i = engine.index(bit)
                places |= s.on[i] | s.inside[i] & ~home.room_mask
            else:
                places |= bit
        bare = sum({home.bit[c.x] for stage in goal.stages for c in stage if c.kind == "bare"})
        places_for_things = (home.surface | home.container) & home.target & ~bare
        doorless = places_for_things & (home.surface | ~home.door)
        put_down = places_for_things if bare else doorless  # to free a hand; opening a door needs a free hand
        for bit in home.bits(places):
            places |= home.root[bit] | home.at_root[home.root[bit]] & put_down
        for room in self._rooms_to_put_down(s, places, doorless, goal):
            here = home.fixed_in[room] & put_down
            without_door = here & doorless  # all of them are alike
            if not without_door & places:
                for bit in home.bits(without_door & -without_door or here):
                    places |= bit | home.root[bit]
        return frozenset(keys.union(home.keys(places)))

    def _rooms_to_put_down(self, s: HomeState, places: int, doorless: int, goal: HouseholdGoal) -> Iterable[int]:
        """Returns the rooms in which a plan may put something down to free a hand.

        `places` are the relevant things, and `doorless` is the furniture that takes things without being opened.
        """
        return self.engine.home.room_bits


class ReducedSearch:
    """Search in the part of a home that a goal needs; two placeholders represent irrelevant things in the hands."""

    def __init__(
        self,
        engine: FixedEngine,
        goal: HouseholdGoal,
        keys: frozenset[str],
        track: Callable[[FixedEngine], StageTracker] | None = None,
    ) -> None:
        """`track` builds a tracker that advances the goal's stages; default: a `GoalTracker`."""
        full_engine = engine.home
        self.full_engine = engine
        things = [
            thing._replace(on=() if thing.movable else tuple(k for k in thing.on if k in keys)[:1], inside="")
            for key, thing in full_engine.things.items()
            if key in keys
        ]
        things += [Thing(f"placeholder {i}", full_engine.start, movable=True) for i in (1, 2)]
        home = Home(full_engine.rooms, things, full_engine.start)
        self.engine = FixedEngine(home, engine.nearsighted)
        self.tracker = track(self.engine) if track else GoalTracker(self.engine, goal)
        self.bound = LowerBound(self.engine, goal)
        self.placeholders = tuple(home.bit[f"placeholder {i}"] for i in (1, 2))
        self.bits = {full_engine.bit[key]: home.bit[key] for key in (*full_engine.rooms, *keys)}
        self.original = {reduced: full for full, reduced in self.bits.items()}

    def plan(self, s: HomeState, stage: int) -> list[HomeAction]:
        """Returns a shortest plan from a state of the complete home, in the bits of that home."""
        plan = self.plan_below(s, stage, NEVER)
        if plan is None:
            raise AssertionError(f"no plan to {self.tracker.goal.text!r}")
        return plan

    def plan_below(self, s: HomeState, stage: int, limit: int, budget: int = NEVER) -> list[HomeAction] | None:
        """Returns such a plan if it has fewer than `limit` commands; None otherwise, or without a plan.

        Raises SearchTooLong after `budget` states; `visited` is the number of states of the last search.
        """
        reduced, names = self._project(s)
        plan = self._search(reduced, stage, limit, budget)
        if plan is None:
            return None
        return [HomeAction(a.verb, names.get(a.x, 0), names.get(a.y, 0)) for a in plan]

    def bound_at(self, s: HomeState, stage: int) -> int:
        """Returns the lower bound at a state of the complete home."""
        return self.bound(self._project(s)[0], stage)

    def _project(self, s: HomeState) -> tuple[HomeState, dict[int, int]]:
        """Projects a state of the complete home to the reduced one. Returns it with the meaning of its bits."""
        home, map_mask = self.engine.home, self._map
        names, unused, hands = dict(self.original), list(self.placeholders), []
        for in_hand in (s.right, s.left):
            reduced = self.bits.get(in_hand, 0)
            if in_hand and not reduced:
                reduced = unused.pop(0)
                names[reduced] = in_hand
            hands.append(reduced)
        n = len(home.movable_bits)
        inside, on, marks = [0] * n, [0] * n, 0
        for i, reduced in enumerate(home.movable_bits):
            if reduced not in names:
                continue  # an unused placeholder is nowhere
            j = self.full_engine.index(names[reduced])
            inside[i], on[i] = map_mask(s.inside[j]), map_mask(s.on[j])
            if reduced not in self.placeholders:
                for process in home.processes:
                    if self.full_engine.marked(s, names[reduced], process):
                        marks |= self.engine.mark(reduced, process)
        room, near, seat, facing = (map_mask(mask) for mask in (s.room, s.near, s.seat, s.facing))
        doors, power = map_mask(s.open), map_mask(s.power)
        places = tuple(inside), tuple(on), (0,) * n
        return HomeState(room, near, hands[0], hands[1], s.sitting, seat, facing, doors, power, *places, marks), names

    def _map(self, mask: int) -> int:
        mapped = 0
        for bit in self.full_engine.home.bits(mask):
            mapped |= self.bits.get(bit, 0)
        return mapped

    def _search(self, start: HomeState, stage: int, limit: int, budget: int) -> list[HomeAction] | None:
        tracker, apply, bound = self.tracker, self.engine.apply, self.bound
        last, tie = tracker.last, count()
        first = start, tracker.advance(start, stage)
        cost = {first: 0}
        parents: dict[Node, tuple[Node, HomeAction]] = {}
        frontier = [(bound(*first), 0, next(tie), first)]
        self.visited = 0
        while frontier:
            estimate, negative, _, node = heapq.heappop(frontier)
            if estimate >= limit:
                return None
            s, k = node
            if k == last:
                return _path_to(parents, node)
            if -negative > cost[node]:
                continue
            self.visited += 1
            if self.visited > budget:
                raise SearchTooLong
            next_cost = 1 - negative
            for action in self._moves(s):
                next_state, _ = apply(s, action)
                if next_state.right < next_state.left:  # the hands are interchangeable
                    next_state = next_state._replace(right=next_state.left, left=next_state.right)
                reached = tracker.step(s, next_state, k)
                if next_cost < cost.get(reached, 1 << 30):
                    cost[reached] = next_cost
                    parents[reached] = node, action
                    heapq.heappush(frontier, (next_cost + bound(*reached), -next_cost, next(tie), reached))
        return None

    def _moves(self, s: HomeState) -> list[HomeAction]:
        """Returns the relevant commands: of several walks to one piece of furniture, only the first."""
        engine = self.engine
        moves, roots = [], set()
        for action in engine.commands(s, engine.visible(s)):
            if action.verb == WALK and not action.x & engine.home.room_mask:
                root = engine.root(s, action.x)
                if root in roots:
                    continue
                roots.add(root)
            moves.append(action)
        return moves


def _path_to(parents: dict[Node, tuple[Node, HomeAction]], node: Node) -> list[HomeAction]:
    actions = []
    while node in parents:
        node, action = parents[node]
        actions.append(action)
    return actions[::-1]
