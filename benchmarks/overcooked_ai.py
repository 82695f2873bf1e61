"""Compares the Overcooked-AI engine with the published package, state for state and reward for reward.

    pip install --no-deps overcooked_ai==1.1.0 && pip install 'gym<0.26' tqdm
    python -m benchmarks.overcooked_ai
    python -m benchmarks.overcooked_ai players

The second command needs no package and measures the scripted players.
Needs the package `overcooked_ai` 1.1.0 in the environment. Both engines play the same joint actions in the five
layouts. Half of the games are played by uniformly random cooks. In the others, the cooks act at random in 10 % or 30 %
of their steps, and otherwise do what brings a soup nearer, so that pots fill, cook and are served. The comparison stops
at the first difference. The page `benchmarks/overcooked_ai.md` has the totals.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from envsuite.envs.overcooked.soup import engine
from envsuite.envs.overcooked.soup.cooks import Crew
from envsuite.envs.overcooked.soup.engine import DISH, IDLE, NOTHING, ONION, SOUP, SoupKitchen, SoupState
from envsuite.envs.overcooked.soup.layout import (
    DISHES,
    FLOOR,
    GRIDS,
    INTERACT,
    ONIONS,
    POT,
    STAY,
    WINDOW,
    SoupLayout,
    published,
)

HORIZON = 400
PACKAGE_NAMES = {"counter_circuit": "counter_circuit_o_1order"}
"""Names of layouts in the package that differ from ours."""
NOISE = 1.0, 0.3, 1.0, 0.1
"""Share of random actions, by the number of the game."""
HEADER = (
    "layout | games | joint steps | different states | blocked moves | pots started | soups served | reward | shaped"
)


# ---- joint actions for both engines --------------------------------------------------------------------------------


def wanted(kitchen: SoupKitchen, state: SoupState, cook: int) -> list[int]:
    """Returns the cells that a cook would use next, given what it holds."""
    layout, held = kitchen.layout, state.hands[cook]
    pots = {cell: state.pots[layout.slot[cell]] for cell in layout.pots if reaches(layout, state, cook, cell)}
    if held > SOUP:
        return layout.cells(WINDOW)
    if held != NOTHING:
        useful = [cell for cell, (n, clock) in pots.items() if (clock != IDLE if held == DISH else n < 3)]
        return useful or [
            cell
            for cell in layout.counters
            if state.counters[layout.slot[cell]] == NOTHING and reaches(layout, state, 1 - cook, cell)
        ]
    if full := [cell for cell, pot in pots.items() if pot == (engine.MOST_ONIONS, IDLE)]:
        return full
    cooking = any(clock != IDLE for _, clock in state.pots) and DISH not in (*state.hands, *state.counters)
    laid = [cell for cell in layout.counters if pots and state.counters[layout.slot[cell]] != NOTHING]
    return laid + layout.cells(DISHES if cooking else ONIONS)


def reaches(layout: SoupLayout, state: SoupState, cook: int, cell: int) -> bool:
    """Returns True if a cook can walk to a place beside a cell."""
    reach = layout.distances[state.cells[cook]]
    return any(side in reach for side, _ in layout.access.get(cell, ()))


def next_action(layout: SoupLayout, state: SoupState, cook: int, target: int) -> int:
    """Returns the action of a cook that walks to a cell and uses it, and does not look at the other cook."""
    here, distances = state.cells[cook], layout.distances
    sides = [side for side in layout.access[target] if side[0] in distances[here]]
    if not sides:
        return STAY
    goal, direction = min(sides, key=lambda side: distances[here][side[0]])
    if here == goal:
        return INTERACT if state.facing[cook] == direction else direction
    return next(
        action for action in range(STAY) if distances[goal].get(here + layout.delta[action], 99) < distances[goal][here]
    )


def game(
    kitchen: SoupKitchen, rng: np.random.Generator, noise: float, steps: int = HORIZON
) -> Iterator[tuple[SoupState, tuple[int, ...], engine.Step]]:
    """Plays one game and yields state, joint action and result of each step.

    A cook acts at random with probability `noise`. Otherwise it goes on to its target.
    """
    state, targets = kitchen.start(), [-1, -1]
    layout = kitchen.layout
    for _ in range(steps):
        joint = []
        for cook in range(2):
            if rng.random() < noise:
                joint.append(int(rng.integers(6)))
                continue
            cells = [cell for cell in wanted(kitchen, state, cook) if reaches(layout, state, cook, cell)]
            if cells and (targets[cook] not in cells or rng.random() < 0.05):
                targets[cook] = cells[int(rng.integers(len(cells)))]
            joint.append(next_action(layout, state, cook, targets[cook]) if cells else STAY)
        actions = joint[0], joint[1]
        result = kitchen.step(state, actions)
        yield state, actions, result
        state = result.state


# ---- the package -----------------------------------------------------------------------------------------------------


class Reference:
    """The package's game in one layout.

    With `automatic`, a full pot starts by itself, as in the paper. Version 1.1.0 does not have this rule: it is added
    here, and all other rules are the package's.
    """

    def __init__(self, name: str, automatic: bool = False) -> None:
        from overcooked_ai_py.mdp import overcooked_mdp as package
        from overcooked_ai_py.mdp.actions import Action

        self.actions = Action.INDEX_TO_ACTION
        self.mdp: Any = package.OvercookedGridworld.from_layout_name(PACKAGE_NAMES.get(name, name))
        if automatic:
            self._make_automatic()
        self.layout = SoupLayout(name, tuple("".join(row) for row in self._grid()))
        self.state: Any = None

    def _make_automatic(self) -> None:
        effects = self.mdp.step_environment_effects

        def start_full_pots(state: Any) -> None:
            for thing in state.objects.values():
                if thing.name == "soup" and thing.is_idle and thing.is_full:
                    thing.begin_cooking()
            effects(state)

        self.mdp.step_environment_effects = start_full_pots
        self.mdp.soup_to_be_cooked_at_location = lambda state, cell: False

    def _grid(self) -> list[list[str]]:
        grid = [list(row) for row in self.mdp.terrain_mtx]
        for cook, (column, row) in enumerate(self.mdp.start_player_positions):
            grid[row][column] = str(cook + 1)
        return grid

    def start(self) -> SoupState:
        """Starts a game and returns its first state in this project's form."""
        self.state = self.mdp.get_standard_start_state()
        return self.translated()

    def step(self, joint: tuple[int, ...]) -> engine.Step:
        """Runs a joint action."""
        self.state, infos = self.mdp.get_state_transition(self.state, [self.actions[action] for action in joint])
        return engine.Step(
            self.translated(), tuple(infos["sparse_reward_by_agent"]), tuple(infos["shaped_reward_by_agent"])
        )

    def translated(self) -> SoupState:
        """Returns the package's state in this project's form; raises ValueError for one that has no such form."""
        layout, state = self.layout, self.state
        counters, pots = [NOTHING] * len(layout.counters), [engine.EMPTY] * len(layout.pots)
        for (column, row), thing in state.objects.items():
            cell = row * layout.columns + column
            if layout.kind[cell] == POT:
                pots[layout.slot[cell]] = len(thing.ingredients), thing._cooking_tick
            else:
                counters[layout.slot[cell]] = self._thing(thing)
        return SoupState(
            state.timestep,
            tuple(row * layout.columns + column for column, row in state.player_positions),
            tuple(self.actions.index(direction) for direction in state.player_orientations),
            tuple(self._thing(player.held_object) for player in state.players),
            tuple(counters),
            tuple(pots),
        )

    def _thing(self, thing: Any) -> int:
        if thing is None:
            return NOTHING
        if thing.name == "soup":
            if not thing.is_ready:
                raise ValueError(f"The package has a raw soup outside of a pot: {thing}.")
            return SOUP + len(thing.ingredients)
        return {"onion": ONION, "dish": DISH}[thing.name]


