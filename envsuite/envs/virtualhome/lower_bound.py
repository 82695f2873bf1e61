"""Admissible lower bound on the commands to a goal, for the planner's A* search.

The bound counts the actions that every plan contains: each put, grab, door, switch and seat action that a condition
still lacks, one walk to each piece of furniture and to each room where they happen, and the extra trips that two hands
require. No action is counted twice, so the bound never exceeds the true number.
"""

from __future__ import annotations

from typing import NamedTuple

from envsuite.envs.virtualhome.engine import HomeState
from envsuite.envs.virtualhome.fixed_engine import FixedEngine
from envsuite.envs.virtualhome.goals import HouseholdGoal, Predicate, predicate

NEVER = 1 << 20


class _Requirement(NamedTuple):
    """Unmet condition, with the first and last remaining stage that requires it."""

    kind: str
    holds: Predicate
    x: int
    y: int
    first: int
    last: int


class LowerBound:
    """Lower bound for one goal, called with a state and the index of its stage."""

    def __init__(self, engine: FixedEngine, goal: HouseholdGoal) -> None:
        self.engine = engine
        home = engine.home
        device = {thing.process: home.bit[key] for key, thing in home.things.items() if thing.process}
        self._root, self._room = home.root, home.room_of
        self.stages: list[list[_Requirement]] = []
        for k in range(len(goal.stages) + 1):
            spans: dict[tuple[str, str, str], tuple[int, int]] = {}
            for i, stage in enumerate(goal.stages[k:], k):
                for c in stage:
                    spans[c] = spans.get(c, (i, i))[0], i
            requirements = []
            for (kind, x, y), (first, last) in spans.items():
                second = device[y] if kind == "mark" else home.bit.get(y, 0)
                holds = predicate(engine, next(c for stage in goal.stages for c in stage if c == (kind, x, y)))
                requirements.append(_Requirement(kind, holds, home.bit[x], second, first, last))
            self.stages.append(requirements)

    def __call__(self, s: HomeState, stage: int) -> int:
        engine = self.engine
        home = engine.home
        doors, first_movable = home.door, home.first_movable + 1
        puts: dict[tuple[int, int], int] = {}  # (thing, place) -> stage that needs it
        hold: dict[int, int] = {}  # thing -> stage that needs it in a hand
        shut: dict[int, int] = {}  # door -> last stage that needs it closed
        actions: set[tuple[str, int]] = set()  # required actions on doors, switches and seats
        marks: list[tuple[int, int, int]] = []  # (thing, appliance, stage)
        things: dict[int, list[int]] = {}  # thing that must be grabbed -> stages of its puts
        room = extra = 0
        for kind, holds, x, y, first, last in self.stages[stage]:
            if kind == "closed":
                shut[x] = last
            if holds(s):
                continue
            if kind == "on" or kind == "in":
                puts[x, y] = first
            elif kind == "mark":
                marks.append((x, y, first))
            elif kind == "held":
                hold[x] = last
                things[x] = []
            elif kind == "served":
                things[x] = []
            elif kind == "room":
                room = x
            else:
                actions.add((kind, x))
        must_open = {x for kind, x in actions if kind == "open"} if marks else set()
        reopened: set[int] = set()  # appliances that must be opened again
        final = dict(puts) if marks else puts  # final places, without the places that things only pass through
        for x, device, first in marks:
            i = x.bit_length() - first_movable
            door = device & doors
            missing = not (s.inside[i] | s.on[i]) & device
            if door and device not in must_open and device not in reopened:
                leaves = any(item == x and y != device and when >= first for (item, y), when in final.items())
                if leaves or hold.get(x, -1) >= first:
                    reopened.add(device)
                    extra += 1 if device & home.always_on else 2
            if missing:
                puts[x, device] = min(first, puts.get((x, device), first))
            if door and (missing or s.open & device):
                actions.add(("closed", device))
                if s.power & device:
                    actions.add(("off", device))
            if not device & home.always_on and (door or not s.power & device):
                actions.add(("running", device))
        opened: dict[int, int] = {}  # door that must be opened -> first stage that needs it
        for (x, y), when in puts.items():
            things.setdefault(x, []).append(when)
            if y & doors & ~s.open:
                opened[y] = min(when, opened.get(y, when))
        source: dict[int, int] = {}
        for x, stages in things.items():
            extra += max(len(stages), 1)
            if stages and max(stages) <= hold.get(x, -1):
                extra += 1
            if x == s.right or x == s.left:
                extra -= 1
                source[x] = 0
                continue
            i = x.bit_length() - first_movable
            place = s.on[i] or s.inside[i] & ~home.room_mask
            source[x] = self._root[place]
            if (closed := place & doors & ~s.open) and closed not in reopened:
                when = min([*stages, hold.get(x, NEVER)])
                opened[closed] = min(when, opened.get(closed, when))
        for door, when in opened.items():
            actions.add(("open", door))
            if shut.get(door, -1) >= when:
                actions.add(("closed", door))
        return extra + len(puts) + len(actions) + self._walks(s, puts, final, source, things, actions, room)

    def _walks(
        self,
        s: HomeState,
        puts: dict[tuple[int, int], int],
        final: dict[tuple[int, int], int],
        source: dict[int, int],
        things: dict[int, list[int]],
        actions: set[tuple[str, int]],
        room: int,
    ) -> int:
        """Returns the walks that every plan contains. `source` is where each thing is grabbed (0: from a hand)."""
        root_of, room_of = self._root, self._room
        near, present = s.near, s.room
        visits = {root_of[x]: 1 for _, x in actions}
        for root in source.values():
            visits[root] = 1
        deliveries: dict[int, int] = {}  # furniture -> number of things to carry there
        room_deliveries: dict[int, int] = {}  # room -> number of things to carry there
        for (x, y), when in puts.items():
            root, origin = root_of[y], source[x]
            visits[root] = 1
            there = room_of[root]
            here = root == (origin or near)
            inside = there == (room_of[origin] if origin else present)
            if (here or inside) and len(things[x]) > 1 and (x, y) in final:
                for (item, z), earlier in puts.items():
                    first = earlier < when or (earlier == when and (x, z) not in final)
                    if item == x and first and root_of[z] != root:  # it goes elsewhere first and must come back
                        here = False
                        inside = inside and room_of[root_of[z]] == there
            if not here:
                deliveries[root] = deliveries.get(root, 0) + 1
            if not inside:
                room_deliveries[there] = room_deliveries.get(there, 0) + 1
        visits.pop(0, None)
        visits.pop(near, None)
        rooms = {room_of[root]: 1 for root in visits}
        if room:
            rooms[room] = 1
        rooms.pop(present, None)
        walks = len(visits) + len(rooms)
        for root, count in deliveries.items():
            walks += max((count + 1) // 2 - visits.get(root, 0), 0)
        for there, count in room_deliveries.items():
            walks += max((count + 1) // 2 - rooms.get(there, 0), 0)
        return walks + (s.sitting and walks > 0)
