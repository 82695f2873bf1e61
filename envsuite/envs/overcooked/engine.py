"""The macro-actions, made of primitive steps (docs/specs/overcooked.md, "Macro-actions"), of one cook or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from envsuite.envs.overcooked.kitchen import STAY, UNREACHABLE, Kitchen
from envsuite.envs.overcooked.motion import CHOPS, NOTHING, PUBLISHED, Motion, Rewards

PATIENCE = 4  # steps a cook lets others hold it up in one macro-action
DETOUR = 6  # steps a cook goes out of its way round others rather than wait

GET_FOOD, GET_BOWL, GO_TO_BOARD, DELIVER, CHOP, GO_TO_COUNTER = range(6)
"""The kinds of macro-action."""


class Macro(NamedTuple):
    """A macro-action: `which` counts the foods, bowls or boards from 0."""

    verb: int
    which: int
    name: str


def macro_actions(kitchen: Kitchen, counters: bool) -> list[Macro]:
    """The macro-actions of a kitchen in the published order, with "go to counter" last where asked for."""
    macros = [Macro(GET_FOOD, i, f"get {food}") for i, food in enumerate(kitchen.foods)]
    macros += [Macro(GET_BOWL, i, f"get plate {i + 1}") for i in range(len(kitchen.bowl_homes))]
    macros += [Macro(GO_TO_BOARD, i, f"go to knife {i + 1}") for i in range(len(kitchen.boards))]
    macros += [Macro(DELIVER, 0, "deliver"), Macro(CHOP, 0, "chop")]
    if counters:
        macros.append(Macro(GO_TO_COUNTER, 0, "go to counter"))
    return macros


class Simulation(Motion):
    """One kitchen in motion, with one or more cooks who do macro-actions.

    `begin` gives a cook a macro-action, `tick` plays one primitive step of everyone; a cook whose `macro` is None has
    ended and waits. All state that matters while nobody is at work is in `save()`; `under_way()` has the rest.
    """

    def __init__(self, kitchen: Kitchen, recipe: Iterable[str], rewards: Rewards = PUBLISHED, radius: int = 2) -> None:
        """`radius` is what a cook sees in each direction: one macro-action ends where the bowl comes into sight."""
        self.slips: Callable[[], bool] | None = None
        """asked at each primitive step whether it fails: the cook then stays"""
        super().__init__(kitchen, recipe, rewards, radius)

    def _forget(self) -> None:
        super()._forget()
        cooks = len(self.cell)
        self.macro: list[Macro | None] = [None] * cooks
        self.aim = [NOTHING] * cooks  # the cell a macro-action was given at its start
        self.left = [0] * cooks  # chops still to do
        self.waited = [0] * cooks
        self._passed = NOTHING  # the cook who has been walked past in this tick, and has so had its step

    def under_way(self) -> tuple[Any, ...]:
        """The macro-actions that `save` leaves out, for `resume`."""
        return tuple(self.macro), tuple(self.aim), tuple(self.left), tuple(self.waited)

    def resume(self, under_way: tuple[Any, ...]) -> None:
        """After `load`, goes on with the macro-actions of `under_way`."""
        self.macro, self.aim, self.left, self.waited = map(list, under_way)

    def copy(self) -> Simulation:
        """An independent simulation in the same moment."""
        twin = Simulation(self.kitchen, self.order, self.rewards, self.radius)
        twin.load(self.save())
        twin.resume(self.under_way())
        return twin

    def begin(self, cook: int, macro: Macro) -> None:
        """Gives `cook` a macro-action to do from the next tick on."""
        self.macro[cook] = macro
        self.waited[cook] = 0
        verb = macro.verb
        if verb == CHOP:
            self.aim[cook], self.left[cook] = self.board_to_chop_at(cook), CHOPS
        elif verb == GO_TO_BOARD:
            self.aim[cook] = self.kitchen.boards[macro.which]
        elif verb == DELIVER:
            self.aim[cook] = self._nearest(cook, self.kitchen.deliveries)
        elif verb == GO_TO_COUNTER:
            self.aim[cook] = self._free_counter(cook) if macro.which >= 0 else NOTHING

    def tick(self) -> float:
        """One primitive step of each cook that has a macro-action, in order. Returns the reward without the step cost."""
        self.chopped_now = self.wrong_now = 0
        reward = 0.0
        self._passed = NOTHING
        for cook, macro in enumerate(self.macro):
            if macro is not None and not self.delivered and cook != self._passed:
                reward += self._advance(cook, macro)
        if self.delivered:
            self.macro = [None] * len(self.macro)
        return reward

    def target(self, cook: int) -> int:
        """The cell a cook is on its way to, or NOTHING."""
        macro = self.macro[cook]
        if macro is None:
            return NOTHING
        if macro.verb <= GET_BOWL:
            return self.place[macro.which if macro.verb == GET_FOOD else self.n_foods + macro.which]
        return self.aim[cook]

    def _advance(self, cook: int, macro: Macro) -> float:
        """Chooses a primitive, does it, and ends the macro-action where its rule says so."""
        verb = macro.verb
        cell, hand = self.cell[cook], self.hand[cook]
        thing = macro.which if verb == GET_FOOD else self.n_foods + macro.which
        target = self.place[thing] if verb <= GET_BOWL else self.aim[cook]
        if target < 0 or target == cell:
            return self._stop(cook)
        way = self.kitchen.way(target)
        steps = way.steps
        if steps[cell] == UNREACHABLE:
            return self._stop(cook)
        ends = close = steps[cell] == 1
        if verb == GET_FOOD:
            if self.bowl_of[thing] >= 0 and self.kitchen.near(cell, self.radius)[target]:
                return self._stop(cook)
            if close and self.raw_on_board(target) and self.lying[target] == thing:
                return self._stop(cook)
        elif verb == GET_BOWL:
            if close and 0 <= hand < self.n_foods:
                if self.chops[hand] < CHOPS:
                    return self._stop(cook)
                ends = self.lying[target] != thing  # else the food goes in, and the next step takes the bowl
        elif verb == CHOP:
            if not self.raw_on_board(target):  # another cook has chopped it
                return self._stop(cook)
            self.left[cook] -= close
            ends = self.left[cook] == 0
        elif verb != DELIVER and close and hand < 0:
            return self._stop(cook)
        direction = way.direction(cell)
        if self.slips is not None and self.slips():
            direction = STAY
        elif len(self.cell) > 1 and not close:
            direction = self._step_aside(cook, target, direction)
        reward = self._primitive(cook, direction)
        if verb == CHOP:
            ends = ends or not self.raw_on_board(target)
        elif not close and not ends and steps[self.cell[cook]] == 1:  # the test on arrival
            if verb == GET_FOOD:
                ends = self.raw_on_board(target) and self.lying[target] == thing
            elif verb != GET_BOWL:
                ends = hand < 0
        if ends:
            self.macro[cook] = None
        return reward

    def _stop(self, cook: int) -> float:
        self.macro[cook] = None
        return self._primitive(cook, STAY)

    def _nearest(self, cook: int, cells: Iterable[int]) -> int:
        steps = {cell: self.kitchen.way(cell).steps[self.cell[cook]] for cell in cells}
        best = min(steps, key=lambda cell: steps[cell], default=NOTHING)
        return best if best >= 0 and steps[best] < UNREACHABLE else NOTHING

    def _free_counter(self, cook: int) -> int:
        """The nearest free counter; where cooks share the kitchen, the nearest that can be reached from two sides."""
        nearest = NOTHING
        for cell in self.kitchen.counters_from(self.cell[cook]):
            if self.lying[cell] < 0:
                if len(self.cell) == 1 or len(self.kitchen.sides[cell]) > 1:
                    return cell
                nearest = cell if nearest < 0 else nearest
        return nearest

    def hasten(self) -> int:
        """Skips that part of a lone cook's walk on which nothing can happen. Returns the primitive steps skipped."""
        macro = self.macro[0]
        if macro is None or macro.verb == CHOP or len(self.cell) > 1 or self.slips or self.trace is not None:
            return 0
        if macro.verb == GET_FOOD and self.bowl_of[macro.which] >= 0:  # ends where the bowl comes into sight
            return 0
        target = self.target(0)
        if target < 0:
            return 0
        cell = self.cell[0]
        way = self.kitchen.way(target)
        if not 2 < way.steps[cell] < UNREACHABLE:
            return 0
        self.cell[0] = gate = way.gate(cell)
        if self.hand[0] >= 0:
            self._put(self.hand[0], gate)
        return way.steps[cell] - 2

    def _step_aside(self, cook: int, target: int, direction: int) -> int:
        """The way round the others. What they cost is limited: two who meet head-on with no short way round change
        places, and a cook held up for too long goes straight on, changing places with whoever stands there."""
        here, way = self.cell[cook], self.kitchen.way(target)
        ahead = here + self.kitchen.delta[direction]
        others = [cell for other, cell in enumerate(self.cell) if other != cook and cell != target]
        if self.waited[cook] < PATIENCE:
            round_them = self.kitchen.find_way(target, others)
            lost = round_them.steps[here] - way.steps[here]
            if lost <= DETOUR:
                self.waited[cook] += lost > 0
                return round_them.direction(here)
        if ahead in others:
            other = self.cell.index(ahead)
            goal = self.target(other)
            head_on = goal >= 0 and ahead + self.kitchen.delta[self.kitchen.way(goal).direction(ahead)] == here
            if not head_on and self.waited[cook] < PATIENCE:
                self.waited[cook] += 1
                return STAY
            self.cell[other] = here
            self._carry(other, here)
            self._passed = other
        return direction
