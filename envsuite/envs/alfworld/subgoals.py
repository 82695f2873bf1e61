"""How far a game has come: an object of the goal found, taken, transformed, placed.

Each is paid once per object the task asks for, on the first turn it holds, so nothing can be earned twice:

| subgoal | worth | holds |
|---|---|---|
| found | 0.1 | an object of the goal's type was named in an observation |
| taken | 0.2 | one was in hand |
| transformed | 0.3 | one was in hand clean, hot or cool as asked; for look_at_obj_in_light: a lamp of the goal was lit |
| placed | the rest, to 1 | one lay where it belongs, transformed if asked; for look_at_obj_in_light: it was won |

pick_and_place_simple and pick_two_obj_and_place know no transformation; in the latter each of the two objects is worth
half. Winning pays whatever is left, so a solved game pays 1 in all, and an unsolved one less.
"""

from __future__ import annotations

import re

from envsuite.envs.alfworld.engine import NativeEngine
from envsuite.envs.alfworld.game import LIGHT, PLACE_TWO, TRANSFORMS, Game

WORTH = {"found": 0.1, "taken": 0.2, "transformed": 0.3, "placed": 0.4}
_NAMED = re.compile(r"\ba ([a-z]+ [0-9]+)")

Marks = tuple[frozenset[str], frozenset[int], int, int]
"""Names found, objects taken, transformed (0 or 1), most placed in one receptacle."""


class Subgoals:
    """The ledger of one episode."""

    __slots__ = (
        "changes", "deeds", "found", "game", "names", "placed", "searching", "taken", "transformed", "value",
        "wanted", "word",
    )  # fmt: skip

    def __init__(self, game: Game) -> None:
        kind = game.goal.kind
        self.game = game
        self.wanted = 2 if kind == PLACE_TWO else 1
        self.changes = kind == LIGHT or kind in TRANSFORMS
        self.word = game.goal.object_type.removesuffix("type")
        self.names = frozenset(game.objects[o] for o in game.targets)
        self.found: frozenset[str] = frozenset()
        self.taken: frozenset[int] = frozenset()
        self.transformed = self.placed = 0
        self.value = 0.0
        self.searching = True
        self.deeds = -1

    def note(self, engine: NativeEngine, feedback: str) -> float:
        """Takes in what a turn led to and showed; returns what it pays."""
        if engine.won:
            value = 1.0
        else:
            changed = False
            if self.searching and self.word in feedback:
                seen = self.found | self.names.intersection(_NAMED.findall(feedback))
                changed, self.found = len(seen) > len(self.found), seen
                self.searching = len(seen) < self.wanted
            if engine.deeds != self.deeds:
                self.deeds = engine.deeds
                changed |= self._acted(engine)
            if not changed:
                return 0.0
            value = self._value()
        gained, self.value = value - self.value, value
        return gained

    def _acted(self, engine: NativeEngine) -> bool:
        game, held = self.game, engine.held
        changed = False
        if held in game.targets:
            if held not in self.taken:
                self.taken |= {held}
                changed = True
            if self.changes and not self.transformed and game.goal.kind != LIGHT:
                verb = TRANSFORMS[game.goal.kind]
                done = engine.clean if verb == "clean" else engine.hot if verb == "heat" else engine.cool
                self.transformed = done >> held & 1
                changed |= bool(self.transformed)
        elif game.goal.kind == PLACE_TWO and not self.placed:
            # Not while something else of the goal is in hand: what was just taken may still be listed elsewhere.
            self.placed = int(any(not game.targets.isdisjoint(engine.contents[r]) for r in game.destinations))
            changed |= bool(self.placed)
        if game.goal.kind == LIGHT and not self.transformed and engine.toggled:
            self.transformed = int(any(engine.toggled >> lamp & 1 for lamp in game.lamps))
            changed |= bool(self.transformed)
        return changed

    def _value(self) -> float:
        wanted = self.wanted
        value = WORTH["found"] * min(len(self.found), wanted) + WORTH["taken"] * min(len(self.taken), wanted)
        if self.changes:
            value += WORTH["transformed"] * self.transformed
        elif wanted == 2:
            value += (WORTH["transformed"] + WORTH["placed"]) * self.placed
        return value / wanted

    def get_state(self) -> Marks:
        return self.found, self.taken, self.transformed, self.placed

    def set_state(self, marks: Marks, won: bool) -> None:
        self.found, self.taken, self.transformed, self.placed = marks
        self.searching = len(self.found) < self.wanted
        self.value = 1.0 if won else self._value()
