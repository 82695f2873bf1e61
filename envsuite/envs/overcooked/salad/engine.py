"""Rules of the salad kitchens: a cook's primitive steps, and macro-actions as sequences of them.

docs/specs/overcooked.md states the rules ("Primitive steps", "Macro-actions"). An item is an index: the foods of the
kitchen first, then the bowl.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from envsuite.envs.overcooked.grid import STAY
from envsuite.envs.overcooked.salad.kitchen import Kitchen

CHOPS = 3
"""chops that turn a raw food into a chopped one"""
NOTHING = -1
CHOP_REWARD, SERVE_REWARD, WRONG_REWARD = 0.2, 1.0, -0.1
"""dense rewards: a food of the order becomes chopped, the order is served, anything else is delivered"""

GET_FOOD, GET_BOWL, GO_TO_BOARD, DELIVER, CHOP = range(5)
"""Kinds of macro-action."""

State = tuple[tuple[int, ...], ...]


class Macro(NamedTuple):
    """Macro-action: its kind, and the number of its food or board from 0."""

    kind: int
    number: int
    name: str


WAIT = Macro(CHOP, NOTHING, "wait")
"""Macro-action of one step in place, executed for a command that cannot be parsed."""


def macro_actions(kitchen: Kitchen) -> list[Macro]:
    """Returns a kitchen's macro-actions in the published order."""
    macros = [Macro(GET_FOOD, i, f"get {food}") for i, food in enumerate(kitchen.foods)]
    macros.append(Macro(GET_BOWL, 0, "get plate 1"))
    macros += [Macro(GO_TO_BOARD, i, f"go to knife {i + 1}") for i in range(len(kitchen.boards))]
    return [*macros, Macro(DELIVER, 0, "deliver"), Macro(CHOP, 0, "chop")]


