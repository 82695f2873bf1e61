"""Dynamics of version 1: the fixed rules, except that the player walks to rooms and furniture only.

A loose thing is reached by going to the furniture that it is on or in, so a player must know where things are.
"""

from __future__ import annotations

from envsuite.envs.virtualhome.rules.engine import WALK, HomeAction, HomeState
from envsuite.envs.virtualhome.rules.fixed_engine import FixedEngine


class HouseholdEngine(FixedEngine):
    """Fixed rules in which nobody walks to a loose thing."""

    def apply(self, s: HomeState, action: HomeAction, seen: int | None = None) -> tuple[HomeState, str]:
        verb, x, y = action
        if verb == WALK:
            home = self.home
            if x & home.movable:
                return s, "LOOSE"
            if not x & (home.room_mask | home.fixed_in[s.room]):
                return s, "NOT_VISIBLE"
            return self._walk(s, x, y)
        return super().apply(s, action, seen)
