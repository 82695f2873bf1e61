"""Simulation of macro-actions as sequences of primitive steps, for one or several cooks.

The rules follow docs/specs/overcooked.md, "Macro-actions".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from envsuite.envs.overcooked.kitchen import STAY, UNREACHABLE, Kitchen
from envsuite.envs.overcooked.motion import CHOPS, NOTHING, PUBLISHED, Motion, Rewards

PATIENCE = 4  # primitive steps that a cook waits or loses to others within one macro-action
DETOUR = 6  # extra primitive steps that a cook accepts to walk around others instead of waiting

GET_FOOD, GET_BOWL, GO_TO_BOARD, DELIVER, CHOP, GO_TO_COUNTER = range(6)
"""Kinds of macro-action."""


class Macro(NamedTuple):
    """Macro-action: its kind (`verb`) and the index of its food, bowl or board (`which`, from 0)."""

    verb: int
    which: int
    name: str


def macro_actions(kitchen: Kitchen, counters: bool) -> list[Macro]:
    """Returns a kitchen's macro-actions in the published order; `counters` appends "go to counter"."""
    macros = [Macro(GET_FOOD, i, f"get {food}") for i, food in enumerate(kitchen.foods)]
    macros += [Macro(GET_BOWL, i, f"get plate {i + 1}") for i in range(len(kitchen.bowl_homes))]
    macros += [Macro(GO_TO_BOARD, i, f"go to knife {i + 1}") for i in range(len(kitchen.boards))]
    macros += [Macro(DELIVER, 0, "deliver"), Macro(CHOP, 0, "chop")]
    if counters:
        macros.append(Macro(GO_TO_COUNTER, 0, "go to counter"))
    return macros


class Simulation(Motion):
    """Simulation of one kitchen whose cooks execute macro-actions.

    `begin` starts a macro-action of one cook, and `tick` advances every cook by one primitive step. A cook is idle when
    its entry in `macro` is None. `save()` holds the complete state while all cooks are idle; `in_progress()` holds the
    state of running macro-actions.
    """

    def __init__(self, kitchen: Kitchen, recipe: Iterable[str], rewards: Rewards = PUBLISHED, radius: int = 2) -> None:
        """`radius` is the view distance in cells; fetching a food that is in a bowl ends when the bowl is in view."""
        self.slips: Callable[[], bool] | None = None
        """returns True if the current primitive step fails and the cook stays in place; None: no slips"""
        super().__init__(kitchen, recipe, rewards, radius)

    def _clear_events(self) -> None:
        super()._clear_events()
        cooks = len(self.cell)
        self.macro: list[Macro | None] = [None] * cooks
        self.aim = [NOTHING] * cooks  # target cell, fixed when the macro-action starts
        self.left = [0] * cooks  # remaining chops
        self.waited = [0] * cooks
        self._passed = NOTHING  # the cook that swapped cells in this tick and has therefore used its step

    def in_progress(self) -> tuple[Any, ...]:
        """Returns the state of running macro-actions, which `save` omits, for `resume`."""
        return tuple(self.macro), tuple(self.aim), tuple(self.left), tuple(self.waited)

    def resume(self, in_progress: tuple[Any, ...]) -> None:
        """Restores running macro-actions from `in_progress`, after `load`."""
        self.macro, self.aim, self.left, self.waited = map(list, in_progress)

    def copy(self) -> Simulation:
        """Returns an independent copy of the simulation in its current state."""
        duplicate = Simulation(self.kitchen, self.order, self.rewards, self.radius)
        duplicate.load(self.save())
        duplicate.resume(self.in_progress())
        return duplicate

    def begin(self, cook: int, macro: Macro) -> None:
        """Starts a macro-action of `cook`; it moves from the next tick on."""
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
        """Advances each busy cook by one primitive step, in order. Returns the reward without the step cost."""
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
        """Returns the cell that a cook is walking to, or NOTHING."""
        macro = self.macro[cook]
        if macro is None:
            return NOTHING
        if macro.verb <= GET_BOWL:
            return self.place[macro.which if macro.verb == GET_FOOD else self.n_foods + macro.which]
        return self.aim[cook]

    def _advance(self, cook: int, macro: Macro) -> float:
        """Executes one primitive step of a macro-action, and ends the macro-action when its rule applies."""
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
                ends = self.lying[target] != thing  # otherwise the food goes in, and the next step picks up the bowl
        elif verb == CHOP:
            if not self.raw_on_board(target):  # another cook finished the chopping
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
        elif not close and not ends and steps[self.cell[cook]] == 1:  # the rule that applies on arrival
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
        """Returns the nearest free counter, with several cooks the nearest one that has two accessible sides."""
        nearest = NOTHING
        for cell in self.kitchen.counters_from(self.cell[cook]):
            if self.lying[cell] < 0:
                if len(self.cell) == 1 or len(self.kitchen.sides[cell]) > 1:
                    return cell
                nearest = cell if nearest < 0 else nearest
        return nearest

    def fast_forward(self) -> int:
        """Skips the part of a single cook's walk in which nothing can happen. Returns the skipped primitive steps."""
        macro = self.macro[0]
        if macro is None or macro.verb == CHOP or len(self.cell) > 1 or self.slips or self.trace is not None:
            return 0
        if macro.verb == GET_FOOD and self.bowl_of[macro.which] >= 0:  # ends as soon as the bowl is in view
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
        """Returns the direction of a cook's next step around the other cooks.

        Delays are bounded: two cooks that meet head-on without a short detour swap cells, and a cook that has waited
        for PATIENCE steps walks straight on and swaps cells with the cook in its way.
        """
        here, way = self.cell[cook], self.kitchen.way(target)
        ahead = here + self.kitchen.delta[direction]
        occupied = [cell for index, cell in enumerate(self.cell) if index != cook and cell != target]
        if self.waited[cook] < PATIENCE:
            detour = self.kitchen.find_way(target, occupied)
            lost = detour.steps[here] - way.steps[here]
            if lost <= DETOUR:
                self.waited[cook] += lost > 0
                return detour.direction(here)
        if ahead in occupied:
            neighbour = self.cell.index(ahead)
            goal = self.target(neighbour)
            head_on = goal >= 0 and ahead + self.kitchen.delta[self.kitchen.way(goal).direction(ahead)] == here
            if not head_on and self.waited[cook] < PATIENCE:
                self.waited[cook] += 1
                return STAY
            self.cell[neighbour] = here
            self._carry(neighbour, here)
            self._passed = neighbour
        return direction
