"""Published dynamics: one agent with two hands among rooms and things (docs/specs/virtualhome.md, "Dynamics").

A state is a tuple of integers whose bits stand for rooms and things (`Home.bit`). `HomeEngine` reproduces the
published rules with all their quirks; `fixed_engine.HomeRules` corrects them. A rejected action changes nothing and
returns its reason. There is no physics and no path-finding: every room is one walk away from every other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from envsuite.envs.virtualhome.home import Home

WALK, GRAB, PUTIN, PUTBACK, OPEN, CLOSE = "walk", "grab", "putin", "putback", "open", "close"
SWITCHON, SWITCHOFF, SIT, STANDUP = "switchon", "switchoff", "sit", "standup"


class HomeAction(NamedTuple):
    """Verb with the bits of its object `x` and, for put actions, its destination `y`."""

    verb: str
    x: int = 0
    y: int = 0


class HomeState(NamedTuple):
    """Complete changeable state; `inside`, `on` and `links` hold one mask per movable thing."""

    room: int
    near: int  # things to which the agent has a CLOSE edge
    right: int
    left: int
    sitting: bool
    seat: int  # the seat that the agent is ON
    facing: int
    open: int
    power: int
    inside: tuple[int, ...]  # room and container of each thing
    on: tuple[int, ...]
    links: tuple[int, ...]  # CLOSE edges to other things
    marks: int = 0  # processes that movables went through (fixed rules only)


def put(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    """Returns `values` with the entry at `index` replaced."""
    return (*values[:index], value, *values[index + 1 :])


Rule = Callable[[HomeState, int, int], tuple[HomeState, str]]
_RULES = {
    WALK: "_walk",
    GRAB: "_grab",
    PUTIN: "_putin",
    PUTBACK: "_putback",
    OPEN: "_open",
    CLOSE: "_close",
    SWITCHON: "_switchon",
    SWITCHOFF: "_switchoff",
    SIT: "_sit",
    STANDUP: "_standup",
}


class HomeEngine:
    """Published rules applied to one home."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.start = self._start()

    def _start(self) -> HomeState:
        home = self.home
        bit, movables = home.bit, home.movables
        inside = tuple([bit[t.room] | bit[t.inside] if t.inside else bit[t.room] for t in movables])
        on = tuple([home.support(t) for t in movables])
        links = (0,) * len(movables)
        return HomeState(bit[home.start], 0, 0, 0, False, 0, 0, home.opened, home.powered, inside, on, links)

    def index(self, movable: int) -> int:
        """Returns the index of a movable thing in `inside`, `on` and `links`."""
        return movable.bit_length() - 1 - self.home.first_movable

    def visible(self, s: HomeState) -> int:
        """Returns the things that an action can refer to: held, or in the room and not in a closed container."""
        home = self.home
        closed = home.door & ~s.open
        seen = home.fixed_in[s.room] | s.right | s.left
        for bit, inside in zip(home.movable_bits, s.inside, strict=True):
            if inside & s.room and not inside & closed:
                seen |= bit
        return seen

    def reach(self, s: HomeState, x: int) -> bool:
        """Returns True if x, the thing that supports it, or a thing linked to it is near the agent."""
        near = s.near
        if near & x:
            return True
        if x & self.home.movable:
            i = self.index(x)
            return bool(near & (s.on[i] | s.links[i]))
        if near & self.home.supports[x]:
            return True
        return any(near & bit and links & x for bit, links in zip(self.home.movable_bits, s.links, strict=True))

    def apply(self, s: HomeState, action: HomeAction, seen: int | None = None) -> tuple[HomeState, str]:
        """Returns the next state and the reason of a rejection ('': accepted); `seen` is `visible(s)`, if known."""
        verb, x, y = action
        mentioned = (x | y) & ~self.home.room_mask
        if mentioned:
            if seen is None:
                seen = self.visible(s)
            if mentioned & ~seen:
                return s, "NOT_VISIBLE"
        rule: Rule = getattr(self, _RULES[verb])  # bound methods kept in the engine would be a cycle of references
        return rule(s, x, y)

    # ---- verbs -------------------------------------------------------------------------------------------------

    def _walk(self, s: HomeState, x: int, y: int) -> tuple[HomeState, str]:
        if s.sitting:
            return s, "SITTING"
        home = self.home
        room, near = x, 0
        if not x & home.room_mask:
            place = s.inside[self.index(x)] if x & home.movable else home.room_of[x]
            room = place & home.room_mask
            near = x | (place & ~home.room_mask)
            near |= s.on[self.index(x)] if x & home.movable else home.supports[x]
            if x & home.door:
                near |= sum(bit for bit, inside in zip(home.movable_bits, s.inside, strict=True) if inside & x)
        inside, links = s.inside, s.links
        for held in (s.right, s.left):
            if held:
                i = self.index(held)
                inside, links = put(inside, i, s.room), put(links, i, 0)  # quirk: a carried thing stays one room behind
                near |= held
        return (
            HomeState(room, near, s.right, s.left, False, s.seat, 0, s.open, s.power, inside, s.on, links, s.marks),
            "",
        )

    def _grab(self, s: HomeState, x: int, y: int) -> tuple[HomeState, str]:
        if x in (s.right, s.left):
            return s, "ALREADY_GRABBED"
        if not self.reach(s, x):
            return s, "NOT_CLOSE"
        home, i = self.home, self.index(x)
        place = s.inside[i] & ~home.room_mask
        if place & home.door & ~s.open:
            return s, "IN_CLOSED"
        if s.right and s.left:
            return s, "NO_FREE_HAND"
        origin = s.on[i] or place or s.links[i]
        return s._replace(
            near=s.near | x | (origin & -origin),
            right=s.right or x,
            left=x if s.right else s.left,
            inside=put(s.inside, i, s.room),
            on=put(s.on, i, 0),
            links=put(s.links, i, 0),
        ), ""

    def _put_checks(self, s: HomeState, x: int, y: int) -> str:
        if x not in (s.right, s.left):
            return "NOT_HOLDING"
        return "" if self.reach(s, y) else "NOT_CLOSE"

    def _putin(self, s: HomeState, x: int, y: int) -> tuple[HomeState, str]:
        if error := self._put_checks(s, x, y):
            return s, error
        if y & self.home.door & ~s.open:
            return s, "DEST_NOT_OPEN"
        i = self.index(x)
        return self._let_go(s, x, y)._replace(inside=put(s.inside, i, s.inside[i] | y)), ""

    def _putback(self, s: HomeState, x: int, y: int) -> tuple[HomeState, str]:
        if error := self._put_checks(s, x, y):
            return s, error
        i = self.index(x)
        return self._let_go(s, x, y)._replace(on=put(s.on, i, s.on[i] | y)), ""

    def _let_go(self, s: HomeState, x: int, y: int) -> HomeState:
        i = self.index(x)
        right, left = (0, s.left) if s.right == x else (s.right, 0)
        return s._replace(near=s.near | y, right=right, left=left, links=put(s.links, i, s.links[i] | y))

    def _open(self, s: HomeState, x: int, y: int) -> tuple[HomeState, str]:
        if not self.reach(s, x):
            return s, "NOT_CLOSE"
        if s.right and s.left:
            return s, "NO_FREE_HAND"
        if s.open & x:
            return s, "NOT_CLOSED_STATE"
        if s.power & x:
            return s, "RUNNING"
        return s._replace(open=s.open | x), ""

    def _close(self, s: HomeState, x: int, y: int) -> tuple[HomeState, str]:
        if not self.reach(s, x):
            return s, "NOT_CLOSE"
        if not s.open & x:
            return s, "NOT_OPEN_STATE"
        return s._replace(open=s.open & ~x), ""

    def _switchon(self, s: HomeState, x: int, y: int) -> tuple[HomeState, str]:
        if not self.reach(s, x):
            return s, "NOT_CLOSE"
        if s.right and s.left:
            return s, "NO_FREE_HAND"
        if s.power & x:
            return s, "NOT_OFF_STATE"
        return s._replace(power=s.power | x), ""

    def _switchoff(self, s: HomeState, x: int, y: int) -> tuple[HomeState, str]:
        if not self.reach(s, x):
            return s, "NOT_CLOSE"
        if s.right and s.left:
            return s, "NO_FREE_HAND"
        if not s.power & x:
            return s, "NOT_ON_STATE"
        return s._replace(power=s.power & ~x), ""

    def _sit(self, s: HomeState, x: int, y: int) -> tuple[HomeState, str]:
        if not self.reach(s, x):
            return s, "NOT_CLOSE"
        if s.sitting:
            return s, "SITTING"
        return s._replace(sitting=True, seat=s.seat | x, facing=self.home.faces.get(x, 0)), ""

    def _standup(self, s: HomeState, x: int, y: int) -> tuple[HomeState, str]:
        return (s._replace(sitting=False), "") if s.sitting else (s, "NOT_SITTING")
