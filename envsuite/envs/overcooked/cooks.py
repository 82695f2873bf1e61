"""Scripted cooks: a random cook, a cooperative greedy cook, a cook with one step of lookahead, and the blind player's
script in a generated kitchen, which reads the order and never looks at the kitchen.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from envsuite.envs.overcooked.engine import (
    CHOP,
    DELIVER,
    GET_BOWL,
    GET_FOOD,
    GO_TO_BOARD,
    GO_TO_COUNTER,
    Macro,
    Simulation,
)
from envsuite.envs.overcooked.kitchen import COUNTER, UNREACHABLE
from envsuite.envs.overcooked.offers import helps

MAX_PLAYOUT_STEPS = 1000  # primitive steps after which a playout counts as never serving


class Menu:
    """Macro-actions of a kitchen, indexed by kind and target."""

    def __init__(self, macros: Sequence[Macro]) -> None:
        self.macros = tuple(macros)
        self.get = {macro.which: macro for macro in macros if macro.verb == GET_FOOD}
        self.bowl = {macro.which: macro for macro in macros if macro.verb == GET_BOWL}
        self.board = {macro.which: macro for macro in macros if macro.verb == GO_TO_BOARD}
        self.deliver = next(macro for macro in macros if macro.verb == DELIVER)
        self.chop = next(macro for macro in macros if macro.verb == CHOP)
        self.counter = next((macro for macro in macros if macro.verb == GO_TO_COUNTER), None)


def random_cook(sim: Simulation, cook: int, menu: Menu, rng: np.random.Generator) -> Macro:
    """Returns a macro-action drawn uniformly."""
    return menu.macros[int(rng.integers(len(menu.macros)))]


def greedy_cook(sim: Simulation, cook: int, menu: Menu) -> Macro:
    """Returns the obvious next macro-action: chop, then fill the bowl, then serve, nearest targets first.

    The cook does not compete for things that others carry or walk to. It passes things it cannot use over shared
    counters, and waits (by a chop without effect) when nothing is left for it to do.
    """
    return _Greedy(sim, cook, menu).choose()


class _Greedy:
    """Decision rules of `greedy_cook` for one cook in one state."""

    def __init__(self, sim: Simulation, cook: int, menu: Menu) -> None:
        self.sim, self.cook, self.menu = sim, cook, menu
        self.here, self.hand = sim.cell[cook], sim.hand[cook]
        self.raw = [f for f in sorted(sim.recipe) if sim.bowl_of[f] < 0 and not sim.is_chopped(f)]
        self.chopped = [f for f in sorted(sim.recipe) if sim.bowl_of[f] < 0 and sim.is_chopped(f)]
        running = [macro for index, macro in enumerate(sim.macro) if index != cook and macro is not None]
        self.claimed = {(macro.verb, macro.which) for macro in running}
        self.reaches_board = any(self.distance(board) < UNREACHABLE for board in sim.kitchen.boards)
        self.reaches_delivery = any(self.distance(cell) < UNREACHABLE for cell in sim.kitchen.deliveries)

    def distance(self, cell: int) -> int:
        return self.sim.kitchen.way(cell).steps[self.here]

    def free(self, thing: int) -> bool:
        """Returns True if a thing is reachable, not carried, and not the target of another cook."""
        sim = self.sim
        verb, index = (GET_FOOD, thing) if thing < sim.n_foods else (GET_BOWL, thing - sim.n_foods)
        where = sim.place[thing]
        return sim.lying[where] == thing and self.distance(where) < UNREACHABLE and (verb, index) not in self.claimed

    def choose(self) -> Macro:
        if self.hand < 0:
            return self.empty_handed()
        if self.hand >= self.sim.n_foods:
            return self.with_bowl(self.hand - self.sim.n_foods)
        if self.hand not in self.sim.recipe:
            return self.put_away()
        if self.sim.is_chopped(self.hand):
            bowl = self.best_bowl()
            if bowl >= 0:
                return self.menu.bowl[bowl]
            return self.menu.chop if self.bowl_in_use() else self.pass_on()  # the cook with the bowl will put it down
        board = self.free_board()
        return self.menu.board[board] if board >= 0 else self.pass_on()

    def empty_handed(self) -> Macro:
        sim, menu = self.sim, self.menu
        for bowl in range(len(sim.contents)):
            if self.spoiled(bowl) and self.free(sim.n_foods + bowl) and self.useful(sim.n_foods + bowl):
                return menu.bowl[bowl]
        beside = sim.board_to_chop_at(self.cook)
        if beside >= 0 and sim.lying[beside] in sim.recipe and not self.chopped_at(beside):
            return menu.chop
        waiting = [
            (self.distance(board), number)
            for number, board in enumerate(sim.kitchen.boards)
            if sim.raw_on_board(board) and sim.lying[board] in sim.recipe and not self.attended(board)
        ]
        if waiting and min(waiting)[0] < UNREACHABLE:
            return menu.board[min(waiting)[1]]
        if self.free_board() >= 0 or not self.reaches_board:
            fetch = [
                (self.distance(sim.place[food]), food) for food in self.raw if self.free(food) and self.useful(food)
            ]
            if fetch:
                return menu.get[min(fetch)[1]]
        if not self.raw or self.free_board() < 0:
            bowl = self.best_bowl()
            if bowl >= 0 and (self.chopped or sim.contents[bowl]) and self.useful(sim.n_foods + bowl):
                return menu.bowl[bowl]
        if not self.reaches_board:
            bowl = self.best_bowl()
            if bowl >= 0 and self.useful(sim.n_foods + bowl):
                return menu.bowl[bowl]
            fetch = [(self.distance(sim.place[f]), f) for f in self.chopped if self.free(f) and self.useful(f)]
            if fetch:
                return menu.get[min(fetch)[1]]
        return self.clear_a_board() or self.make_way()

    def with_bowl(self, bowl: int) -> Macro:
        sim, menu = self.sim, self.menu
        if sim.served(bowl):
            return menu.deliver if self.reaches_delivery else self.pass_on()
        if self.spoiled(bowl):
            return self.put_away()
        if bowl != self.team_bowl:
            return self.pass_on()
        gather = [(self.distance(sim.place[food]), food) for food in self.chopped if self.free(food)]
        if gather:
            return menu.get[min(gather)[1]]
        return self.pass_on()

    def put_away(self) -> Macro:
        """Returns a macro-action that gets rid of a thing the order does not need."""
        return self.menu.deliver if self.reaches_delivery else self.pass_on()

    def pass_on(self) -> Macro:
        """Returns a macro-action that empties the hand: onto a counter, else a free board, else the delivery."""
        if self.menu.counter is not None:
            return self.menu.counter
        board = self.free_board()
        if board >= 0:
            return self.menu.board[board]
        return self.menu.deliver

    def clear_a_board(self) -> Macro | None:
        """Returns a macro-action that frees a board the order needs, or None if none is blocked."""
        if not self.raw or self.free_board() >= 0 or not self.reaches_board:
            return None
        sim = self.sim
        for thing in sorted(sim.lying[board] for board in sim.kitchen.boards):
            if thing >= 0 and self.free(thing) and not sim.raw_on_board(sim.place[thing]):
                return self.menu.bowl[thing - sim.n_foods] if thing >= sim.n_foods else self.menu.get[thing]
        for number, board in enumerate(sim.kitchen.boards):
            if sim.raw_on_board(board) and self.distance(board) < UNREACHABLE:  # raw, and not part of the recipe
                near = sim.board_to_chop_at(self.cook) == board
                return self.menu.chop if near else self.menu.board[number]
        return None

    def make_way(self) -> Macro:
        """Returns a macro-action for an idle cook: stay, or step out of another cook's path."""
        sim, menu = self.sim, self.menu
        taken: set[int] = set()
        for index, cell in enumerate(sim.cell):
            if index != self.cook:
                taken.add(cell)
                if (target := sim.target(index)) >= 0:
                    taken.update(self.path(cell, target))
        if self.here not in taken:
            return menu.chop
        off = [(self.distance(board), menu.board[i], board) for i, board in enumerate(sim.kitchen.boards)]
        off += [(self.distance(cell), menu.deliver, cell) for cell in sim.kitchen.deliveries]
        off += [(self.distance(sim.place[food]), menu.get[food], sim.place[food]) for food in self.waiting_raw()]
        off = [walk for walk in off if 1 < walk[0] < UNREACHABLE]
        clear = [walk for walk in off if self.path(self.here, walk[2])[-1] not in taken]
        if clear or off:
            return min(clear or off, key=lambda walk: walk[0])[1]
        return menu.counter or menu.chop

    def waiting_raw(self) -> list[int]:
        """Returns the raw foods on boards; fetching one with empty hands only walks up to it."""
        return [food for food in self.raw if self.sim.raw_on_board(self.sim.place[food])]

    def path(self, cell: int, target: int) -> list[int]:
        """Returns the cells of a walk from `cell` until it faces `target`."""
        way, cells = self.sim.kitchen.way(target), [cell]
        while 1 < way.steps[cells[-1]] < UNREACHABLE:
            cells.append(cells[-1] + self.sim.kitchen.delta[way.direction(cells[-1])])
        return cells

    def chopped_at(self, board: int) -> bool:
        """Returns True if another cook is chopping at a board."""
        sim = self.sim
        return any(
            macro is not None and macro.verb == CHOP and sim.aim[index] == board
            for index, macro in enumerate(sim.macro)
            if index != self.cook
        )

    def attended(self, board: int) -> bool:
        """Returns True if another cook takes care of a board: it chops or waits there, or is coming."""
        steps = self.sim.kitchen.way(board).steps
        standing = any(
            steps[cell] == 1 and self.sim.hand[index] < 0
            for index, cell in enumerate(self.sim.cell)
            if index != self.cook
        )
        coming = any(self.sim.target(index) == board for index in range(len(self.sim.cell)) if index != self.cook)
        return standing or coming or self.chopped_at(board)

    def free_board(self) -> int:
        sim = self.sim
        free = [
            (self.distance(board), number)
            for number, board in enumerate(sim.kitchen.boards)
            if sim.lying[board] < 0 and (GO_TO_BOARD, number) not in self.claimed
        ]
        return min(free)[1] if free and min(free)[0] < UNREACHABLE else -1

    @cached_property
    def team_bowl(self) -> int:
        """Returns the bowl that the team fills.

        Preference: correct contents, most foods, carried, nearest (for a single cook), lowest index.
        """
        sim = self.sim
        alone = len(sim.cell) == 1

        def rank(bowl: int) -> tuple[bool, int, bool, int, int]:
            return (
                not sim.recipe.issuperset(sim.contents[bowl]),
                -len(sim.contents[bowl]),
                sim.n_foods + bowl not in sim.hand,
                self.distance(sim.place[sim.n_foods + bowl]) if alone else 0,
                bowl,
            )

        return min(range(len(sim.contents)), key=rank)

    def spoiled(self, bowl: int) -> bool:
        """Returns True if a bowl must be emptied: wrong contents, or foods that belong in the team's bowl."""
        foods = self.sim.contents[bowl]
        return bool(foods) and (bowl != self.team_bowl or not self.sim.recipe.issuperset(foods))

    def best_bowl(self) -> int:
        """Returns the team's bowl if it is usable and reachable, else -1."""
        bowl = self.team_bowl
        return bowl if self.free(self.sim.n_foods + bowl) and not self.spoiled(bowl) else -1

    def bowl_in_use(self) -> bool:
        """Returns True if another cook carries the team's bowl."""
        bowl = self.sim.n_foods + self.team_bowl
        return any(hand == bowl for cook, hand in enumerate(self.sim.hand) if cook != self.cook)

    def useful(self, thing: int) -> bool:
        """Returns False for a thing that this cook can only pass on and has already passed on."""
        sim = self.sim
        if self.reaches_board and self.reaches_delivery:
            return True
        where = sim.place[thing]
        return not (sim.kitchen.kind[where] == COUNTER and where != sim.kitchen.homes[thing])


