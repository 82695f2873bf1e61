"""Panels: a finite set of games, sorted, then dealt round-robin by task type, and hashed."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable

from envsuite.types import Panel


def make_panel(name: str, games: Iterable[tuple[str, str, str]], expected: int = 0) -> Panel:
    """A panel of (task type, game name, content digest) triples, whatever order they come in.

    Sorting first and dealing by type makes the first k games the same on every machine and a fair sample of the types.
    """
    by_type: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for kind, game, content in sorted(games):
        by_type[kind].append((game, content))
    dealt = []
    queues = [by_type[kind] for kind in sorted(by_type)]
    for turn in range(max(map(len, queues), default=0)):
        dealt += [queue[turn] for queue in queues if turn < len(queue)]
    digest = hashlib.sha256()
    for game, content in dealt:
        digest.update(f"{game}\0{content}\n".encode())
    return Panel(name, tuple(game for game, _ in dealt), digest.hexdigest()[:16], expected)
