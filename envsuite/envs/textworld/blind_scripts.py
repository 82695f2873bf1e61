"""Scripts of the blind player for objectives that name the last command of a quest only.

A script is a list of commands, separated by "; ". Names in braces are those of the objective, and `{goal}` is the last
command itself. The parser takes `take all but me` for everything in reach, although it refuses `take all`; it reads a
missing name (`open`, `unlock box`) as the only thing that fits; and a word of a name stands for the name.
"""

from __future__ import annotations

SHORT_SCRIPTS = {
    "put": (
        "open; unlock chest; unlock safe; go west; go north; take all but me; "
        "go south; go east; open safe; open chest; take {thing}; put {thing} on {place}"
    ),
    "insert": (
        "go west; go north; take all but me; go east; go south; open cabinet; "
        "open suitcase; unlock box; open box; open trunk; take {thing}; insert {thing} into {place}"
    ),
    "insert into a lockable container": (
        "go west; go north; take all but me; go east; go south; take all but me; "
        "unlock {place} with latchkey; unlock {place} with key; unlock {place} with keycard; unlock {place} with "
        "passkey; open {place}; insert {thing} into {place}"
    ),
    "take": (
        "take all but me; unlock {place}; unlock {place} with key; unlock {place} with keycard; "
        "unlock {place} with latchkey; unlock {place} with passkey; open {place}; take {thing}"
    ),
    "drop": (
        "unlock box; go west; go north; take all but me; go south; go east; "
        "open; open box; unlock safe; open safe; take {thing}; drop {thing}"
    ),
    "eat": (
        "unlock chest; go west; go north; take all but me; go east; go south; "
        "unlock safe; open; open safe; open chest; take all but me; eat {thing}"
    ),
    "open": (
        "take all but me; go south; go east; take all but me; open; unlock {place} with passkey; "
        "take keycard; unlock {place} with key; unlock {place} with latchkey; unlock {place} with keycard; take "
        "all but me; open {place}"
    ),
    "unlock with": (
        "open; go north; go west; take all but me; go east; go south; "
        "open cabinet; open dresser; open case; open chest; take {key}; unlock {place} with {key}"
    ),
    "lock with": (
        "go north; go west; take all but me; go south; go east; unlock locker; "
        "unlock chest with keycard; open locker; open chest; close {place}; take {key}; lock {place} with {key}"
    ),
    "close": "close {place}",
    "unlock": (
        "go north; go west; open; take all but me; go south; open chest; "
        "take all but me; go east; unlock {place} with passkey; unlock {place} with keycard; unlock {place} with "
        "latchkey; unlock {place} with key"
    ),
    "lock": (
        "go west; go north; open; take all but me; go east; go south; "
        "lock {place} with passkey; open safe; lock {place} with key; close {place}; lock {place}; lock {place} "
        "with latchkey"
    ),
}
"""Scripts of at most twelve commands, the turns of TextWorld-easy-v2, by the kind of the last command."""

