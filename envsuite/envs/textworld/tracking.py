"""What textworld's tracker of a game in play misses: things taken and doors gone through in other than its own words.

`take key` is traced as "removing the key from the box", but `get key`, `pick up key` and `take key and lamp` as "taking the
key", which to the tracker is the key on the floor alone. `go through gate` is traced as "entering gate", which it does not
know at all. What is tracked (the room, admissible commands, moves, plans) would be another game's from then on.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any


@functools.cache
def track_other_words() -> None:
    """Lets the tracker understand them, once in a process."""
    from textworld.generator.inform7 import Inform7Game

    detect = Inform7Game.detect_action

    def detect_action(self: Any, told: str, actions: Iterable[Any]) -> Any:
        actions = list(actions)
        found = detect(self, told, actions)
        verb, _, thing = told.lower().partition(" ")
        if found is not None or verb not in ("taking", "entering"):
            return found
        return removing(self, thing, actions) if verb == "taking" else going(self, thing, actions)

    def removing(self: Any, thing: str, actions: list[Any]) -> Any:
        for action in actions:
            event = self.kb.inform7_events[action.name].format(**self._get_name_mapping(action)).lower()
            if event.startswith(f"removing {thing} from "):
                return action
        return None

    def going(self: Any, door: str, actions: list[Any]) -> Any:
        ways = {
            (fact.arguments[0], fact.arguments[2])
            for fact in self.game.world.facts
            if fact.name == "link" and self.entity_infos[fact.arguments[1].name].name.lower() == door
        }
        for action in actions:
            if action.name.startswith("go/"):
                here, there = (
                    next(fact.arguments[1] for fact in facts if fact.name == "at")
                    for facts in (action.removed, action.added)
                )
                if (here, there) in ways:
                    return action
        return None

    Inform7Game.detect_action = detect_action
