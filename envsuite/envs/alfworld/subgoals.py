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

from envsuite.envs.alfworld.books import BatchState
from envsuite.envs.alfworld.engine import NativeEngine
from envsuite.envs.alfworld.game import LIGHT, PLACE_TWO, TRANSFORMS, Game

WORTH = {"found": 0.1, "taken": 0.2, "transformed": 0.3, "placed": 0.4}
_NAMED = re.compile(r"\ba ([a-z]+ [0-9]+)")

Marks = tuple[frozenset[str], frozenset[int], int, int]
"""Names found, objects taken, transformed (0 or 1), most placed in one receptacle."""


class Subgoals:
    """The ledger of one episode."""

    __slots__ = ("_books", "_changes", "_found", "_game", "_placed", "_seat", "_taken", "_transformed", "_wanted")

    def __init__(self, game: Game, books: BatchState, seat: int) -> None:
        """Its lines are those of `seat` in the books."""
        kind = game.goal.kind
        self._game, self._books, self._seat = game, books, seat
        self._wanted = 2 if kind == PLACE_TWO else 1
        self._changes = kind == LIGHT or kind in TRANSFORMS
        self._found: frozenset[str] = frozenset()
        self._taken: frozenset[int] = frozenset()
        self._transformed = self._placed = 0
        books.deeds[seat], books.sought[seat], books.paid[seat], books.lost[seat] = -1, game.target_word, 0.0, False

    @property
    def value(self) -> float:
        """Paid so far."""
        return self._books.paid[self._seat]

    def note(self, engine: NativeEngine, feedback: str) -> float:
        """Takes in what a turn led to and showed; returns what it pays.

        That is nothing unless the engine's deeds are not those in the books, or `feedback` holds the word sought.
        """
        books, seat = self._books, self._seat
        changed = False
        word = books.sought[seat]
        if word is not None and word in feedback:
            seen = self._found | self._game.target_names.intersection(_NAMED.findall(feedback))
            changed, self._found = len(seen) > len(self._found), seen
            if len(seen) >= self._wanted:
                books.sought[seat] = None
        if engine.deeds != books.deeds[seat]:
            books.deeds[seat], books.lost[seat] = engine.deeds, engine.dead_end
            changed |= engine.won or self._acted(engine)
        if not changed:
            return 0.0
        value = 1.0 if engine.won else self._value()
        gained, books.paid[seat] = value - books.paid[seat], value
        return gained

    def _acted(self, engine: NativeEngine) -> bool:
        game, held = self._game, engine.held
        changed = False
        if held in game.targets:
            if held not in self._taken:
                self._taken |= {held}
                changed = True
            if self._changes and not self._transformed and game.goal.kind != LIGHT:
                verb = TRANSFORMS[game.goal.kind]
                done = engine.clean if verb == "clean" else engine.hot if verb == "heat" else engine.cool
                self._transformed = done >> held & 1
                changed |= bool(self._transformed)
        elif game.goal.kind == PLACE_TWO and not self._placed:
            # Not while something else of the goal is in hand: what was just taken may still be listed elsewhere.
            self._placed = int(any(not game.targets.isdisjoint(engine.contents[r]) for r in game.destinations))
            changed |= bool(self._placed)
        if game.goal.kind == LIGHT and not self._transformed and engine.toggled:
            self._transformed = int(any(engine.toggled >> lamp & 1 for lamp in game.lamps))
            changed |= bool(self._transformed)
        return changed

    def _value(self) -> float:
        wanted = self._wanted
        value = WORTH["found"] * min(len(self._found), wanted) + WORTH["taken"] * min(len(self._taken), wanted)
        if self._changes:
            value += WORTH["transformed"] * self._transformed
        elif wanted == 2:
            value += (WORTH["transformed"] + WORTH["placed"]) * self._placed
        return value / wanted

    def get_state(self) -> Marks:
        return self._found, self._taken, self._transformed, self._placed

    def set_state(self, marks: Marks, won: bool) -> None:
        self._found, self._taken, self._transformed, self._placed = marks
        books, seat = self._books, self._seat
        books.deeds[seat] = -1
        books.sought[seat] = self._game.target_word if len(self._found) < self._wanted else None
        books.paid[seat] = 1.0 if won else self._value()
