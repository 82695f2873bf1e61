"""Admissible lower bound on the commands to a goal, for the planner's A* search.

The bound counts the actions that every plan contains: each put, grab, door, switch and seat action that a condition
still lacks, one walk to each piece of furniture and to each room where they happen, and the extra trips that two hands
require. No action is counted twice, so the bound never exceeds the true number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from envsuite.envs.virtualhome.engine import HomeState
from envsuite.envs.virtualhome.homes.conditions import Condition, GroundedGoal, Test, test_of
from envsuite.envs.virtualhome.homes.rules import HomeRules

NEVER = 1 << 20


class _Requirement(NamedTuple):
    """Unmet condition, with the first and last remaining stage that requires it."""

    kind: str
    holds: Test
    x: int
    y: int
    first: int
    last: int


@dataclass(slots=True)
class _Needs:
    """Everything that the remaining stages still lack in one state."""

    puts: dict[tuple[int, int], int] = field(default_factory=dict)
    """(thing, place) -> stage that needs it"""
    hold: dict[int, int] = field(default_factory=dict)
    """thing -> stage that needs it in a hand"""
    shut: dict[int, int] = field(default_factory=dict)
    """door -> last stage that needs it closed"""
    actions: set[tuple[str, int]] = field(default_factory=set)
    """required actions on doors, switches and seats"""
    marks: list[tuple[int, int, int]] = field(default_factory=list)
    """(thing, appliance, stage)"""
    things: dict[int, list[int]] = field(default_factory=dict)
    """thing that must be grabbed -> stages of its puts"""
    room: int = 0
    """room where the agent must be"""
    extra: int = 0
    """further commands, mostly grabs"""


class LowerBound:
    """Lower bound for one goal, called with a state and the index of its stage."""

    def __init__(self, rules: HomeRules, goal: GroundedGoal) -> None:
        self.rules = rules
        home = rules.home
        self._root, self._room = home.root, home.room_of
        self._device = {process: bit for bit, process in home.process.items()}
        self._goal = goal
        self._requirements: dict[int, list[_Requirement]] = {}

    def _from(self, stage: int) -> list[_Requirement]:
        """Returns the requirements of the stages from `stage` on."""
        requirements = self._requirements.get(stage)
        if requirements is None:
            home = self.rules.home
            spans: dict[Condition, tuple[int, int]] = {}
            for i, conditions in enumerate(self._goal.stages[stage:], stage):
                for c in conditions:
                    spans[c] = spans.get(c, (i, i))[0], i
            requirements = self._requirements[stage] = []
            for c, (first, last) in spans.items():
                second = self._device[c.y] if c.kind == "mark" else home.bit.get(c.y, 0)
                requirements.append(_Requirement(c.kind, test_of(self.rules, c), home.bit[c.x], second, first, last))
        return requirements

    def __call__(self, s: HomeState, stage: int) -> int:
        """Returns a lower bound on the commands from state `s` to the goal."""
        needs = self._unmet(s, stage)
        # Final places, without the places that things only pass through.
        final = dict(needs.puts) if needs.marks else needs.puts
        reopened = self._count_processes(s, needs, final)
        opened: dict[int, int] = {}  # door that must be opened -> first stage that needs it
        doors = self.rules.home.door
        for (x, y), when in needs.puts.items():
            needs.things.setdefault(x, []).append(when)
            if y & doors & ~s.open:
                opened[y] = min(when, opened.get(y, when))
        source = self._count_grabs(s, needs, opened, reopened)
        for door, when in opened.items():
            needs.actions.add(("open", door))
            if needs.shut.get(door, -1) >= when:
                needs.actions.add(("closed", door))
        walks = self._walks(s, needs.puts, final, source, needs.things, needs.actions, needs.room)
        return needs.extra + len(needs.puts) + len(needs.actions) + walks

    def _unmet(self, s: HomeState, stage: int) -> _Needs:
        """Returns the conditions of the remaining stages that do not hold in `s`."""
        needs = _Needs()
        for kind, holds, x, y, first, last in self._from(stage):
            if kind == "closed":
                needs.shut[x] = last
            if holds(s):
                continue
            if kind == "on" or kind == "in":
                needs.puts[x, y] = first
            elif kind == "mark":
                needs.marks.append((x, y, first))
            elif kind == "held":
                needs.hold[x] = last
                needs.things[x] = []
            elif kind == "served":
                needs.things[x] = []
            elif kind == "room":
                needs.room = x
            elif kind == "absent":
                needs.things.setdefault(x, [])
            elif kind == "bare":
                for bit, on, inside in zip(self.rules.home.movable_bits, s.on, s.inside, strict=True):
                    if bit != y and (on | inside) & x:
                        needs.things.setdefault(bit, [])
            else:
                needs.actions.add((kind, x))
        return needs

    def _count_processes(self, s: HomeState, needs: _Needs, final: dict[tuple[int, int], int]) -> set[int]:
        """Adds what appliances require for the missing marks. Returns the appliances that must be opened again."""
        home, first_movable = self.rules.home, self.rules.home.first_movable + 1
        must_open = {x for kind, x in needs.actions if kind == "open"} if needs.marks else set()
        reopened: set[int] = set()
        for x, device, first in needs.marks:
            i = x.bit_length() - first_movable
            door = device & home.door
            missing = not (s.inside[i] | s.on[i]) & device
            if door and device not in must_open and device not in reopened:
                leaves = any(item == x and y != device and when >= first for (item, y), when in final.items())
                if leaves or needs.hold.get(x, -1) >= first:
                    reopened.add(device)
                    needs.extra += 1 if device & home.always_on else 2
            if missing:
                needs.puts[x, device] = min(first, needs.puts.get((x, device), first))
            if door and (missing or s.open & device):
                needs.actions.add(("closed", device))
                if s.power & device:
                    needs.actions.add(("off", device))
            if not device & home.always_on and (door or not s.power & device):
                needs.actions.add(("running", device))
        return reopened

    def _count_grabs(self, s: HomeState, needs: _Needs, opened: dict[int, int], reopened: set[int]) -> dict[int, int]:
        """Adds the grabs of all things to move. Returns the furniture where each is grabbed (0: from a hand)."""
        home, first_movable = self.rules.home, self.rules.home.first_movable + 1
        source: dict[int, int] = {}
        for x, stages in needs.things.items():
            needs.extra += max(len(stages), 1)
            if stages and max(stages) <= needs.hold.get(x, -1):
                needs.extra += 1
            if x == s.right or x == s.left:
                needs.extra -= 1
                source[x] = 0
                continue
            i = x.bit_length() - first_movable
            place = s.on[i] or s.inside[i] & ~home.room_mask
            source[x] = self._root[place]
            if (closed := place & home.door & ~s.open) and closed not in reopened:
                when = min([*stages, needs.hold.get(x, NEVER)])
                opened[closed] = min(when, opened.get(closed, when))
        return source

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
