"""A* search for shortest plans to goals without choices, in the part of a home that a goal needs.

Every command costs 1 and every room is one walk away. A plan therefore needs only the things that the goal mentions,
the things that contain them, and one surface per room to free a hand, since all other surfaces are equivalent. A test
compares the search with uninformed search over whole homes.
"""

from __future__ import annotations

import heapq
from itertools import count

from envsuite.envs.virtualhome.engine import CLOSE, GRAB, STANDUP, WALK, HomeAction, HomeState
from envsuite.envs.virtualhome.home import Home, Thing
from envsuite.envs.virtualhome.homes.conditions import GroundedGoal
from envsuite.envs.virtualhome.homes.goals import GoalTracker, OrderedGoal
from envsuite.envs.virtualhome.homes.players.lower_bound import NEVER, LowerBound
from envsuite.envs.virtualhome.homes.rules import HomeRules

Node = tuple[HomeState, int]
"""A state, and the part of the goal whose turn it is."""
TRIED_LAST = {GRAB: 1, STANDUP: 2}
"""verb -> rank in the sequence of the commands of a state"""


class SearchTooLong(Exception):
    """Raised when a search with a budget has visited more states than that."""


def relevant_keys(rules: HomeRules, s: HomeState, goal: GroundedGoal) -> frozenset[str]:
    """Returns the keys of the things that a plan from a state to a goal can need."""
    home = rules.home
    processes = {c.y for stage in goal.stages for c in stage if c.kind == "mark"}
    keys = set(goal.keys) | {key for key, thing in home.things.items() if thing.process in processes}
    keys -= home.rooms.keys()
    places = s.near | s.seat
    for key in keys:
        bit = home.bit[key]
        places |= rules.place_of(s, bit) if bit & home.movable else bit
    bare = sum({home.bit[c.x] for stage in goal.stages for c in stage if c.kind == "bare"})
    holders = (home.surface | home.container) & home.target & ~bare
    doorless = holders & (home.surface | ~home.door)
    put_down = holders if bare else doorless  # to free a hand; opening a door needs a free hand
    for bit in home.bits(places):
        places |= home.root[bit] | home.at_root[home.root[bit]] & put_down
    for room in _rooms_to_put_down(home, s, places, doorless, goal):
        here = home.fixed_in[room] & put_down
        without_door = here & doorless  # all of them are alike
        if not without_door & places:
            for bit in home.bits(without_door & -without_door or here):
                places |= bit | home.root[bit]
    return frozenset(keys.union(home.keys(places)))


def _rooms_to_put_down(home: Home, s: HomeState, places: int, doorless: int, goal: GroundedGoal) -> tuple[int, ...]:
    """Returns the rooms in which a plan may put something down to free a hand.

    `places` are the relevant things, and `doorless` is the furniture that takes things without being opened.
    """
    mentioned = sum({home.bit[key] for key in goal.keys if key in home.rooms})
    rooms = s.room | mentioned | sum({home.room_of[bit] for bit in home.bits(places & ~home.movable)})
    relevant = tuple(home.bits(rooms))
    return relevant if any(home.fixed_in[room] & doorless for room in relevant) else home.room_bits