class Totals(NamedTuple):
    """Sums over the games of a layout."""

    layout: str
    games: int
    steps: int
    states: int
    blocked: int
    cooked: int
    served: int
    plain: int
    shaped: int


def compare(name: str, count: int, seed: int = 0, automatic: bool = False) -> Totals:
    """Plays games in both engines. Raises ValueError at the first difference."""
    kitchen, reference = SoupKitchen(published(name), automatic=automatic), Reference(name, automatic)
    layout = kitchen.layout
    if (reference.layout.kind, reference.layout.starts) != (layout.kind, layout.starts):
        raise ValueError(f"The layout {name} differs from the package's.")
    counts: Counter[str] = Counter()
    seen: set[SoupState] = set()
    for number in range(count):
        theirs = reference.start()
        rng = np.random.default_rng([seed, number])
        for state, joint, ours in game(kitchen, rng, NOISE[number % len(NOISE)]):
            if state != theirs:
                raise ValueError(f"{name}, game {number}: the states differ: {state} and {theirs}.")
            result = reference.step(joint)
            if result != ours:
                raise ValueError(f"{name}, game {number}, {state}, {joint}: {ours} differs from {result}.")
            theirs = result.state
            seen.add(theirs._replace(time=0))
            counts["steps"] += 1
            counts["blocked"] += _blocked(layout, state, joint, theirs)
            counts["cooked"] += _started(state, theirs)
            for cook, cell in enumerate(state.cells):
                if joint[cook] == INTERACT and layout.kind[cell + layout.delta[state.facing[cook]]] == WINDOW:
                    counts["served"] += state.hands[cook] > SOUP
            counts["plain"] += sum(ours.served)
            counts["shaped"] += sum(ours.shaped)
    return Totals(
        name, count, states=len(seen), **{name: counts[name] for name in Totals._fields[2:] if name != "states"}
    )


