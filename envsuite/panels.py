"""Panels, finite hashed lists of games: sorted, then interleaved by task type."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable

from envsuite.types import Panel


def make_panel(name: str, games: Iterable[tuple[str, str, str]], expected: int = 0) -> Panel:
    """Builds a panel from (task type, game name, content digest) triples in any order.

    Sorting first and interleaving by type makes the first k games the same on every machine and a
    balanced sample of the types.
    """
    by_type: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for kind, game, content in sorted(games):
        by_type[kind].append((game, content))
    ordered = []
    queues = [by_type[kind] for kind in sorted(by_type)]
    for turn in range(max(map(len, queues), default=0)):
        ordered += [queue[turn] for queue in queues if turn < len(queue)]
    digest = hashlib.sha256()
    for game, content in ordered:
        digest.update(f"{game}\0{content}\n".encode())
    return Panel(name, tuple(game for game, _ in ordered), digest.hexdigest()[:16], expected)
