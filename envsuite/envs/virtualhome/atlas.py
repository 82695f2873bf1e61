"""The complete graph of a published task, with the distance of every state from success."""

from __future__ import annotations

from collections import deque
from functools import cache

from envsuite.envs.virtualhome.engine import State
from envsuite.envs.virtualhome.published import Published, published


@cache
def atlas(name: str) -> dict[State, tuple[int, int]]:
    """Every state of a published task that some command reaches: (commands to success, index of the next one).

    All action indices count, offered or not; among equally short ways the first one that is offered throughout is
    named.
    """
    task = published(name)
    start = task.engine.start
    ways: dict[State, list[tuple[int, State]]] = {}
    before: dict[State, set[State]] = {start: set()}
    distance: dict[State, int] = {}
    queue = deque([start])
    while queue:
        s = queue.popleft()
        if _won(task, s):
            distance[s] = 0
            continue
        ways[s] = []
        for index, action in enumerate(task.actions):
            after, error = task.engine.apply(s, action)
            if error:
                continue
            if after not in before:
                before[after] = set()
                queue.append(after)
            before[after].add(s)
            ways[s].append((index, after))
    queue = deque(distance)
    while queue:
        s = queue.popleft()
        for earlier in before[s]:
            if earlier not in distance:
                distance[earlier] = distance[s] + 1
                queue.append(earlier)
    found = {}
    for s, left in distance.items():
        offered = task.offers(task.vector(s, task.engine.visible(s)))
        closer = [index for index, after in ways.get(s, ()) if distance.get(after, left) == left - 1]
        found[s] = left, min(closer, key=lambda index: (index not in offered, index), default=-1)
    return found


def _won(task: Published, s: State) -> bool:
    return task.success(task.vector(s, task.engine.visible(s)))