def _started(before: SoupState, after: SoupState) -> int:
    """Returns how many pots began to cook in a step."""
    return sum(old[1] == IDLE and new[1] != IDLE for old, new in zip(before.pots, after.pots, strict=True))


def _blocked(layout: SoupLayout, state: SoupState, joint: tuple[int, ...], after: SoupState) -> int:
    """Returns the number of cooks who could not walk onto floor because of the other cook."""
    return sum(
        action < STAY and layout.kind[cell + layout.delta[action]] == FLOOR and cell == new
        for cell, action, new in zip(state.cells, joint, after.cells, strict=True)
    )


def table(count: int, automatic: bool) -> str:
    """Compares all layouts and returns the totals as a Markdown table."""
    rows = [compare(name, count, automatic=automatic) for name in GRIDS]
    counts: list[tuple[str, tuple[int, ...]]] = [(row.layout, row[1:]) for row in rows]
    counts.append(("all", tuple(map(sum, zip(*(numbers for _, numbers in counts), strict=True)))))
    lines = [" | ".join([name, *(f"{number:,}" for number in numbers)]) for name, numbers in counts]
    return "\n".join(f"| {line} |" for line in (HEADER, " | ".join(["---"] * len(Totals._fields)), *lines))


PAIRS = ("random", "random"), ("greedy", "random"), ("expert", "random"), ("greedy", "greedy"), ("expert", "expert")


def soups(layout: str, pair: tuple[str, str], seed: int, automatic: bool = False) -> int:
    """Returns the soups of three onions that a pair of players serves in one game."""
    kitchen = SoupKitchen(published(layout), automatic=automatic)
    crews = {"expert": Crew(kitchen), "greedy": Crew(kitchen, alone=True)}
    rng, state, reward = np.random.default_rng(seed), kitchen.start(), 0
    for _ in range(HORIZON):
        joint = [
            int(rng.integers(6)) if player == "random" else crews[player].actions(state)[cook]
            for cook, player in enumerate(pair)
        ]
        state, served, _ = kitchen.step(state, (joint[0], joint[1]))
        reward += sum(served)
    return reward // engine.SOUP_REWARD


def players() -> str:
    """Returns the soups of pairs of players as a Markdown table; 25 games for a pair with a random cook."""
    lines = ["| layout | " + " | ".join(f"{first}, {second}" for first, second in PAIRS) + " | experts, automatic |"]
    lines.append("|---" * (len(PAIRS) + 2) + "|")
    for layout in GRIDS:
        cells = []
        for pair in PAIRS:
            if "random" not in pair:
                cells.append(str(soups(layout, pair, 0)))
                continue
            values = [soups(layout, pair, seed) for seed in range(25)]
            error = 1.96 * np.std(values, ddof=1) / len(values) ** 0.5
            cells.append(f"{np.mean(values):.2f} ± {error:.2f}" if any(values) else f"0 in {len(values)} games")
        cells.append(str(soups(layout, ("expert", "expert"), 0, automatic=True)))
        lines.append("| " + " | ".join([layout, *cells]) + " |")
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:] == ["players"]:
        print(players())
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 120
    begun = time.process_time()
    print(f"As in the package:\n\n{table(count, False)}\n\nFull pots start by themselves:\n\n{table(count, True)}\n")
    print(f"{time.process_time() - begun:.0f} s of processor time")


if __name__ == "__main__":
    main()
