"""Fixed dynamics: the published verbs and checks with their faults corrected.

Differences from `HomeEngine`:

* A carried thing is in the agent's room; walking to it is refused instead of moving the agent back.
* Standing up leaves the seat and ends facing anything.
* The agent stands at one piece of furniture; exactly the things on it or in it are within reach.
* A thing is in exactly one place: a room, and there a container or a surface.
* Appliances work: the contents of a running appliance with its door closed receive its mark ('heat'). A fridge works
  whenever it is closed, and an appliance with an open door does not start.
* Verbs check the type of their objects (only seats can be sat on).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property

from envsuite.envs.virtualhome.rules.engine import (
    CLOSE,
    GRAB,
    OPEN,
    PUTBACK,
    PUTIN,
    SIT,
    SWITCHOFF,
    SWITCHON,
    WALK,
    HomeAction,
    HomeEngine,
    HomeState,
    put,
)
from envsuite.envs.virtualhome.rules.home import Home

Loose = tuple[tuple[int, tuple[int, ...]], ...]
"""(place, loose things there)"""


class FixedEngine(HomeEngine):
    """Fixed rules applied to one home; `near` in a state is the furniture at which the agent stands, or 0."""

    def __init__(self, home: Home, nearsighted: bool = False) -> None:
        """`nearsighted`: loose things are visible only from the furniture where they are."""
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
        self.predicates: dict[Hashable, Callable[[HomeState], bool]] = {}
        """condition -> its test, made by `goals.predicate`"""
        self._arrangement: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  # inside and on of the latest answer
        self._things_at: dict[int, tuple[int, ...]] = {}

    @cached_property
    def pieces(self) -> dict[int, tuple[int, ...]]:
        """Returns furniture at floor level -> itself and what stands on it."""
        home = self.home
        pieces: dict[int, tuple[int, ...]] | None = home.memo.get("pieces")
        if pieces is None:
            pieces = home.memo["pieces"] = {root: tuple(home.bits(mask)) for root, mask in home.at_root.items()}
        return pieces

    @cached_property
    def _places(self) -> dict[int, list[int]]:
        return {room: [room, *self.home.bits(mask)] for room, mask in self.home.fixed_in.items()}

    def _start(self) -> HomeState:
        start = super()._start()
        return start._replace(on=tuple([on & -on for on in start.on]))  # keep only the first support

    def root(self, s: HomeState, x: int) -> int:
        """Returns the furniture at which the agent stands when it is at x; 0 for a thing in a hand."""
        home = self.home
        if x & home.movable:
            i = self.index(x)
            x = s.on[i] or s.inside[i] & ~home.room_mask
        return home.root.get(x, 0)

    def things_at(self, s: HomeState) -> dict[int, tuple[int, ...]]:
        """Returns furniture -> the loose things on or in it, and room -> those in a hand or on the floor there.

        Stores the latest answer, because most commands are walks, which move nothing.
        """
        inside_of, on_of = self._arrangement
        if s.inside is not inside_of or s.on is not on_of:
            rooms = self.home.room_mask
            things: dict[int, tuple[int, ...]] = {}
            for bit, inside, on in zip(self.home.movable_bits, s.inside, s.on, strict=True):
                place = on or inside & ~rooms or inside
                things[place] = (*things.get(place, ()), bit)
            self._arrangement, self._things_at = (s.inside, s.on), things
        return self._things_at

    def loose(self, s: HomeState, room: int = 0) -> Loose:
        """Returns (place, things there) for the visible things that nobody holds.

        They are in the agent's room or, if `room` is given, anywhere in that one.
        """
        if self.nearsighted and not room:
            places: Sequence[int] = self.pieces[s.near] if s.near else [s.room]
        else:
            places = self._places[room or s.room]
        closed, rooms = self.home.door & ~s.open, self.home.room_mask
        things = self.things_at(s)
        loose = []
        for place in places:
            if place in things and not place & closed:
                there = things[place]
                if place & rooms:
                    there = tuple(bit for bit in there if bit != s.right and bit != s.left)
                loose.append((place, there))
        return tuple(loose)

    def visible(self, s: HomeState) -> int:
        return self.seen(s, self.loose(s))

    def seen(self, s: HomeState, loose: Loose) -> int:
        """Returns `visible(s)`; `loose` is `loose(s)`."""
        seen = self.home.fixed_in[s.room] | s.right | s.left
        for _, things in loose:
            for bit in things:
                seen |= bit
        return seen

    def reach(self, s: HomeState, x: int) -> bool:
        if x == s.right or x == s.left:
            return True
        return bool(s.near) and self.root(s, x) == s.near

    def apply(self, s: HomeState, action: HomeAction, seen: int | None = None) -> tuple[HomeState, str]:
        verb, x, y = action
        if (fits := self._fits.get(verb)) is not None and not x & fits:
            return s, "CANNOT"
        if (takes := self._takes.get(verb)) is not None and not y & takes:
            return s, "NO_PLACE"
        return super().apply(s, action, seen)

    def commands(self, s: HomeState, seen: int) -> list[HomeAction]:
        """Returns every action that would be accepted now: walks first, then actions within reach."""
        home = self.home
        here = [bit for bit in home.bits(seen & home.target) if self.reach(s, bit)]
        actions: list[HomeAction] = []
        if not s.sitting:
            actions += [HomeAction(WALK, room) for room in home.room_bits if room != s.room]
            elsewhere = seen & home.target & ~sum(here)
            actions += [HomeAction(WALK, bit) for bit in home.bits(elsewhere)]
        in_hand = [bit for bit in (s.right, s.left) if bit]
        free = len(in_hand) < 2
        for x in here:
            if x & home.movable:
                if free and x not in in_hand:
                    actions.append(HomeAction(GRAB, x))
                continue
            actions += self.furniture_actions(s, x, in_hand)
        if s.sitting:
            actions.append(HomeAction("standup"))
        return actions

    def furniture_actions(self, s: HomeState, x: int, in_hand: list[int]) -> list[HomeAction]:
        """Returns the actions on a piece of furniture within reach, with the things `in_hand`."""
        home, free = self.home, len(in_hand) < 2
        actions: list[HomeAction] = []
        if x & home.door:
            if s.open & x:
                actions.append(HomeAction(CLOSE, x))
            elif free and not s.power & x:
                actions.append(HomeAction(OPEN, x))
        if x & home.switch and free:
            if s.power & x:
                actions.append(HomeAction(SWITCHOFF, x))
            elif not s.open & x:
                actions.append(HomeAction(SWITCHON, x))
        if x & home.container and (s.open & x or not x & home.door):
            actions += [HomeAction(PUTIN, item, x) for item in in_hand]
        if x & home.surface:
            actions += [HomeAction(PUTBACK, item, x) for item in in_hand]
        if x & home.seat and not s.sitting:
            actions.append(HomeAction(SIT, x))
        return actions

    def marked(self, s: HomeState, x: int, process: str) -> bool:
        """Returns True if x went through a process."""
        return bool(s.marks & self.mark(x, process))

    def mark(self, x: int, process: str) -> int:
        """Returns the bit in `marks` that stands for thing x and a process."""
        home = self.home
        return 1 << (home.processes.index(process) * len(home.movable_bits) + self.index(x))

    def _work(self, s: HomeState, device: int) -> HomeState:
        """Returns the state after `device` has marked its contents, if it is working."""
        home = self.home
        process = home.process.get(device)
        if not process or not (s.power | home.always_on) & device or s.open & device:
            return s
        marks = s.marks
        for bit, inside, on in zip(home.movable_bits, s.inside, s.on, strict=True):
            if (inside | on) & device:
                marks |= self.mark(bit, process)
        return s if marks == s.marks else s._replace(marks=marks)

    # ---- verbs that differ --------------------------------------------------------------------------------------

    def _walk(self, s: HomeState, x: int, y: int) -> tuple[HomeState, str]:
        if s.sitting:
            return s, "SITTING"
        if x == s.right or x == s.left:
            return s, "HELD"
        room = x if x & self.home.room_mask else s.room
        inside = s.inside
        if room != s.room:
            for in_hand in (s.right, s.left):
                if in_hand:
                    inside = put(inside, self.index(in_hand), room)
        near = 0 if x & self.home.room_mask else self.root(s, x)
        return (
            HomeState(room, near, s.right, s.left, False, 0, 0, s.open, s.power, inside, s.on, s.links, s.marks),
            "",
        )

    def _grab(self, s: HomeState, x: int, y: int) -> tuple[HomeState, str]:
        next_state, error = super()._grab(s, x, y)
        return (next_state, error) if error else (next_state._replace(near=s.near), "")

    def _let_go(self, s: HomeState, x: int, y: int) -> HomeState:
        return s._replace(right=0, left=s.left) if s.right == x else s._replace(left=0)

    def _putin(self, s: HomeState, x: int, y: int) -> tuple[HomeState, str]:
        next_state, error = super()._putin(s, x, y)
        return (next_state, error) if error else (self._work(next_state, y), "")

    def _putback(self, s: HomeState, x: int, y: int) -> tuple[HomeState, str]:
        next_state, error = super()._putback(s, x, y)
        return (next_state, error) if error else (self._work(next_state, y), "")

    def _close(self, s: HomeState, x: int, y: int) -> tuple[HomeState, str]:
        next_state, error = super()._close(s, x, y)
        return (next_state, error) if error else (self._work(next_state, x), "")

    def _switchon(self, s: HomeState, x: int, y: int) -> tuple[HomeState, str]:
        if s.open & x and self.reach(s, x):
            return s, "DOOR_OPEN"
        next_state, error = super()._switchon(s, x, y)
        return (next_state, error) if error else (self._work(next_state, x), "")

    def _standup(self, s: HomeState, x: int, y: int) -> tuple[HomeState, str]:
        next_state, error = super()._standup(s, x, y)
        return (next_state, error) if error else (next_state._replace(seat=0, facing=0), "")
