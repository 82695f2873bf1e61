"""The state of a kitchen and its primitive steps (docs/specs/overcooked.md, "Primitive steps").

A thing (food or bowl) is an index: first the foods of the kitchen in order, then its bowls. Each exists once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from envsuite.envs.overcooked.kitchen import BOARD, COUNTER, DELIVERY, FLOOR, STAY, UNREACHABLE, Kitchen

CHOPS = 3  # chops that turn a raw food into a chopped one
NOTHING = -1

State = tuple[tuple[int, ...], ...]


class Rewards(NamedTuple):
    """Amounts of the published dense reward, without the cost per step."""

    chop: float = 0.2  # each time a food of the recipe becomes chopped
    deliver: float = 1.0
    wrong: float = 0.1  # subtracted for any other delivery


PUBLISHED = Rewards()


class Motion:
    """Positions and contents of the cooks and things in one kitchen; `save()` and `load()` convert the state."""

    def __init__(self, kitchen: Kitchen, recipe: Iterable[str], rewards: Rewards = PUBLISHED, radius: int = 2) -> None:
        self.kitchen, self.rewards, self.radius = kitchen, rewards, radius
        self.n_foods = len(kitchen.foods)
        bowls = len(kitchen.bowl_homes)
        self.names = (*kitchen.foods, *(["bowl"] if bowls == 1 else (f"bowl {i + 1}" for i in range(bowls))))
        self.recipe = frozenset(kitchen.foods.index(food) for food in recipe)
        self.order = tuple(kitchen.foods[food] for food in sorted(self.recipe))
        self.trace: list[tuple[int, int, int]] | None = None
        """if a list, every primitive step is appended as (cook, direction, cell afterwards)"""
        self.reset()

    def reset(self) -> None:
        """Restores the initial state."""
        kitchen = self.kitchen
        self.cell = list(kitchen.starts)  # cell of each cook
        self.hand = [NOTHING] * len(self.cell)  # thing that each cook holds
        self.place = list(
            kitchen.homes
        )  # cell of each thing; a carried thing, or food in a bowl, moves with its carrier
        self.chops = [0] * self.n_foods
        self.contents: list[list[int]] = [[] for _ in kitchen.bowl_homes]
        self.bowl_of = [NOTHING] * self.n_foods
        self.lying = [NOTHING] * len(kitchen.kind)  # thing on each cell, without the contents of bowls
        for thing, home in enumerate(self.place):
            self.lying[home] = thing
        self._clear_events()

    def _clear_events(self) -> None:
        self.delivered = False
        self.chopped_now = self.wrong_now = 0  # events of the last tick
        self.touched = 0  # counts the changes of anything except the cooks' positions

    def save(self) -> State:
        """Returns the state as a hashable value; equal values mean equal states."""
        cooks, contents = (*self.cell, *self.hand), map(tuple, self.contents)
        return cooks, tuple(self.place), tuple(self.chops), *contents, (int(self.delivered),)

    def load(self, state: State) -> None:
        """Restores a state that `save` returned."""
        cooks, place, chops, *contents, (delivered,) = state
        half = len(cooks) // 2
        self.cell, self.hand = list(cooks[:half]), list(cooks[half:])
        self.place, self.chops = list(place), list(chops)
        self.contents = [list(foods) for foods in contents]
        self._clear_events()
        self.delivered = bool(delivered)
        self.bowl_of = [NOTHING] * self.n_foods
        self.lying = lying = [NOTHING] * len(self.kitchen.kind)
        for thing, where in enumerate(place):  # bowls come last and therefore hide their contents
            lying[where] = thing
        for thing in self.hand:
            if thing >= 0:
                lying[place[thing]] = NOTHING
        for bowl, foods in enumerate(contents):
            for food in foods:
                self.bowl_of[food] = bowl

    # ---- queries -----------------------------------------------------------------------------

    def is_chopped(self, thing: int) -> bool:
        """Returns True if a thing is chopped food; False for a bowl and for NOTHING."""
        return 0 <= thing < self.n_foods and self.chops[thing] >= CHOPS

    def raw_on_board(self, cell: int) -> bool:
        """Returns True if `cell` is a board that holds a raw food."""
        thing = self.lying[cell]
        return 0 <= thing < self.n_foods and self.chops[thing] < CHOPS and self.kitchen.kind[cell] == BOARD

    def reaches(self, cook: int, cell: int) -> bool:
        """Returns True if the cook can walk up to a cell."""
        return self.kitchen.way(cell).steps[self.cell[cook]] < UNREACHABLE

    def board_to_chop_at(self, cook: int) -> int:
        """Returns the first board next to the cook that holds raw food, or NOTHING."""
        for _, board in self.kitchen.beside[self.cell[cook]]:
            if self.raw_on_board(board):
                return board
        return NOTHING

    def served(self, bowl: int) -> bool:
        """Returns True if the contents of a bowl (index from 0) equal the recipe exactly."""
        return self.recipe == set(self.contents[bowl])

    # ---- primitive steps -------------------------------------------------------------------------------------------

    def _primitive(self, cook: int, direction: int) -> float:
        """Moves a cook, or makes it interact with the obstacle in that direction. Returns the reward."""
        reward = 0.0
        if direction != STAY:
            cell = self.cell[cook] + self.kitchen.delta[direction]
            if self.kitchen.kind[cell] != FLOOR:
                reward = self._interact(cook, cell)
            elif len(self.cell) == 1 or cell not in self.cell[:cook] + self.cell[cook + 1 :]:
                self.cell[cook] = cell
                if self.hand[cook] >= 0:
                    self._put(self.hand[cook], cell)
        if self.trace is not None:
            self.trace.append((cook, direction, self.cell[cook]))
        return reward

    def _carry(self, cook: int, cell: int) -> None:
        hand = self.hand[cook]
        if hand >= 0:
            self._put(hand, cell)

    def _put(self, thing: int, cell: int) -> None:
        self.place[thing] = cell
        if thing >= self.n_foods:
            for food in self.contents[thing - self.n_foods]:
                self.place[food] = cell

    def _interact(self, cook: int, cell: int) -> float:
        """Applies the table of interactions (docs/specs/overcooked.md, "Primitive steps")."""
        kind, hand, thing = self.kitchen.kind[cell], self.hand[cook], self.lying[cell]
        if hand < 0:
            if thing < 0 or kind == DELIVERY:
                return 0.0
            if self.raw_on_board(cell):
                return self._chop(thing)
            self.touched += 1
            self.lying[cell] = NOTHING
            self.hand[cook] = thing
            self._carry(cook, self.cell[cook])
        elif kind == DELIVERY:
            return self._deliver(cook, cell)
        elif thing < 0:
            self.touched += 1
            self.lying[cell] = hand
            self.hand[cook] = NOTHING
            self._put(hand, cell)
        elif hand >= self.n_foods:
            if self.is_chopped(thing):
                self.lying[cell] = NOTHING
                self._fill(hand, thing)
        elif self.is_chopped(hand) and thing >= self.n_foods:
            self._fill(thing, hand)
            self.hand[cook] = NOTHING
            if kind == BOARD:
                self.lying[cell] = NOTHING
                self.hand[cook] = thing
                self._carry(cook, self.cell[cook])
        return 0.0

    def _fill(self, bowl: int, food: int) -> None:
        self.touched += 1
        self.contents[bowl - self.n_foods].append(food)
        self.bowl_of[food] = bowl - self.n_foods
        self.place[food] = self.place[bowl]

    def _chop(self, food: int) -> float:
        self.touched += 1
        self.chops[food] += 1
        if self.chops[food] < CHOPS or food not in self.recipe:
            return 0.0
        self.chopped_now += 1
        return self.rewards.chop

    def _deliver(self, cook: int, cell: int) -> float:
        thing = self.hand[cook]
        self.touched += 1
        self.hand[cook] = NOTHING
        if thing >= self.n_foods and self.served(thing - self.n_foods):
            self.lying[cell] = thing
            self._put(thing, cell)
            self.delivered = True
            return self.rewards.deliver
        self.wrong_now += 1
        self._send_home(thing)
        if thing >= self.n_foods:
            foods, self.contents[thing - self.n_foods] = self.contents[thing - self.n_foods], []
            for food in foods:
                self.bowl_of[food] = NOTHING
                self._send_home(food)
        return -self.rewards.wrong

    def _send_home(self, thing: int) -> None:
        """Returns a thing to its home cell, raw; if that is occupied, to the nearest free counter."""
        home = self.kitchen.homes[thing]
        if self.lying[home] >= 0:
            row, column = self.kitchen.position(home)
            where = [(cell, *self.kitchen.position(cell)) for cell in self._free_counters()]
            home = min(where, key=lambda free: abs(free[1] - row) + abs(free[2] - column))[0]
        self.lying[home] = thing
        self.place[thing] = home
        if thing < self.n_foods:
            self.chops[thing] = 0

    def _free_counters(self) -> list[int]:
        kitchen = self.kitchen
        beside = (cell for cell, sides in enumerate(kitchen.sides) if sides and kitchen.kind[cell] == COUNTER)
        return [cell for cell in beside if self.lying[cell] < 0]
