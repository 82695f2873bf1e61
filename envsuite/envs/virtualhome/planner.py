"""Exact plans under the mended rules: A* with an admissible bound.

All that costs is the number of commands, and any room is one walk away. So a plan needs only the things that the goal
speaks of, those that hold them now, and, where a hand must be freed, any one surface of each room: all others are
alike. `Planner` searches a home reduced to these; a test holds it to blind search over whole homes.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import count

from envsuite.envs.virtualhome.bound import Bound
from envsuite.envs.virtualhome.engine import WALK, Action, State
from envsuite.envs.virtualhome.goals import Goal, Tracker
from envsuite.envs.virtualhome.home import Home, Thing
from envsuite.envs.virtualhome.mended import Mended

Node = tuple[State, int]


class Planner:
    """Shortest plans to one goal in one home. Every state on a plan is remembered."""

    def __init__(self, engine: Mended, tracker: Tracker) -> None:
        self.engine, self.tracker = engine, tracker
        self._reduced: dict[frozenset[str], _Reduced] = {}
        self._known: dict[Node, tuple[int, Action | None]] = {}

    def next(self, s: State, stage: int) -> tuple[int, Action | None]:
        """How many commands are left to the goal, and the first of them (None where none is left)."""
        if (s, stage) not in self._known:
            relevant = self._relevant(s)
            if relevant not in self._reduced:
                self._reduced[relevant] = _Reduced(self.engine, self.tracker.goal, relevant)
            plan = self._reduced[relevant].plan(s, stage)
            now, k = s, stage
            for done, action in enumerate(plan):
                self._known.setdefault((now, k), (len(plan) - done, action))
                now, error = self.engine.apply(now, action)
                assert not error, f"planned {action}, refused as {error}"
                k = self.tracker.advance(now, k)
            self._known.setdefault((now, k), (0, None))
        return self._known[s, stage]

    def _relevant(self, s: State) -> frozenset[str]:
        """Keys of the things a plan from `s` may need."""
        home, engine, goal = self.engine.home, self.engine, self.tracker.goal
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
        resting = home.surface | home.container & ~home.door  # where a hand can be freed while one is there anyway
        for bit in home.bits(places):
            places |= home.root[bit] | home.at_root[home.root[bit]] & resting
        for room in home.room_bits:
            surfaces = home.fixed_in[room] & home.surface & home.target
            if not surfaces & places:
                spare = surfaces & -surfaces
                places |= spare | home.root.get(spare, 0)
        return frozenset(keys.union(home.keys(places)))


class _Reduced:
    """The search over the part of a home that a goal needs. Two stand-ins are for irrelevant things in the hands."""

    def __init__(self, engine: Mended, goal: Goal, keys: frozenset[str]) -> None:
        whole = engine.home
        self.whole = engine
        things = [
            replace(thing, on=() if thing.movable else tuple(k for k in thing.on if k in keys)[:1], inside="")
            for key, thing in whole.things.items()
            if key in keys
        ]
        things += [Thing(f"stand-in {i}", whole.start, movable=True) for i in (1, 2)]
        home = Home(whole.rooms, things, whole.start)
        self.engine = Mended(home, engine.nearsighted)
        self.tracker = Tracker(self.engine, goal)
        self.bound = Bound(self.engine, goal)
        self.stand_ins = tuple(home.bit[f"stand-in {i}"] for i in (1, 2))
        self.bits = {whole.bit[key]: home.bit[key] for key in (*whole.rooms, *keys)}
        self.back = {small: big for big, small in self.bits.items()}

    def plan(self, s: State, stage: int) -> list[Action]:
        """A shortest plan from a state of the whole home, in its bits."""
        small, names = self._project(s)
        return [Action(a.verb, names.get(a.x, 0), names.get(a.y, 0)) for a in self._search(small, stage)]

    def _project(self, s: State) -> tuple[State, dict[int, int]]:
        """A state of the whole home as one of the part, and what its bits mean there."""
        home, map_mask = self.engine.home, self._map
        names, spare, hands = dict(self.back), list(self.stand_ins), []
        for held in (s.right, s.left):
            small = self.bits.get(held, 0)
            if held and not small:
                small = spare.pop(0)
                names[small] = held
            hands.append(small)
        n = len(home.movable_bits)
        inside, on, marks = [0] * n, [0] * n, 0
        for i, small in enumerate(home.movable_bits):
            if small not in names:
                continue  # a stand-in for nothing: it is nowhere
            j = self.whole.index(names[small])
            inside[i], on[i] = map_mask(s.inside[j]), map_mask(s.on[j])
            if small not in self.stand_ins:
                for process in home.processes:
                    if self.whole.marked(s, names[small], process):
                        marks |= self.engine.mark(small, process)
        room, near, seat, facing = (map_mask(mask) for mask in (s.room, s.near, s.seat, s.facing))
        doors, power = map_mask(s.open), map_mask(s.power)
        places = tuple(inside), tuple(on), (0,) * n
        return State(room, near, hands[0], hands[1], s.sitting, seat, facing, doors, power, *places, marks), names

    def _map(self, mask: int) -> int:
        found = 0
        for bit in self.whole.home.bits(mask):
            found |= self.bits.get(bit, 0)
        return found

    def _search(self, start: State, stage: int) -> list[Action]:
        tracker, apply, bound = self.tracker, self.engine.apply, self.bound
        last, tie = len(tracker.stages), count()
        first = start, tracker.advance(start, stage)
        cost = {first: 0}
        came: dict[Node, tuple[Node, Action]] = {}
        waiting = [(bound(*first), 0, next(tie), first)]
        while waiting:
            _, negative, _, node = heapq.heappop(waiting)
            s, k = node
            if k == last:
                return _unfold(came, node)
            if -negative > cost[node]:
                continue
            beyond = 1 - negative
            for action in self._moves(s):
                after, _ = apply(s, action)
                if after.right < after.left:  # which hand holds what makes no difference
                    after = after._replace(right=after.left, left=after.right)
                reached = after, tracker.advance(after, k)
                if beyond < cost.get(reached, 1 << 30):
                    cost[reached] = beyond
                    came[reached] = node, action
                    heapq.heappush(waiting, (beyond + bound(*reached), -beyond, next(tie), reached))
        raise AssertionError(f"no plan to {tracker.goal.text!r}")

    def _moves(self, s: State) -> list[Action]:
        """The commands that matter: of several walks to one piece of furniture, the first."""
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


def _unfold(came: dict[Node, tuple[Node, Action]], node: Node) -> list[Action]:
    actions = []
    while node in came:
        node, action = came[node]
        actions.append(action)
    return actions[::-1]