LONG_SCRIPTS = {
    16: {
        "thing": (
            "take all but me; go west; go south; take all but me; unlock box; unlock safe with passkey; "
            "unlock chest with keycard; unlock chest with latchkey; open chest; unlock safe with key; open "
            "box; unlock safe with latchkey; open safe; take all but me; go east; {goal}"
        ),
        "place": (
            "take all but me; unlock locker; unlock box; unlock box with latchkey; unlock box with keycard; "
            "open box; open locker; take all but me; go south; go east; unlock {place} with keycard; unlock "
            "{place} with latchkey; unlock {place} with key; unlock {place} with passkey; open {place}; take "
            "all but me"
        ),
        "lock": (
            "take all but me; open {place}; go west; unlock box; close {place}; open box; go south; unlock "
            "safe; open safe; take all but me; go east; close {place}; go north; go east; close {place}; take "
            "all but me"
        ),
        "unlock with": (
            "take all but me; go west; unlock locker with keycard; take all but me; unlock locker with "
            "passkey; open locker; unlock safe; unlock safe with latchkey; open safe; take all but me; go "
            "east; unlock box with latchkey; unlock box with passkey; open box; take {key}; unlock {place} "
            "with {key}"
        ),
    },
    24: {
        "thing": (
            "go east; take all but me; go west; unlock safe; open safe; go south; go west; take all but me; "
            "unlock chest; unlock chest with key; unlock box with passkey; unlock locker with latchkey; "
            "unlock box with keycard; unlock locker with passkey; unlock locker with keycard; unlock locker "
            "with key; unlock chest with keycard; open chest; open locker; unlock box with latchkey; open "
            "box; take all but me; go east; {goal}"
        ),
        "place": (
            "take all but me; go west; go north; take all but me; unlock locker; unlock safe; unlock safe "
            "with key; open locker; open safe; take all but me; unlock box with key; unlock box; unlock box "
            "with keycard; open box; take all but me; go south; go east; take all but me; unlock {place} with "
            "latchkey; unlock {place} with passkey; unlock {place} with key; unlock {place} with keycard; "
            "open {place}; take all but me"
        ),
        "lock": (
            "open suitcase; go east; close {place}; go south; take all but me; go west; go north; take all "
            "but me; unlock chest; unlock safe with passkey; unlock locker with key; close {place}; unlock "
            "box with key; unlock box with keycard; unlock chest with keycard; unlock locker with passkey; "
            "unlock safe with latchkey; unlock safe with key; open safe; unlock box; open box; open chest; "
            "open locker; take all but me"
        ),
        "unlock with": (
            "go east; take all but me; go west; unlock locker with keycard; unlock box with key; go south; go "
            "south; unlock locker; go west; open locker; take all but me; unlock box with passkey; unlock "
            "safe with passkey; unlock safe with latchkey; unlock box; unlock chest; unlock safe; open box; "
            "open chest; open safe; take all but me; go north; go east; unlock {place} with {key}"
        ),
    },
    50: {
        "thing": (
            "go west; open chest; open safe; go south; take all but me; go east; open case; go south; take "
            "all but me; go north; open {place}; take all but me; unlock chest with latchkey; open chest; "
            "take {thing}; {goal}; open portal; go east; take all but me; unlock locker with passkey; go "
            "west; take all but me; open hatch; open door; open box; go south; go south; unlock locker with "
            "keycard; unlock safe with keycard; unlock safe with latchkey; {goal}; open safe; go west; take "
            "all but me; go north; take all but me; go north; open {place}; go east; open locker; take "
            "{thing}; go south; go south; take {thing}; {goal}"
        ),
        "place": (
            "go west; take all but me; go south; open gate; go east; go north; go north; take all but me; "
            "unlock box with key; go south; open safe; unlock chest with passkey; open {place}; go east; open "
            "chest; unlock locker with key; open locker; go south; take all but me; go west; take all but me; "
            "go north; go north; unlock {place} with keycard; unlock safe with passkey; unlock safe; open "
            "{place}; take all but me; go west; open box; open safe; take all but me; go east; go south; take "
            "all but me; go south; unlock {place} with latchkey; unlock {place} with keycard; close {place}; "
            "unlock {place} with passkey; unlock {place} with key; open {place}; take all but me; go north; "
            "unlock {place} with keycard; close {place}; open {place}"
        ),
        "lock": (
            "go north; go north; open {place}; take all but me; go east; go south; go east; close {place}; "
            "open portal; open box; take all but me; go west; take all but me; go north; close {place}; lock "
            "{place} with key; go west; go north; open locker; take all but me; go south; lock {place} with "
            "{key}; go east; open gateway; go south; go west; open chest; go west; take all but me; go east; "
            "take all but me; close {place}; lock {place} with {key}; lock {place} with latchkey"
        ),
        "unlock with": (
            "open box; go east; take latchkey; go north; take all but me; unlock {place} with {key}; open "
            "box; go north; take {key}; go east; go south; go west; take all but me; open portal; unlock safe "
            "with latchkey; unlock {place} with {key}; unlock door with passkey; go west; open safe; take "
            "{key}; go west; unlock hatch with keycard; go south; take all but me; unlock {place} with {key}; "
            "open door; go north; go east; take all but me; unlock {place} with {key}"
        ),
    },
}
"""Scripts for larger houses, by turns (16: TextWorld-easy-v3, 24: -medium-v2, 50: -hard-v2) and group of goals.

They were fitted to 1,500 training games of each level, by simulated annealing in a simulator of the parser. Neither
program is in the repository; benchmarks/textworld_blind.py compares the scripts with random changes of them. Commands
that won no training game were removed, so that a script may be shorter than the turns; the player then repeats it.
"""
