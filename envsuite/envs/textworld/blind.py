"""The blind player: turns a quest's objective into commands, without any observation."""

from __future__ import annotations

import re

from envsuite.envs.textworld.blind_scripts import SCRIPTS

_MOVE = re.compile(
    r".*\b(?:go|venture|travel|move|head|walk|trip|run|east|west|north|south)\b.*?\b(north|south|east|west)\b.*",
    re.IGNORECASE,
)
_KEYS = ("key", "keycard", "latchkey", "passkey")
_COMMANDS = {
    "open": "open {place}",
    "close": "close {place}",
    "take": "take {thing}",
    "drop": "drop {thing}",
    "put": "put {thing} on {place}",
    "insert": "insert {thing} into {place}",
    "eat": "eat {thing}",
    "unlock with": "unlock {place} with {key}",
    "lock with": "lock {place} with {key}",
}
"""Commands of the acts that a sentence states completely. `lock` and `unlock` without a key are not among them."""


def blind_commands(objective: str) -> list[str]:
    """Returns the commands for every sentence that names an act; ["look"] if none does.

    A sentence that names a lock but no key becomes several commands: the only thing held (the parser adds it), the
    key that was taken last, and every kind of key.
    """
    commands: list[str] = []
    taken: list[str] = []
    for sentence in re.split(r"(?<=[.!?]) ", objective):
        clause = re.sub(
            r"^(?:if|once|after|when|with|having|that done)\b[^,]*, ", "", sentence.strip(" .!?"), flags=re.IGNORECASE
        )
        if move := _MOVE.fullmatch(clause):
            commands.append(f"go {move[1]}")
        elif act := brief_goal(clause):
            kind, names = act
            if kind in _COMMANDS:
                commands.append(_COMMANDS[kind].format(**names))
            else:
                keys = taken[-1:] or _KEYS
                commands += [f"{kind} {names['place']}", *(f"{kind} {names['place']} with {key}" for key in keys)]
            if kind == "take" and names["thing"].split()[-1] in _KEYS:
                taken.append(names["thing"])
    return commands or ["look"]


def brief_goal_commands(objective: str, turns: int) -> list[str]:
    """Returns the longest script of `turns` commands for an objective that names the last command of a quest only.

    The script takes what is in reach, opens the containers that most often hold what is needed, and tries the last
    command. For fewer turns than the shortest script has, it is the shortest.
    """
    goal = brief_goal(objective)
    if goal is None:
        return blind_commands(objective)
    kind, names = goal
    length = max((length for length in SCRIPTS if length <= turns), default=min(SCRIPTS))
    return fill_script(SCRIPTS[length][goal_group(kind, names)], kind, names)


def goal_group(kind: str, names: dict[str, str]) -> str:
    """Returns the group of goals whose script in `SCRIPTS` serves a goal: thing, place, lock or unlock with."""
    if kind in ("insert", "take") and _is_lockable(names["place"]):
        return "place"
    return _GROUPS.get(kind, "thing")


def fill_script(script: str, kind: str, names: dict[str, str]) -> list[str]:
    """Returns the commands of a script for a goal, without those that need a name which the objective lacks."""
    known = dict(names)
    if kind in ("put", "insert", "drop", "eat"):
        known["goal"] = _COMMANDS[kind].format(**names)
    return [
        command.format(**known)
        for command in script.split("; ")
        if all(name in known for name in re.findall(r"{(\w+)}", command))
    ]


def _is_lockable(place: str) -> bool:
    return place.split()[-1].lower() in _LOCKABLE


def brief_goal(objective: str) -> tuple[str, dict[str, str]] | None:
    """Returns the kind of the last command of a quest and the names in it; None if the objective names none."""
    sentence = re.split(r"(?<=[.!?]) ", objective.strip(" .!?"))[-1]
    for kind, pattern in _GOALS:
        match = re.fullmatch(rf"(?:.*?\b)??{pattern}", sentence, flags=re.IGNORECASE)
        if match:
            return kind, match.groupdict()
    return None


_THING, _KEY = "the (?P<thing>.+?)", "the (?P<key>.+?)"
_PLACE = "the (?P<place>.+?)(?: (?:inside|within|in) the [a-z -]+?)?"
_GOALS = (
    ("unlock with", f"insert {_KEY} into {_PLACE}'s lock to unlock it"),
    ("lock with", f"(?:insert|put|place|deposit) {_KEY} into {_PLACE} to lock it"),
    ("lock with", f"lock {_PLACE} with {_KEY}"),
    ("lock with", f"{_PLACE} is locked with {_KEY}"),
    ("unlock with", f"unlock {_PLACE} with {_KEY}"),
    ("unlock with", f"{_PLACE} is unlocked with {_KEY}"),
    ("lock", f"{_PLACE} is locked"),
    ("unlock", f"{_PLACE} is unlocked"),
    ("lock", f"lock {_PLACE}"),
    ("unlock", f"unlock {_PLACE}"),
    ("open", f"open {_PLACE}"),
    ("open", f"{_PLACE} is (?:wide )?(?:open|opened|ajar)"),
    ("close", f"(?:close|shut) {_PLACE}"),
    ("close", f"{_PLACE} is (?:closed|shut)"),
    ("drop", f"{_THING} on the floor.*"),
    ("drop", f"drop {_THING}"),
    ("take", f"{_THING} from {_PLACE}"),
    ("put", f"{_THING} on {_PLACE}"),
    ("insert", f"{_THING} (?:into|inside|in) {_PLACE}"),
    ("eat", f"(?:eat|consume|devour) {_THING}"),
)
"""Kinds of last commands, with patterns of the sentences that name them."""
_LOCKABLE = ("box", "chest", "locker", "safe")
_GROUPS = {
    "open": "place",
    "close": "place",
    "unlock": "place",
    "lock": "lock",
    "lock with": "lock",
    "unlock with": "unlock with",
}
"""Groups of goals that share a script of `SCRIPTS`; other goals belong to "thing"."""
