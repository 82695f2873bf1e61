"""Names that the interpreter may take for one another: the words of "locker" are also those of "type Q locker".

Whoever can see both and says `take key from locker` is asked "Which do you mean, the type Q locker or the locker?", and
saying it again changes nothing, though the command is admissible. In the first place of a command (`open locker`) the
interpreter chooses by itself, and rightly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ASKS = "Which do you mean"
SECOND = re.compile(r"(.+) (from|into|on|with) (.+)")


def mistakable(keys: Iterable[str], facts: Iterable[Any], infos: Mapping[str, Any]) -> bool:
    """Whether all words of the name of one of these things are in the name of another that the player sees or carries.

    `keys` name things in `infos` (a game's); `facts` are those that hold now.
    """
    holder = {fact.arguments[0].name: fact.arguments[1].name for fact in facts if fact.name in ("at", "in", "on")}
    here = {holder.get("P"), "I"}

    def within_reach(key: str) -> bool:
        if infos[key].type == "d":
            return True
        while key in holder:
            key = holder[key]
        return key in here

    words = {key: set(info.name.lower().split()) for key, info in infos.items() if info.name and info.type != "r"}
    return any(
        words[key] <= words[other] and within_reach(other)
        for key in keys
        if key in words
        for other in words
        if other != key
    )


def spelled(command: str, facts: Iterable[Any], infos: Mapping[str, Any], played: Sequence[str], reply: str) -> str:
    """A command so that it is understood.

    `take X from Y` becomes `take X` where Y could be another thing. There is no such way round the others (`put X on Y`,
    `lock X with Y`): once the interpreter asks, Y is examined and then called "it", which costs two turns. `played` is
    what was sent so far, in lower case, and `reply` the last answer.
    """
    parts = SECOND.fullmatch(command)
    if parts is None:
        return command
    act, link, name = parts.groups()
    if link == "from":
        keys = [key for key, info in infos.items() if info.name == name]
        return act if mistakable(keys, facts, infos) else command
    said, look = command.lower(), f"examine {name}"
    if played[-1:] == [said] and ASKS in reply:
        return look
    if played[-2:] == [said, look.lower()]:
        return f"{act} {link} it"
    return command
