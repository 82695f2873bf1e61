"""Dense rewards of ALFWorld: subgoals found, taken, transformed and placed.

Each subgoal pays once per target object, on the first turn on which it holds, so no cycle of
commands pays:

| subgoal | reward | condition |
|---|---|---|
| found | 0.1 | an observation named an object of the goal's type |
| taken | 0.2 | such an object was in hand |
| transformed | 0.3 | one in hand was clean, hot or cool as required, or a lamp of the goal was lit |
| placed | up to 1 in total | one was in its destination, transformed as required |

The lamp applies to look_at_obj_in_light, where `placed` means that the game is won.
pick_and_place_simple and pick_two_obj_and_place have no transformation; in the latter each of the
two objects counts half. Winning pays the remainder, so a solved game pays 1 in total and an
unsolved one less.
"""

from __future__ import annotations

import re

from envsuite.envs.alfworld.engine import NativeEngine
from envsuite.envs.alfworld.games.game import LIGHT, PLACE_TWO, TRANSFORMS, AlfworldGame

WORTH = {"found": 0.1, "taken": 0.2, "transformed": 0.3, "placed": 0.4}
_NAMED = re.compile(r"\ba ([a-z]+ [0-9]+)")

Marks = tuple[frozenset[str], frozenset[int], int, int]
"""Names found, objects taken, transformed (0 or 1), most objects placed in one receptacle."""


class SubgoalTracker:
    """Subgoals of one episode."""

    __slots__ = (
        "_found_names",
        "_game",
        "_has_transformation",
        "_num_targets",
        "_placed",
        "_revision",
        "_search_word",
        "_taken",
        "_transformed",
        "value",
    )

    value: float
    """sum of the rewards so far"""
    _revision: int
    """the engine's `revision` at the last update"""
    _search_word: str | None
    """a word that every rewarding observation contains; None once all targets are found"""

    def __init__(self, game: AlfworldGame) -> None:
        kind = game.goal.kind
        self._game = game
        self._num_targets = 2 if kind == PLACE_TWO else 1
        self._has_transformation = kind == LIGHT or kind in TRANSFORMS
        self._found_names: frozenset[str] = frozenset()
        self._taken: frozenset[int] = frozenset()
        self._transformed = self._placed = 0
        self._revision, self._search_word, self.value = -1, game.target_word, 0.0

    def update(self, engine: NativeEngine, feedback: str) -> float:
        """Processes the result of a turn and returns its reward.

        The reward is zero unless the engine's `revision` has changed or `feedback` contains the
        search word.
        """
        changed = False
        word = self._search_word
        if word is not None and word in feedback:
            seen = self._found_names | self._game.target_names.intersection(_NAMED.findall(feedback))
            changed, self._found_names = len(seen) > len(self._found_names), seen
            if len(seen) >= self._num_targets:
                self._search_word = None
        if engine.revision != self._revision:
            self._revision = engine.revision
            changed |= engine.won or self._update_from_engine(engine)
        if not changed:
            return 0.0
        value = 1.0 if engine.won else self._value()
        reward, self.value = value - self.value, value
        return reward

    def _update_from_engine(self, engine: NativeEngine) -> bool:
        game, held = self._game, engine.held
        changed = False
        if held in game.targets:
            if held not in self._taken:
                self._taken |= {held}
                changed = True
            if self._has_transformation and not self._transformed and game.goal.kind != LIGHT:
                verb = TRANSFORMS[game.goal.kind]
                done = engine.clean if verb == "clean" else engine.hot if verb == "heat" else engine.cool
                self._transformed = done >> held & 1
                changed |= bool(self._transformed)
        elif game.goal.kind == PLACE_TWO and not self._placed:
            # Skipped while a target is in hand, because a copy of it may still be listed elsewhere.
            self._placed = int(any(not game.targets.isdisjoint(engine.contents[r]) for r in game.destinations))
            changed |= bool(self._placed)
        if game.goal.kind == LIGHT and not self._transformed and engine.toggled:
            self._transformed = int(any(engine.toggled >> lamp & 1 for lamp in game.lamps))
            changed |= bool(self._transformed)
        return changed

    def _value(self) -> float:
        num_targets = self._num_targets
        value = WORTH["found"] * min(len(self._found_names), num_targets) + WORTH["taken"] * min(
            len(self._taken), num_targets
        )
        if self._has_transformation:
            value += WORTH["transformed"] * self._transformed
        elif num_targets == 2:
            value += (WORTH["transformed"] + WORTH["placed"]) * self._placed
        return value / num_targets

    def get_state(self) -> Marks:
        return self._found_names, self._taken, self._transformed, self._placed

    def set_state(self, marks: Marks, won: bool) -> None:
        self._found_names, self._taken, self._transformed, self._placed = marks
        self._revision = -1
        self._search_word = self._game.target_word if len(self._found_names) < self._num_targets else None
        self.value = 1.0 if won else self._value()