class ReducedSearch:
    """Search in the part of a home that a goal needs; two placeholders represent irrelevant things in the hands.

    It does not enter rooms where nothing matters, and closes only what must be closed or works when closed.
    """

    def __init__(self, full: HomeRules, goal: OrderedGoal, grounded: GroundedGoal, keys: frozenset[str]) -> None:
        """`grounded` is the goal with fixed choices; `keys` are the relevant things."""
        self.full = full
        home = full.home
        things = [
            thing._replace(on=() if thing.movable else tuple(k for k in thing.on if k in keys)[:1], inside="")
            for key, thing in home.things.items()
            if key in keys
        ]
        things += [Thing(f"placeholder {i}", home.start, movable=True) for i in (1, 2)]
        reduced = Home(home.rooms, things, home.start)
        self.rules = HomeRules(reduced, full.nearsighted)
        self.tracker = GoalTracker(self.rules, goal)
        self.bound = LowerBound(self.rules, grounded)
        self.placeholders = tuple(reduced.bit[f"placeholder {i}"] for i in (1, 2))
        self.bits = {home.bit[key]: reduced.bit[key] for key in (*home.rooms, *keys)}
        self.original = {small: large for large, small in self.bits.items()}
        conditions = [c for stage in grounded.stages for c in stage]
        entered = sum({reduced.bit[c.x] for c in conditions if c.kind == "room"})
        entered |= sum(room for room in reduced.room_bits if reduced.fixed_in[room] and not room & entered)
        self._skipped_rooms = reduced.room_mask & ~entered
        self._closing = sum({reduced.bit[c.x] for c in conditions if c.kind == "closed"}) | sum(reduced.process)

    def plan_below(self, s: HomeState, part: int, limit: int, budget: int = NEVER) -> list[HomeAction] | None:
        """Returns a shortest plan from a state of the complete home, in the bits of that home.

        Returns None without a plan of fewer than `limit` commands. Raises SearchTooLong after `budget` states;
        `visited` is the number of states of the last search.
        """
        start, names = self._project(s)
        plan = self._search(start, part, limit, budget)
        if plan is None:
            return None
        return [HomeAction(a.verb, names.get(a.x, 0), names.get(a.y, 0)) for a in plan]

    def bound_at(self, s: HomeState, part: int) -> int:
        """Returns the lower bound at a state of the complete home."""
        return self.bound(self._project(s)[0], part)

    def _project(self, s: HomeState) -> tuple[HomeState, dict[int, int]]:
        """Projects a state of the complete home to the reduced one. Returns it with the meaning of its bits."""
        home, project = self.rules.home, self._project_mask
        names, unused, hands = dict(self.original), list(self.placeholders), []
        for held in (s.right, s.left):
            reduced = self.bits.get(held, 0)
            if held and not reduced:
                reduced = unused.pop(0)
                names[reduced] = held
            hands.append(reduced)
        n = len(home.movable_bits)
        inside, on, marks = [0] * n, [0] * n, 0
        for i, reduced in enumerate(home.movable_bits):
            if reduced not in names:
                continue  # an unused placeholder is nowhere
            j = self.full.index(names[reduced])
            inside[i], on[i] = project(s.inside[j]), project(s.on[j])
            if reduced not in self.placeholders:
                for process in home.processes:
                    if self.full.marked(s, names[reduced], process):
                        marks |= self.rules.mark(reduced, process)
        room, near, seat, facing = (project(mask) for mask in (s.room, s.near, s.seat, s.facing))
        doors, power = project(s.open), project(s.power)
        places = tuple(inside), tuple(on), (0,) * n
        return HomeState(room, near, hands[0], hands[1], s.sitting, seat, facing, doors, power, *places, marks), names

    def _project_mask(self, mask: int) -> int:
        return sum(self.bits.get(bit, 0) for bit in self.full.home.bits(mask))

    def _search(self, start: HomeState, part: int, limit: int, budget: int) -> list[HomeAction] | None:
        tracker, apply, bound = self.tracker, self.rules.apply, self.bound
        last, tie = tracker.last, count()
        first = start, part
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
                after, _ = apply(s, action)
                if after.right < after.left:  # the hands are interchangeable
                    after = after._replace(right=after.left, left=after.right)
                reached = tracker.step(s, after, k)
                if next_cost < cost.get(reached, 1 << 30):
                    cost[reached] = next_cost
                    parents[reached] = node, action
                    heapq.heappush(frontier, (next_cost + bound(*reached), -next_cost, next(tie), reached))
        return None

    def _moves(self, s: HomeState) -> list[HomeAction]:
        """Returns the commands that a shortest plan may need: of several walks to one piece of furniture, the first."""
        rules = self.rules
        moves, roots = [], set()
        for action in sorted(rules.commands(s), key=lambda action: TRIED_LAST.get(action.verb, 0)):
            if action.verb == WALK and not action.x & rules.home.room_mask:
                root = rules.root(s, action.x)
                if root in roots:
                    continue
                roots.add(root)
            if action.verb == WALK and action.x & self._skipped_rooms:
                continue
            if action.verb != CLOSE or action.x & self._closing:
                moves.append(action)
        return moves


def _path_to(parents: dict[Node, tuple[Node, HomeAction]], node: Node) -> list[HomeAction]:
    actions = []
    while node in parents:
        node, action = parents[node]
        actions.append(action)
    return actions[::-1]
