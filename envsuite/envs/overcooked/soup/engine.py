"""Rules of Overcooked-AI: both cooks act at once, and pots cook onion soups.

A state is a tuple of numbers, and `SoupKitchen.step` returns the next one. All rules are deterministic. A step
has three parts: interactions, first of cook 1, then of cook 2; then both moves at once; then the clock and the pots.
`benchmarks/overcooked_ai.py` compares every state and reward with version 1.1.0 of the published package.
"""

from __future__ import annotations

from typing import NamedTuple

from envsuite.envs.overcooked.soup.layout import (
    COOKS,
    COUNTER,
    DISHES,
    FLOOR,
    INTERACT,
    ONIONS,
    POT,
    STAY,
    UP,
    WINDOW,
    SoupLayout,
)

NOTHING, ONION, DISH = 0, 1, 2
SOUP = 2
"""Things are NOTHING, ONION, DISH, and SOUP + n for a cooked soup of n onions."""
MOST_ONIONS = 3  # in a pot
IDLE = -1  # clock of a pot that does not cook
EMPTY = 0, IDLE

SOUP_REWARD = 20
POT_REWARD, DISH_REWARD, PICKUP_REWARD = 3, 3, 5
"""Shaped rewards of the package: an onion into a pot, a useful dish, and a soup out of a pot."""

Pot = tuple[int, int]
"""Number of onions, and the steps for which they have cooked (IDLE before the start)."""


class SoupState(NamedTuple):
    """A moment of the game; equal values mean equal states."""

    time: int
    cells: tuple[int, ...]
    facing: tuple[int, ...]
    hands: tuple[int, ...]
    counters: tuple[int, ...]
    pots: tuple[Pot, ...]


class Step(NamedTuple):
    """Result of a joint action: the next state, and the rewards of each cook."""

    state: SoupState
    served: tuple[int, ...]
    """reward of each cook for serving"""
    shaped: tuple[int, ...]
    """shaped reward of each cook"""


class SoupKitchen:
    """The rules in one layout."""

    def __init__(self, layout: SoupLayout, cook_time: int = 20, automatic: bool = False) -> None:
        self.layout = layout
        self.cook_time = cook_time
        self.automatic = automatic
        """True if a pot starts by itself when it is full, and only then"""

    def start(self) -> SoupState:
        """Returns the first state of a game: cooks face up with empty hands, and nothing is in the pots."""
        layout = self.layout
        bare = (NOTHING,) * len(layout.counters)
        return SoupState(0, layout.starts, (UP,) * COOKS, (NOTHING,) * COOKS, bare, (EMPTY,) * len(layout.pots))

    def ready(self, pot: Pot) -> bool:
        """Returns True if the soup in a pot is done."""
        return pot[1] >= self.cook_time

    def step(self, state: SoupState, actions: tuple[int, ...]) -> Step:
        """Runs one step of both cooks."""
        hands, counters, pots = list(state.hands), list(state.counters), list(state.pots)
        served, shaped = [0] * COOKS, [0] * COOKS
        if INTERACT in actions:
            in_use = self.pots_in_use(state)
            for cook, action in enumerate(actions):
                if action == INTERACT:
                    cell = state.cells[cook] + self.layout.delta[state.facing[cook]]
                    self._interact(cook, cell, hands, counters, pots, served, shaped, in_use)
        cells, facing = self.move(state, actions)
        for slot, pot in enumerate(pots):
            pots[slot] = self._cook(pot)
        after = SoupState(state.time + 1, cells, facing, tuple(hands), tuple(counters), tuple(pots))
        return Step(after, tuple(served), tuple(shaped))

    def pots_in_use(self, state: SoupState) -> int:
        """Returns the number of pots that make a dish useful: cooking, ready, or with one or two onions.

        A full pot that nobody has started does not count, as in the package.
        """
        return sum(clock >= 0 or 0 < onions < MOST_ONIONS for onions, clock in state.pots)

    def _interact(
        self,
        cook: int,
        cell: int,
        hands: list[int],
        counters: list[int],
        pots: list[Pot],
        served: list[int],
        shaped: list[int],
        in_use: int,
    ) -> None:
        """Applies one cook's interaction with the cell that it faces."""
        kind, held = self.layout.kind[cell], hands[cook]
        if kind == COUNTER:
            slot = self.layout.slot[cell]
            if (held == NOTHING) != (counters[slot] == NOTHING):
                hands[cook], counters[slot] = counters[slot], held
        elif kind == ONIONS and held == NOTHING:
            hands[cook] = ONION
        elif kind == DISHES and held == NOTHING:
            if DISH not in counters and hands.count(DISH) < in_use:
                shaped[cook] += DISH_REWARD
            hands[cook] = DISH
        elif kind == WINDOW and held > SOUP:
            served[cook] += SOUP_REWARD if held == SOUP + MOST_ONIONS else 0
            hands[cook] = NOTHING
        elif kind == POT:
            slot = self.layout.slot[cell]
            onions, clock = pots[slot]
            if held == NOTHING and onions and clock == IDLE and not self.automatic:
                pots[slot] = onions, 0
            elif held == DISH and self.ready(pots[slot]):
                hands[cook], pots[slot] = SOUP + onions, EMPTY
                shaped[cook] += PICKUP_REWARD
            elif held == ONION and clock == IDLE and onions < MOST_ONIONS:
                hands[cook], pots[slot] = NOTHING, (onions + 1, IDLE)
                shaped[cook] += POT_REWARD

    def move(self, state: SoupState, actions: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns cells and directions after both moves. Cooks who would collide or swap cells stay, but turn."""
        layout = self.layout
        targets, facing = list(state.cells), list(state.facing)
        for cook, action in enumerate(actions):
            if action < STAY:
                facing[cook] = action
                target = state.cells[cook] + layout.delta[action]
                if layout.kind[target] == FLOOR:
                    targets[cook] = target
        first, second = targets
        collide = first == second or (second, first) == state.cells
        return (state.cells if collide else (first, second)), tuple(facing)

    def _cook(self, pot: Pot) -> Pot:
        """Returns a pot one step later."""
        onions, clock = pot
        if self.automatic and onions == MOST_ONIONS and clock == IDLE:
            clock = 0
        return (onions, clock + 1) if 0 <= clock < self.cook_time else (onions, clock)
