"""Scripts of the blind player: they turn a quest's objective into commands, without any observation."""

from __future__ import annotations

import re

_PATTERNS = (
    (r".*\b(?:go|venture|travel|move|head|walk|trip|run|east|west|north|south)\b.*?\b(north|south|east|west)\b.*", "go {0}"),
    (r".*\binsert the (.+?) into the (.+?)'s lock to unlock it.*", "unlock {1} with {0}"),
    (r".*\bthe (.+?) (?:inside|within|in) the .+? is unlocked with the (.+)", "unlock {0} with {1}"),
    (r".*\bthe (.+?) is unlocked with the (.+)", "unlock {0} with {1}"),
    (r".*\bunlock the (.+?)(?: (?:inside|within|in) the [^,.]+?)? with the (.+)", "unlock {0} with {1}"),
    (r".*\bthe (.+?)(?: (?:inside|within|in) the [^,.]+)? is (?:wide )?(?:open|ajar|opened).*", "open {0}"),
    (r".*\b(?:take|pick[- ]up|retrieve|recover|get|lift) the (.+?) from the floor.*", "take {0}"),
    (r".*\b(?:take|pick[- ]up|retrieve|recover|get|lift) the (.+?) from the (.+?)(?: (?:inside|within|in) the .+)?", "take {0} from {1}"),
    (r".*\b(?:drop|ditch|put down|discard|let go of) the (.+?)(?: (?:on the floor|in the|inside).*)?", "drop {0}"),
    (r".*\b(?:put|place|rest|deposit|sit|lay) the (.+?) on the (.+?)(?: (?:inside|within|in) the .+)?", "put {0} on {1}"),
    (r".*\b(?:put|place|rest|deposit|insert) the (.+?) (?:inside|into|within|in) the (.+?)(?: (?:inside|within|in) the .+)?", "insert {0} into {1}"),
    (r".*\b(?:eat|consume|devour) the (.+)", "eat {0}"),
    (r".*\b(?:open|pull open) the (.+?)(?: (?:inside|within|in) the .+)?", "open {0}"),
    (r".*\b(?:close|shut) the (.+?)(?: (?:inside|within|in) the .+)?", "close {0}"),
    (r".*\b(?:lock) the (.+?) with the (.+?)", "lock {0} with {1}"),
)  # fmt: skip


def blind_commands(objective: str) -> list[str]:
    """Returns one command for every sentence that names an act; ["look"] if none does."""
    commands = []
    for sentence in re.split(r"(?<=[.!?]) ", objective):
        clause = re.sub(r"^(?:if|once|after|when|with) [^,]*, ", "", sentence.strip(" .!?"), flags=re.IGNORECASE)
        for pattern, template in _PATTERNS:
            match = re.fullmatch(pattern, clause, flags=re.IGNORECASE)
            if match:
                commands.append(template.format(*match.groups()))
                break
    return commands or ["look"]


def brief_goal_commands(objective: str) -> list[str]:
    """Returns a script for an objective that names the last command of a quest only.

    It tries to get what the command needs, and the command itself, in the first room and after a step in each direction.
    """
    command = blind_commands(objective)[-1]
    verb, _, rest = command.partition(" ")
    first, _, second = rest.partition(_PREPOSITIONS.get(verb, " from "))
    needed = {
        "take": [f"open {second}"] * bool(second),
        "insert": [f"take {first}", f"open {second}"],
        "put": [f"take {first}"],
        "unlock": [f"take {second}"],
        "lock": [f"take {second}", f"close {first}"],
        "drop": [f"take {first}"],
        "eat": [f"take {first}"],
        "close": [f"open {first}"],
    }.get(verb, [])
    return [step for way in ("", *_WAYS) for step in (*[f"go {way}"] * bool(way), *needed, command)]


_PREPOSITIONS = {"insert": " into ", "put": " on ", "unlock": " with ", "lock": " with "}
_WAYS = ("north", "east", "south", "west")
