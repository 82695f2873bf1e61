"""Shortest solutions of the published tasks, computed on their complete state graphs."""

from __future__ import annotations

from collections import deque
from functools import cache

from envsuite.envs.virtualhome.engine import HomeState
from envsuite.envs.virtualhome.published.tasks import Published, published


@cache
def solutions(name: str) -> dict[HomeState, tuple[int, int]]:
    """Returns, for every state that can still succeed, (commands to success, index of the next action).

    All actions of the task count, offered or not. Among equally short solutions the next action is one that the
    published wrapper offers, if there is one.
    """
    task = published(name)
    start = task.engine.start
    transitions: dict[HomeState, list[tuple[int, HomeState]]] = {}
    predecessors: dict[HomeState, set[HomeState]] = {start: set()}
    distance: dict[HomeState, int] = {}
    queue = deque([start])
    while queue:
        s = queue.popleft()
        if _won(task, s):
            distance[s] = 0
            continue
        transitions[s] = []
        for index, action in enumerate(task.actions):
            after, error = task.engine.apply(s, action)
            if error:
                continue
            if after not in predecessors:
                predecessors[after] = set()
                queue.append(after)
            predecessors[after].add(s)
            transitions[s].append((index, after))
    queue = deque(distance)
    while queue:
        s = queue.popleft()
        for previous in predecessors[s]:
            if previous not in distance:
                distance[previous] = distance[s] + 1
                queue.append(previous)
    best = {}
    for s, remaining in distance.items():
        offered = task.offers(task.vector(s, task.engine.visible(s)))
        candidates = [
            index for index, after in transitions.get(s, ()) if distance.get(after, remaining) == remaining - 1
        ]
        best[s] = remaining, min(candidates, key=lambda index: (index not in offered, index), default=-1)
    return best


def _won(task: Published, s: HomeState) -> bool:
    return task.success(task.vector(s, task.engine.visible(s)))
