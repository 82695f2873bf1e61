"""The mended dynamics: the published verbs and checks, with what is broken in them put right.

What differs from `Engine`:

* a carried thing is where its carrier is, so walking to it is refused and nobody is thrown back to the room before;
* standing up leaves the seat, and what one faced there;
* one stands at a piece of furniture; all that stands on it or lies in it is within reach, and nothing else is;
* whatever lies somewhere lies in one place: a room, and there a container or a surface;
* appliances work: what is in a running one, its door shut, gets its mark ('heat'); a fridge works whenever it is shut;
  one with a door does not start while that is open;
* verbs check what they are done to (only a seat is sat on).
"""

from __future__ import annotations

from envsuite.envs.virtualhome.engine import (
    CLOSE,
    GRAB,
    OPEN,
    PUTBACK,
    PUTIN,
    SIT,
    SWITCHOFF,
    SWITCHON,
    WALK,
    Action,
    Engine,
    State,
    put,
)
from envsuite.envs.virtualhome.home import Home


class Mended(Engine):
    """The mended rules over one home. In its states `near` is the one piece of furniture the agent stands at, or 0."""

    def __init__(self, home: Home, nearsighted: bool = False) -> None:
        """`nearsighted`: loose things are seen only from the furniture they are at."""
        super().__init__(home)
        self.nearsighted = nearsighted
        self._fits = {
            GRAB: home.movable,
            OPEN: home.door,
            CLOSE: home.door,
            SWITCHON: home.switch,
            SWITCHOFF: home.switch,
            SIT: home.seat,
        }
        self._takes = {PUTIN: home.container, PUTBACK: home.surface}

    def _start(self) -> State:
        start = super()._start()
        return start._replace(on=tuple(on & -on for on in start.on))  # one support, the first

    def root(self, s: State, x: int) -> int:
        """What one stands at when beside x; 0 for what is in a hand."""
        home = self.home
        if x & home.movable:
            i = self.index(x)
            x = s.on[i] or s.inside[i] & ~home.room_mask
        return home.root.get(x, 0)

    def visible(self, s: State) -> int:
        home = self.home
        closed = home.door & ~s.open
        room, near = s.room, s.near
        seen = home.fixed_in[room] | s.right | s.left
        for bit, inside, on in zip(home.movable_bits, s.inside, s.on):
            if inside & room and not inside & closed:
                if self.nearsighted and home.root.get(on or inside & ~room, 0) != near:
                    continue
                seen |= bit
        return seen

    def reach(self, s: State, x: int) -> bool:
        if x == s.right or x == s.left:
            return True
        return bool(s.near) and self.root(s, x) == s.near

    def apply(self, s: State, action: Action, seen: int | None = None) -> tuple[State, str]:
        verb, x, y = action
        if (fits := self._fits.get(verb)) is not None and not x & fits:
            return s, "CANNOT"
        if (takes := self._takes.get(verb)) is not None and not y & takes:
            return s, "NO_PLACE"
        return super().apply(s, action, seen)

    def commands(self, s: State, seen: int) -> list[Action]:
        """Every action that would be accepted now: walks, then what can be done here."""
        home = self.home
        here = [bit for bit in home.bits(seen & home.target) if self.reach(s, bit)]
        found: list[Action] = []
        if not s.sitting:
            found += [Action(WALK, room) for room in home.room_bits if room != s.room]
            beyond = seen & home.target & ~sum(here)
            found += [Action(WALK, bit) for bit in home.bits(beyond)]
        held = [bit for bit in (s.right, s.left) if bit]
        free = len(held) < 2
        for x in here:
            if x & home.movable:
                if free and x not in held:
                    found.append(Action(GRAB, x))
                continue
            if x & home.door:
                if s.open & x:
                    found.append(Action(CLOSE, x))
                elif free and not s.power & x:
                    found.append(Action(OPEN, x))
            if x & home.switch and free:
                if s.power & x:
                    found.append(Action(SWITCHOFF, x))
                elif not s.open & x:
                    found.append(Action(SWITCHON, x))
            if x & home.container and (s.open & x or not x & home.door):
                found += [Action(PUTIN, item, x) for item in held]
            if x & home.surface:
                found += [Action(PUTBACK, item, x) for item in held]
            if x & home.seat and not s.sitting:
                found.append(Action(SIT, x))
        if s.sitting:
            found.append(Action("standup"))
        return found

    def marked(self, s: State, x: int, process: str) -> bool:
        """Whether x has been through a process."""
        return bool(s.marks & self.mark(x, process))

    def mark(self, x: int, process: str) -> int:
        """The bit in `marks` that says so."""
        home = self.home
        return 1 << (home.processes.index(process) * len(home.movable_bits) + self.index(x))

    def _work(self, s: State, device: int) -> State:
        """The marks that `device` leaves on what is in it or on it, if it works at the moment."""
        home = self.home
        process = home.process.get(device)
        if not process or not (s.power | home.always_on) & device or s.open & device:
            return s
        marks = s.marks
        for bit, inside, on in zip(home.movable_bits, s.inside, s.on):
            if (inside | on) & device:
                marks |= self.mark(bit, process)
        return s if marks == s.marks else s._replace(marks=marks)

    # ---- the verbs that differ --------------------------------------------------------------------------------------

    def _walk(self, s: State, x: int, y: int) -> tuple[State, str]:
        if s.sitting:
            return s, "SITTING"
        if x == s.right or x == s.left:
            return s, "HELD"
        room = x if x & self.home.room_mask else s.room
        inside = s.inside
        if room != s.room:
            for held in (s.right, s.left):
                if held:
                    inside = put(inside, self.index(held), room)
        near = 0 if x & self.home.room_mask else self.root(s, x)
        return (
            State(room, near, s.right, s.left, False, 0, 0, s.open, s.power, inside, s.on, s.links, s.marks),
            "",
        )

    def _grab(self, s: State, x: int, y: int) -> tuple[State, str]:
        after, error = super()._grab(s, x, y)
        return (after, error) if error else (after._replace(near=s.near), "")

    def _let_go(self, s: State, x: int, y: int) -> State:
        return s._replace(right=0, left=s.left) if s.right == x else s._replace(left=0)

    def _putin(self, s: State, x: int, y: int) -> tuple[State, str]:
        after, error = super()._putin(s, x, y)
        return (after, error) if error else (self._work(after, y), "")

    def _putback(self, s: State, x: int, y: int) -> tuple[State, str]:
        after, error = super()._putback(s, x, y)
        return (after, error) if error else (self._work(after, y), "")

    def _close(self, s: State, x: int, y: int) -> tuple[State, str]:
        after, error = super()._close(s, x, y)
        return (after, error) if error else (self._work(after, x), "")

    def _switchon(self, s: State, x: int, y: int) -> tuple[State, str]:
        if s.open & x and self.reach(s, x):
            return s, "DOOR_OPEN"
        after, error = super()._switchon(s, x, y)
        return (after, error) if error else (self._work(after, x), "")

    def _standup(self, s: State, x: int, y: int) -> tuple[State, str]:
        after, error = super()._standup(s, x, y)
        return (after, error) if error else (after._replace(seat=0, facing=0), "")
