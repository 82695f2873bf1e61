"""What textworld's tracker of a game in play misses: things taken without saying from where.

`take key` is traced as "removing the key from the box", but `get key`, `pick up key` and `take key and lamp` as "taking the
key", which the tracker takes for the key on the floor alone. Where it lay elsewhere, what is tracked (admissible commands,
moves, plans) would be another game's from then on.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any


@functools.cache
def track_takings() -> None:
    """Lets the tracker understand them, once in a process."""
    from textworld.generator.inform7 import Inform7Game

    detect = Inform7Game.detect_action

    def detect_action(self: Any, told: str, actions: Iterable[Any]) -> Any:
        actions = list(actions)
        found = detect(self, told, actions)
        verb, _, thing = told.lower().partition(" ")
        if found is None and verb == "taking":
            for action in actions:
                event = self.kb.inform7_events[action.name].format(**self._get_name_mapping(action)).lower()
                if event.startswith(f"removing {thing} from "):
                    return action
        return found

    Inform7Game.detect_action = detect_action
