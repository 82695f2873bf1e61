"""Names that the interpreter cannot tell apart, such as "locker" and "type Q locker".

If both are visible, `take key from locker` is answered "Which do you mean, the type Q locker or the
locker?", and repeating the command does not help although it is admissible. In the first position
of a command (`open locker`) the interpreter chooses correctly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ASKS = "Which do you mean"
SECOND = re.compile(r"(.+) (from|into|on|with) (.+)")


def is_ambiguous(keys: Iterable[str], facts: Iterable[Any], infos: Mapping[str, Any]) -> bool:
    """Tests whether the words of a name are part of the name of another visible object.

    `keys` are entities of `infos` (of a game); `facts` hold now.
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
        words[key] <= words[longer_name] and within_reach(longer_name)
        for key in keys
        if key in words
        for longer_name in words
        if longer_name != key
    )


def resolve_ambiguity(
    command: str, facts: Iterable[Any], infos: Mapping[str, Any], played: Sequence[str], reply: str
) -> str:
    """Rephrases a command so that the interpreter understands it.

    `take X from Y` becomes `take X` if Y is ambiguous. Other commands (`put X on Y`, `lock X with
    Y`) have no such form: once the interpreter has asked, Y is examined and then called "it", which
    costs two turns. `played` are the commands so far in lower case, `reply` is the last answer.
    """
    parts = SECOND.fullmatch(command)
    if parts is None:
        return command
    act, link, name = parts.groups()
    if link == "from":
        keys = [key for key, info in infos.items() if info.name == name]
        return act if is_ambiguous(keys, facts, infos) else command
    lower_case, examine = command.lower(), f"examine {name}"
    if played[-1:] == [lower_case] and ASKS in reply:
        return examine
    if played[-2:] == [lower_case, examine.lower()]:
        return f"{act} {link} it"
    return command
