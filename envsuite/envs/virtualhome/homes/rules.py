"""Rules of drawn homes: the published verbs and checks with their faults corrected.

Differences from `HomeEngine`:

* A carried thing is in the agent's room; walking to it is refused instead of moving the agent back.
* Standing up leaves the seat and ends facing anything.
* The agent is at one piece of furniture; exactly the things on it or in it are within reach. A loose thing is
  reached by going to the furniture that it is on or in, so a player must know where things are.
* A thing is in exactly one place: a room, and there a container or a surface.
* Appliances work: the contents of a running appliance with its door closed receive its mark ('heat'). A fridge works
  whenever it is closed, and an appliance with an open door does not start.
* Verbs check the type of their objects (only seats can be sat on).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property

from envsuite.envs.virtualhome.engine import (
    CLOSE,
    GRAB,
    OPEN,
    PUTBACK,
    PUTIN,
    SIT,
    STANDUP,
    SWITCHOFF,
    SWITCHON,
    WALK,
    HomeAction,
    HomeEngine,
    HomeState,
    put,
)
from envsuite.envs.virtualhome.home import Home

Result = tuple[HomeState, str]
"""The next state, and the reason of a refusal or ''."""


class HomeRules(HomeEngine):
    """Corrected rules in one home; `near` in a state is the furniture at which the agent stands, or 0."""

    def __init__(self, home: Home, nearsighted: bool = False) -> None:
        """`nearsighted`: loose things are visible only from the furniture where they are."""
        super().__init__(home)
        self.nearsighted = nearsighted
        self._required = {
            GRAB: home.movable,
            OPEN: home.door,
            CLOSE: home.door,
            SWITCHON: home.switch,
            SWITCHOFF: home.switch,
            SIT: home.seat,
        }
        self.tests: dict[Hashable, Callable[[HomeState], bool]] = {}
        """condition -> its test, made by `conditions.test_of`"""
        self._placed_for: HomeState | None = None
        self._placed: dict[int, tuple[int, ...]] = {}

    @cached_property
    def pieces(self) -> dict[int, tuple[int, ...]]:
        """Returns furniture at floor level -> itself and what stands on it."""
        return {root: tuple(self.home.bits(mask)) for root, mask in self.home.at_root.items()}

    @cached_property
    def furniture(self) -> dict[int, tuple[int, ...]]:
        """Returns room -> its furniture."""
        return {room: tuple(self.home.bits(mask)) for room, mask in self.home.fixed_in.items()}

    def _start(self) -> HomeState:
        start = super()._start()
        return start._replace(on=tuple([on & -on for on in start.on]))  # keep only the first support

    # ---- where things are ------------------------------------------------------------------------------------------

    def place_of(self, s: HomeState, item: int) -> int:
        """Returns the furniture on or in which a loose thing is; 0 for a thing in a hand."""
        i = self.index(item)
        return s.on[i] or s.inside[i] & ~self.home.room_mask

    def root(self, s: HomeState, x: int) -> int:
        """Returns the furniture at which the agent stands when it is at x; 0 for a thing in a hand."""
        return self.home.root.get(self.place_of(s, x) if x & self.home.movable else x, 0)

    def placed(self, s: HomeState) -> dict[int, tuple[int, ...]]:
        """Returns piece of furniture -> the loose things on or in it, and room -> those in a hand there.

        Keeps the answer for the latest state, because several texts and offers of a turn need it.
        """
        if s is not self._placed_for:
            placed: dict[int, tuple[int, ...]] = {}
            for bit, inside, on in zip(self.home.movable_bits, s.inside, s.on, strict=True):
                place = on or inside & ~self.home.room_mask or inside
                placed[place] = (*placed.get(place, ()), bit)
            self._placed_for, self._placed = s, placed
        return self._placed

    def loose_at(self, s: HomeState, root: int) -> tuple[int, ...]:
        """Returns the loose things that can be taken at a piece of furniture at floor level, in their order."""
        placed, closed = self.placed(s), self.home.door & ~s.open
        return tuple(
            sorted(item for piece in self.pieces[root] if not piece & closed for item in placed.get(piece, ()))
        )

    def visible(self, s: HomeState) -> int:
        """Returns the things that an action can refer to: held, or in sight and not behind a closed door."""
        places = self.pieces[s.near] if self.nearsighted and s.near else (s.room,)
        if not self.nearsighted:
            places += self.furniture[s.room]
        placed, closed = self.placed(s), self.home.door & ~s.open
        visible = self.home.fixed_in[s.room] | s.right | s.left
        for place in places:
            if not place & closed:
                visible |= sum(placed.get(place, ()))
        return visible

    def reach(self, s: HomeState, x: int) -> bool:
        if x == s.right or x == s.left:
            return True
        return bool(s.near) and self.root(s, x) == s.near

    # ---- commands --------------------------------------------------------------------------------------------------

    def apply(self, s: HomeState, action: HomeAction, seen: int | None = None) -> Result:
        verb, x, y = action
        if verb == WALK:
            if x & self.home.movable:
                return s, "LOOSE"
            if not x & (self.home.room_mask | self.home.fixed_in[s.room]):
                return s, "NOT_VISIBLE"
            return self._walk(s, x, y)
        if verb in self._required and not x & self._required[verb]:
            return s, "CANNOT"
        if (verb == PUTIN and not y & self.home.container) or (verb == PUTBACK and not y & self.home.surface):
            return s, "NO_PLACE"
        return super().apply(s, action, seen)

    def commands(self, s: HomeState) -> list[HomeAction]:
        """Returns every action that would be accepted now: walks first, then actions at the furniture within reach."""
        if s.sitting:
            return [HomeAction(STANDUP), *self.actions_here(s)]
        return [*self.walks(s), *self.actions_here(s)]

    def walks(self, s: HomeState) -> list[HomeAction]:
        """Returns the walks to other rooms, and to the furniture of the room that is not within reach."""
        home = self.home
        elsewhere = home.fixed_in[s.room] & home.target & ~home.at_root.get(s.near, 0)
        return [HomeAction(WALK, bit) for bit in (*home.room_bits, *home.bits(elsewhere)) if bit != s.room]

    def actions_here(self, s: HomeState) -> list[HomeAction]:
        """Returns the actions at the furniture where the agent is: takes first, then the use of each piece."""
        if not s.near:
            return []
        home = self.home
        held = [bit for bit in (s.right, s.left) if bit]
        has_free_hand = len(held) < 2
        actions = [HomeAction(GRAB, bit) for bit in self.loose_at(s, s.near)] if has_free_hand else []
        for x in self.pieces[s.near]:
            if not x & home.target:
                continue
            is_open, is_on = bool(s.open & x), bool(s.power & x)
            if x & home.door and is_open:
                actions.append(HomeAction(CLOSE, x))
            elif x & home.door and has_free_hand and not is_on:
                actions.append(HomeAction(OPEN, x))
            if x & home.switch and has_free_hand and is_on:
                actions.append(HomeAction(SWITCHOFF, x))
            elif x & home.switch and has_free_hand and not is_open:
                actions.append(HomeAction(SWITCHON, x))
            if x & home.container and (is_open or not x & home.door):
                actions += [HomeAction(PUTIN, item, x) for item in held]
            if x & home.surface:
                actions += [HomeAction(PUTBACK, item, x) for item in held]
            if x & home.seat and not s.sitting:
                actions.append(HomeAction(SIT, x))
        return actions

    # ---- appliances ------------------------------------------------------------------------------------------------

    def marked(self, s: HomeState, x: int, process: str) -> bool:
        """Returns True if x went through a process."""
        return bool(s.marks & self.mark(x, process))

    def mark(self, x: int, process: str) -> int:
        """Returns the bit in `marks` that stands for thing x and a process."""
        home = self.home
        return 1 << (home.processes.index(process) * len(home.movable_bits) + self.index(x))

    def _work(self, result: Result, device: int) -> Result:
        """Returns a result after `device` has marked its contents, if the action was accepted and the device works."""
        s, error = result
        process = self.home.process.get(device)
        is_working = (s.power | self.home.always_on) & device and not s.open & device
        if error or not process or not is_working:
            return result
        marks = s.marks
        for bit, inside, on in zip(self.home.movable_bits, s.inside, s.on, strict=True):
            if (inside | on) & device:
                marks |= self.mark(bit, process)
        return s._replace(marks=marks), ""

    # ---- verbs that differ -----------------------------------------------------------------------------------------

    def _walk(self, s: HomeState, x: int, y: int) -> Result:
        if s.sitting:
            return s, "SITTING"
        is_room = bool(x & self.home.room_mask)
        room = x if is_room else s.room
        inside = s.inside
        if room != s.room:
            for held in (s.right, s.left):
                if held:
                    inside = put(inside, self.index(held), room)
        return s._replace(room=room, near=0 if is_room else self.root(s, x), seat=0, facing=0, inside=inside), ""

    def _grab(self, s: HomeState, x: int, y: int) -> Result:
        after, error = super()._grab(s, x, y)
        return (after, error) if error else (after._replace(near=s.near), "")

    def _let_go(self, s: HomeState, x: int, y: int) -> HomeState:
        return s._replace(right=0, left=s.left) if s.right == x else s._replace(left=0)

    def _putin(self, s: HomeState, x: int, y: int) -> Result:
        return self._work(super()._putin(s, x, y), y)

    def _putback(self, s: HomeState, x: int, y: int) -> Result:
        return self._work(super()._putback(s, x, y), y)

    def _close(self, s: HomeState, x: int, y: int) -> Result:
        return self._work(super()._close(s, x, y), x)

    def _switchon(self, s: HomeState, x: int, y: int) -> Result:
        if s.open & x and self.reach(s, x):
            return s, "DOOR_OPEN"
        return self._work(super()._switchon(s, x, y), x)

    def _standup(self, s: HomeState, x: int, y: int) -> Result:
        after, error = super()._standup(s, x, y)
        return (after, error) if error else (after._replace(seat=0, facing=0), "")