def lookahead_cook(sim: Simulation, cook: int, menu: Menu) -> Macro:
    """Returns the macro-action after which greedy cooks serve soonest (one-step lookahead with greedy playouts).

    It never fetches a food that the order does not need, and hands in nothing but the dish unless the hand cannot be
    emptied otherwise.
    """
    first = greedy_cook(sim, cook, menu)
    alternatives = [macro for macro in menu.macros if macro != first and helps(sim, cook, macro)]
    candidates = [macro for macro in (first, *alternatives) if not _wasteful(sim, cook, macro)]
    best, best_time = candidates[0] if candidates else first, MAX_PLAYOUT_STEPS
    for macro in candidates or [first]:
        trial = sim.copy()
        trial.begin(cook, macro)
        time = play_out(trial, menu, best_time)
        if time is not None and time < best_time:
            best, best_time = macro, time
    return best


def _wasteful(sim: Simulation, cook: int, macro: Macro) -> bool:
    """Returns True for a wrong delivery, and for fetching a raw food that the order does not need from its home."""
    hand = sim.hand[cook]
    if macro.verb == DELIVER:
        return hand >= 0 and not (hand >= sim.n_foods and sim.served(hand - sim.n_foods))
    if macro.verb != GET_FOOD or hand >= 0 or macro.which in sim.recipe:
        return False
    return sim.place[macro.which] == sim.kitchen.homes[macro.which] and not sim.chops[macro.which]


def play_out(sim: Simulation, menu: Menu, limit: int = MAX_PLAYOUT_STEPS) -> int | None:
    """Lets greedy cooks finish the episode. Returns the primitive steps until they serve, or None beyond `limit`."""
    time = 0
    while time < limit:
        for cook, macro in enumerate(sim.macro):
            if macro is None:
                sim.begin(cook, greedy_cook(sim, cook, menu))
                time += sim.fast_forward()
        sim.tick()
        time += 1
        if sim.delivered:
            return time
    return None


def blind_commands(order: Sequence[str], boards: int) -> list[str]:
    """Returns macro-actions that serve an order: fill all boards, gather the chopped foods, repeat, serve.

    Commands find their way by themselves, so the script needs neither walls nor positions.
    """
    commands: list[str] = []
    for first in range(0, len(order), boards):
        batch = order[first : first + boards]
        if first:
            commands.append("go to counter")  # puts the bowl down
        for number, food in enumerate(batch):
            commands += [f"get {food}", f"go to knife {number + 1}", "chop"]
        commands.append("get plate 1")
        commands += [f"get {food}" for food in batch]
    return [*commands, "deliver"]
