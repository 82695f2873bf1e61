"""How many commands a goal takes at the least: the admissible bound of the planner's A*.

It counts what every plan must hold: each put, grab, door, switch and seat that some condition still lacks, a walk to
each piece of furniture where these happen and to each room these stand in, and as many returns as two hands make
necessary. Nothing is counted twice, so the bound never exceeds the true number.
"""

from __future__ import annotations

from typing import NamedTuple

from envsuite.envs.virtualhome.engine import State
from envsuite.envs.virtualhome.goals import Goal, Test, test
from envsuite.envs.virtualhome.mended import Mended

NEVER = 1 << 20


class _Want(NamedTuple):
    """A condition of the stages to come, with the first and last of them that ask for it."""

    kind: str
    holds: Test
    x: int
    y: int
    first: int
    last: int


class Bound:
    """The bound for one goal: call it with a state and the stage it has reached."""

    def __init__(self, engine: Mended, goal: Goal) -> None:
        self.engine = engine
        home = engine.home
        device = {thing.process: home.bit[key] for key, thing in home.things.items() if thing.process}
        self._root, self._room = home.root, home.room_of
        self.stages: list[list[_Want]] = []
        for k in range(len(goal.stages) + 1):
            spans: dict[tuple[str, str, str], tuple[int, int]] = {}
            for i, stage in enumerate(goal.stages[k:], k):
                for c in stage:
                    spans[c] = spans.get(c, (i, i))[0], i
            wants = []
            for (kind, x, y), (first, last) in spans.items():
                other = device[y] if kind == "mark" else home.bit.get(y, 0)
                holds = test(engine, next(c for stage in goal.stages for c in stage if c == (kind, x, y)))
                wants.append(_Want(kind, holds, home.bit[x], other, first, last))
            self.stages.append(wants)

    def __call__(self, s: State, stage: int) -> int:
        engine = self.engine
        home = engine.home
        doors, first_movable = home.door, home.first_movable + 1
        puts: dict[tuple[int, int], int] = {}  # (thing, where) -> the stage that needs it
        hold: dict[int, int] = {}  # thing -> the stage that needs it in a hand
        shut: dict[int, int] = {}  # door -> the last stage that wants it shut
        deeds: set[tuple[str, int]] = set()  # doors, switches and seats
        marks: list[tuple[int, int, int]] = []  # (thing, appliance, stage)
        things: dict[int, list[int]] = {}  # thing that must be taken -> the stages of its puts
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
                deeds.add((kind, x))
        asked_open = {x for kind, x in deeds if kind == "open"} if marks else set()
        emptied: set[int] = set()  # appliances that must be opened again
        final = dict(puts) if marks else puts  # where things must be in the end, not only pass through
        for x, device, first in marks:
            i = x.bit_length() - first_movable
            door = device & doors
            lacking = not (s.inside[i] | s.on[i]) & device
            if door and device not in asked_open and device not in emptied:
                leaves = any(item == x and y != device and when >= first for (item, y), when in final.items())
                if leaves or hold.get(x, -1) >= first:
                    emptied.add(device)
                    extra += 1 if device & home.always_on else 2
            if lacking:
                puts[x, device] = min(first, puts.get((x, device), first))
            if door and (lacking or s.open & device):
                deeds.add(("closed", device))
                if s.power & device:
                    deeds.add(("off", device))
            if not device & home.always_on and (door or not s.power & device):
                deeds.add(("running", device))
        opened: dict[int, int] = {}  # door that must be opened -> the first stage that needs it
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
            if (closed := place & doors & ~s.open) and closed not in emptied:
                when = min([*stages, hold.get(x, NEVER)])
                opened[closed] = min(when, opened.get(closed, when))
        for door, when in opened.items():
            deeds.add(("open", door))
            if shut.get(door, -1) >= when:
                deeds.add(("closed", door))
        return extra + len(puts) + len(deeds) + self._walks(s, puts, final, source, things, deeds, room)

    def _walks(
        self,
        s: State,
        puts: dict[tuple[int, int], int],
        final: dict[tuple[int, int], int],
        source: dict[int, int],
        things: dict[int, list[int]],
        deeds: set[tuple[str, int]],
        room: int,
    ) -> int:
        """Walks to furniture and rooms that no plan can do without. `source`: where things are taken, 0: from a hand."""
        root_of, room_of = self._root, self._room
        near, present = s.near, s.room
        visits = {root_of[x]: 1 for _, x in deeds}
        for root in source.values():
            visits[root] = 1
        brought: dict[int, int] = {}  # furniture -> things to be brought there
        imported: dict[int, int] = {}  # room -> things to be brought there
        for (x, y), when in puts.items():
            root, origin = root_of[y], source[x]
            visits[root] = 1
            there = room_of[root]
            here = root == (origin or near)
            inside = there == (room_of[origin] if origin else present)
            if (here or inside) and len(things[x]) > 1 and (x, y) in final:
                for (other, z), earlier in puts.items():
                    first = earlier < when or (earlier == when and (x, z) not in final)
                    if other == x and first and root_of[z] != root:  # it goes there first, and must come back
                        here = False
                        inside = inside and room_of[root_of[z]] == there
            if not here:
                brought[root] = brought.get(root, 0) + 1
            if not inside:
                imported[there] = imported.get(there, 0) + 1
        visits.pop(0, None)
        visits.pop(near, None)
        rooms = {room_of[root]: 1 for root in visits}
        if room:
            rooms[room] = 1
        rooms.pop(present, None)
        walks = len(visits) + len(rooms)
        for root, count in brought.items():
            walks += max((count + 1) // 2 - visits.get(root, 0), 0)
        for there, count in imported.items():
            walks += max((count + 1) // 2 - rooms.get(there, 0), 0)
        return walks + (s.sitting and walks > 0)