class Simulation:
    """One kitchen in which a cook executes macro-actions.

    `begin` starts a macro-action, and each `tick` runs one primitive step until `macro` is None.
    """

    def __init__(self, kitchen: Kitchen, recipe: Iterable[str], radius: int = 2) -> None:
        """`radius` is the view distance in cells; fetching a food that is in the bowl ends when the bowl is in view."""
        self.kitchen, self.radius = kitchen, radius
        self.recipe = frozenset(kitchen.foods.index(food) for food in recipe)
        self.order = tuple(kitchen.foods[food] for food in sorted(self.recipe))
        self.reset()

    def reset(self) -> None:
        """Restores the initial state."""
        self.cell = self.kitchen.start
        self.hand = NOTHING
        self.place = list(self.kitchen.homes)
        """cell of each item; what is carried, or in the bowl, moves along"""
        self.chops = [0] * len(self.kitchen.foods)
        self.contents: list[int] = []
        """foods in the bowl, in the sequence in which they were added"""
        self.delivered = False
        self._clear()

    def _clear(self) -> None:
        self.macro: Macro | None = None
        self.chopped_now = self.wrong_now = 0  # events of the last step
        self.changes = 0
        """changes of anything except the cook's position since the last `reset` or `load`"""
        self.last_direction = STAY

    def save(self) -> State:
        """Returns the state between two macro-actions; equal values mean equal states."""
        cook, delivered = (self.cell, self.hand), (int(self.delivered),)
        return cook, tuple(self.place), tuple(self.chops), tuple(self.contents), delivered

    def load(self, state: State) -> None:
        """Restores a state that `save` returned."""
        (self.cell, self.hand), place, chops, contents, (delivered,) = state
        self.place, self.chops, self.contents = list(place), list(chops), list(contents)
        self.delivered = bool(delivered)
        self._clear()

    # ---- queries -----------------------------------------------------------------------------

    def is_food(self, item: int) -> bool:
        """Returns True for a food; False for the bowl and for NOTHING."""
        return 0 <= item < self.kitchen.bowl

    def is_chopped(self, item: int) -> bool:
        """Returns True for a chopped food."""
        return self.is_food(item) and self.chops[item] >= CHOPS

    def is_raw(self, item: int) -> bool:
        """Returns True for a raw food."""
        return self.is_food(item) and self.chops[item] < CHOPS

    def item_on(self, cell: int) -> int:
        """Returns the item on a counter or board, without the contents of the bowl, or NOTHING."""
        for item, place in enumerate(self.place):
            if place == cell and item not in self.contents:
                return item
        return NOTHING

    def raw_on_board(self, cell: int) -> bool:
        """Returns True if `cell` is a board that holds a raw food."""
        return cell in self.kitchen.boards and self.is_raw(self.item_on(cell))

    def is_served_by_bowl(self) -> bool:
        """Returns True if the bowl holds exactly the foods of the order."""
        return self.recipe == set(self.contents)

    # ---- macro-actions ---------------------------------------------------------------------------------------------

    def begin(self, macro: Macro) -> None:
        """Starts a macro-action; the cook moves from the next step on."""
        self.macro = macro
        self._chops_left = CHOPS
        if macro.kind == CHOP:
            self._target = self._board_to_chop_at() if macro.number >= 0 else NOTHING
        elif macro.kind == GO_TO_BOARD:
            self._target = self.kitchen.boards[macro.number]
        else:
            self._target = self.kitchen.delivery

    def _board_to_chop_at(self) -> int:
        """Returns the first board next to the cook that holds raw food, or NOTHING."""
        boards = [self.kitchen.boards[number] for number in self.kitchen.boards_beside[self.cell]]
        return next((board for board in boards if self.raw_on_board(board)), NOTHING)

    def tick(self) -> float:
        """Runs one primitive step and returns its reward, without the cost of the step."""
        assert self.macro is not None
        self.chopped_now = self.wrong_now = 0
        kind = self.macro.kind
        if kind in (GET_FOOD, GET_BOWL):
            return self._fetch(self.macro.number if kind == GET_FOOD else self.kitchen.bowl)
        if kind == CHOP:
            return self._chop_on()
        return self._go_to_station(waits_for_item=kind == GO_TO_BOARD)

    def _fetch(self, item: int) -> float:
        target = self.place[item]
        if target == self.cell:
            return self._stop()
        is_near = self._is_beside(target)
        if item in self.contents and target in self.kitchen.window(self.cell, self.radius):
            return self._stop()
        if is_near and item != self.kitchen.bowl and self.raw_on_board(target):
            return self._stop()
        ends = is_near
        if is_near and item == self.kitchen.bowl and self.is_food(self.hand):
            if self.is_raw(self.hand):
                return self._stop()
            ends = False  # the food goes into the bowl, and the next step picks up the bowl
            if self.item_on(target) != item:
                ends = True
        reward = self._step_towards(target)
        arrived = not is_near and self._is_beside(target)
        if ends or (arrived and item != self.kitchen.bowl and self.raw_on_board(target)):
            self.macro = None
        return reward

    def _chop_on(self) -> float:
        if self._target == NOTHING:
            return self._stop()
        reward = self._step_towards(self._target)
        self._chops_left -= 1
        if self._chops_left == 0 or not self.raw_on_board(self._target):
            self.macro = None
        return reward

    def _go_to_station(self, waits_for_item: bool) -> float:
        is_near = self._is_beside(self._target)
        if is_near and waits_for_item and self.hand == NOTHING:
            return self._stop()
        reward = self._step_towards(self._target)
        arrived = not is_near and self._is_beside(self._target)
        if is_near or (arrived and self.hand == NOTHING):
            self.macro = None
        return reward

    def _is_beside(self, target: int) -> bool:
        return self.kitchen.paths_to(target).steps[self.cell] == 1

    def _stop(self) -> float:
        """Ends the macro-action with a step in place."""
        self.macro = None
        self.last_direction = STAY
        return 0.0

    # ---- primitive steps -------------------------------------------------------------------------------------------

    def _step_towards(self, target: int) -> float:
        """Moves the cook, or makes it interact with the obstacle in its way. Returns the reward."""
        self.last_direction = self.kitchen.paths_to(target).direction(self.cell)
        cell = self.cell + self.kitchen.delta[self.last_direction]
        if not self.kitchen.is_floor[cell]:
            return self._interact(cell)
        self.cell = cell
        if self.hand != NOTHING:
            self._put(self.hand, cell)
        return 0.0

    def _put(self, item: int, cell: int) -> None:
        self.place[item] = cell
        if item == self.kitchen.bowl:
            for food in self.contents:
                self.place[food] = cell

    def _interact(self, cell: int) -> float:
        """Applies the table of interactions (docs/specs/overcooked.md, "Primitive steps")."""
        bowl, hand, item = self.kitchen.bowl, self.hand, self.item_on(cell)
        if hand == NOTHING:
            if item == NOTHING or cell == self.kitchen.delivery:
                return 0.0
            if self.raw_on_board(cell):
                return self._chop(item)
            self.changes += 1
            self.hand = item
            self._put(item, self.cell)
        elif cell == self.kitchen.delivery:
            return self._deliver(cell)
        elif item == NOTHING:
            self.changes += 1
            self.hand = NOTHING
            self._put(hand, cell)
        elif hand == bowl and self.is_chopped(item):
            self._fill(item)
        elif item == bowl and self.is_chopped(hand):
            self._fill(hand)
            self.hand = NOTHING
            if cell in self.kitchen.boards:
                self.hand = bowl
                self._put(bowl, self.cell)
        return 0.0

    def _fill(self, food: int) -> None:
        self.changes += 1
        self.contents.append(food)
        self.place[food] = self.place[self.kitchen.bowl]

    def _chop(self, food: int) -> float:
        self.changes += 1
        self.chops[food] += 1
        if self.chops[food] < CHOPS or food not in self.recipe:
            return 0.0
        self.chopped_now += 1
        return CHOP_REWARD

    def _deliver(self, cell: int) -> float:
        """Serves the order, or returns all that is handed in to where it is kept, raw."""
        item = self.hand
        self.changes += 1
        self.hand = NOTHING
        if item == self.kitchen.bowl and self.is_served_by_bowl():
            self._put(item, cell)
            self.delivered = True
            return SERVE_REWARD
        self.wrong_now += 1
        returned = [item]
        if item == self.kitchen.bowl:
            returned += self.contents
            self.contents = []
        for each in returned:
            self.place[each] = self.kitchen.homes[each]
            if each != self.kitchen.bowl:
                self.chops[each] = 0
        return WRONG_REWARD
