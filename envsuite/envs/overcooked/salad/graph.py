"""Complete graph of the states between macro-actions, and shortest plans on it.

The largest published kitchen has 1,311 states, so that the exact expert reads its plans from the graph.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from envsuite.envs.overcooked.salad.engine import Macro, Simulation, State

COMMAND = 1 << 16
"""cost of a command in plans; a primitive step costs 1 in addition, to break ties"""


class Graph(NamedTuple):
    """Transition graph; state 0 is the start. Arrays are [states, macro-actions]; rows of final states are 0."""

    states: list[State]
    to: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]
    reward: npt.NDArray[np.float64]
    """dense reward of the macro-action, discounted within it by `discount`"""
    done: npt.NDArray[np.bool_]
    """[states]"""


def explore(sim: Simulation, macros: Sequence[Macro], step_cost: float = 0.001, discount: float = 0.99) -> Graph:
    """Returns the graph of all states that the cook can reach."""
    sim.reset()
    states = [sim.save()]
    index = {states[0]: 0}
    to: list[list[int]] = []
    steps: list[list[int]] = []
    rewards: list[list[float]] = []
    done: list[bool] = []
    for state in states:  # the list grows during the loop
        sim.load(state)
        done.append(sim.delivered)
        row: list[tuple[int, int, float]] = []
        for macro in macros:
            if done[-1]:
                row.append((index[state], 0, 0.0))
                continue
            sim.load(state)
            sim.begin(macro)
            count, total, factor = 0, 0.0, 1.0
            while sim.macro is not None:
                total += factor * (sim.tick() - step_cost)
                factor *= discount
                count += 1
            after = sim.save()
            if after not in index:
                index[after] = len(states)
                states.append(after)
            row.append((index[after], count, total))
        to.append([cell[0] for cell in row])
        steps.append([cell[1] for cell in row])
        rewards.append([cell[2] for cell in row])
    return Graph(states, np.array(to), np.array(steps), np.array(rewards), np.array(done))


def distances(graph: Graph, command_cost: int = 0) -> list[int | None]:
    """Returns the lowest cost from every state to serving the order, or None where that is impossible.

    A primitive step costs 1, and each command costs `command_cost` in addition. Runs Dijkstra's algorithm backwards.
    """
    back: list[list[tuple[int, int]]] = [[] for _ in graph.states]
    for state in np.flatnonzero(~graph.done).tolist():
        for to, steps in zip(graph.to[state].tolist(), graph.steps[state].tolist(), strict=True):
            back[to].append((state, steps + command_cost))
    best: list[int | None] = [0 if done else None for done in graph.done]
    heap = [(0, end) for end in np.flatnonzero(graph.done).tolist()]
    while heap:
        distance, state = heapq.heappop(heap)
        if distance == best[state]:
            for previous, cost in back[state]:
                known = best[previous]
                if known is None or distance + cost < known:
                    best[previous] = distance + cost
                    heapq.heappush(heap, (distance + cost, previous))
    return best


class SaladPlanner:
    """Plans with the fewest commands and, among these, the fewest primitive steps, for one kitchen and order."""

    def __init__(self, sim: Simulation, macros: Sequence[Macro]) -> None:
        """`sim` gives kitchen, order and view; it ends in its initial state."""
        self._graph = explore(sim, macros)
        self._number = {state: number for number, state in enumerate(self._graph.states)}
        self._cost = distances(self._graph, COMMAND)
        sim.reset()

    def remaining(self, state: State) -> int | None:
        """Returns the fewest commands that serve the order, or None if that is impossible."""
        cost = self._cost[self._number[state]]
        return None if cost is None else cost // COMMAND

    def best(self, state: State) -> int:
        """Returns the number of the next macro-action on a shortest plan."""
        row = self._number[state]
        costs = []
        for macro, (after, steps) in enumerate(zip(self._graph.to[row], self._graph.steps[row], strict=True)):
            cost = self._cost[after]
            if cost is not None:
                costs.append((cost + COMMAND + int(steps), macro))
        return min(costs)[1]
