"""Dynamics of version 1: the fixed rules, except that the player walks to rooms and furniture only.

A loose thing is reached by going to the furniture that it is on or in, so a player must know where things are.
"""

from __future__ import annotations

from envsuite.envs.virtualhome.rules.engine import WALK, HomeAction, HomeState
from envsuite.envs.virtualhome.rules.fixed_engine import FixedEngine
from envsuite.envs.virtualhome.rules.home import Home


class HouseholdEngine(FixedEngine):
    """Fixed rules in which nobody walks to a loose thing."""

    def __init__(self, home: Home, nearsighted: bool = False, start: HomeState | None = None) -> None:
        """`start` is the start of another engine of the same home, if there is one; it saves time."""
        self._known_start = start
        super().__init__(home, nearsighted)

    def _start(self) -> HomeState:
        return self._known_start or super()._start()

    _latest: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    """`inside` and `on` of the latest answer of `placed`"""
    _placed: dict[int, tuple[int, ...]] = {}

    def placed(self, s: HomeState) -> dict[int, tuple[int, ...]]:
        """Returns piece of furniture -> the loose things on or in it, without those that the player holds.

        Returns the same object until something is taken or put, because most commands are walks.
        """
        inside_of, on_of = self._latest
        if s.inside is not inside_of or s.on is not on_of:
            rooms = self.home.room_mask
            placed: dict[int, tuple[int, ...]] = {}
            for bit, inside, on in zip(self.home.movable_bits, s.inside, s.on, strict=True):
                if place := on or inside & ~rooms:
                    placed[place] = (*placed.get(place, ()), bit)
            self._latest, self._placed = (s.inside, s.on), placed
        return self._placed

    def things_on(self, s: HomeState, root: int) -> tuple[int, ...]:
        """Returns the loose things that can be taken at a piece of furniture at floor level, in their order."""
        placed, closed = self.placed(s), self.home.door & ~s.open
        things: tuple[int, ...] = ()
        several = False
        for piece in self.pieces[root]:
            if not piece & closed and piece in placed:
                several = several or bool(things)
                things += placed[piece]
        return tuple(sorted(things)) if several else things

    def apply(self, s: HomeState, action: HomeAction, seen: int | None = None) -> tuple[HomeState, str]:
        verb, x, y = action
        if verb == WALK:
            home = self.home
            if x & home.movable:
                return s, "LOOSE"
            if not x & (home.room_mask | home.fixed_in[s.room]):
                return s, "NOT_VISIBLE"
            after, error = self._walk(s, x, y)
            if after.inside is not s.inside and self._latest[0] is s.inside and self._latest[1] is s.on:
                self._latest = after.inside, s.on  # only what the player holds has changed its room
            return after, error
        return super().apply(s, action, seen)
