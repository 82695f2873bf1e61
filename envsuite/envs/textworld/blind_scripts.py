"""Scripts of the blind player for objectives that name the last command of a quest only.

A script is a list of commands, separated by "; ". Names in braces are those of the objective, and `{goal}` is the last
command itself. The parser takes `take all but me` for everything in reach, although it refuses `take all`; it reads a
missing name (`open`, `unlock box`) as the only thing that fits; and a word of a name stands for the name.
"""

from __future__ import annotations

SCRIPTS = {
    16: {
        "thing": (
            "take all but me; go west; go south; take all but me; unlock locker with key; unlock safe with "
            "key; unlock safe with passkey; unlock locker with latchkey; unlock safe with latchkey; unlock "
            "locker with keycard; unlock locker with passkey; open safe; open locker; take all but me; go "
            "east; {goal}"
        ),
        "place": (
            "go north; take all but me; go west; go south; take all but me; unlock box; open box; take all "
            "but me; go east; unlock {place} with passkey; unlock {place} with latchkey; unlock {place} with "
            "keycard; unlock {place} with key; open {place}; {goal}; take all but me"
        ),
        "lock": (
            "go west; go south; take all but me; unlock locker; unlock safe; unlock chest with keycard; open "
            "safe; unlock chest; open chest; open locker; take all but me; go north; go east; close {place}; "
            "lock {place} with passkey; lock {place} with {key}"
        ),
        "unlock with": (
            "take all but me; go south; go west; take all but me; unlock chest with passkey; unlock safe; "
            "unlock safe with latchkey; unlock box; open box; unlock chest; open safe; open chest; take all "
            "but me; go north; go east; unlock {place} with {key}"
        ),
    },
    24: {
        "thing": (
            "go north; go east; take all but me; go west; go south; unlock safe; open safe; go west; take all "
            "but me; unlock box with passkey; unlock box with latchkey; unlock locker with latchkey; unlock "
            "locker with keycard; unlock locker with key; open box; open locker; take all but me; unlock "
            "chest with keycard; unlock chest with key; open chest; take all but me; go east; open {place}; "
            "{goal}"
        ),
        "place": (
            "take all but me; go west; go north; take all but me; unlock safe; unlock locker; open safe; open "
            "locker; take all but me; unlock box; unlock box with keycard; unlock box with key; open box; "
            "take all but me; go south; go east; take all but me; unlock {place} with keycard; unlock {place} "
            "with latchkey; unlock {place} with key; unlock {place} with passkey; open {place}; take {thing}; "
            "{goal}"
        ),
        "lock": (
            "go east; take all but me; go west; open {place}; go west; go south; take all but me; unlock "
            "chest with latchkey; unlock box with latchkey; unlock safe; unlock locker; go west; open locker; "
            "open safe; unlock chest with keycard; open chest; unlock box with key; open box; take all but "
            "me; go north; go east; close {place}; lock {place} with {key}; lock {place} with passkey"
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
            "open portal; take all but me; go east; open locker; take all but me; {goal}; go south; go east; "
            "go south; take all but me; unlock chest with key; unlock chest with passkey; unlock chest with "
            "keycard; go south; open chest; unlock box with key; open box; take all but me; go west; take all "
            "but me; go west; unlock box with key; go north; unlock hatch with passkey; open gate; go west; "
            "take all but me; open hatch; go south; unlock box with passkey; unlock box with keycard; open "
            "box; take all but me; unlock chest with latchkey; unlock safe with passkey; go south; unlock "
            "chest with keycard; {goal}; unlock safe with keycard; unlock chest with key; open chest; open "
            "safe; take all but me; go east; {goal}; take {thing}; go north; open {place}; take {thing}; "
            "{goal}"
        ),
        "place": (
            "go south; open hatch; take all but me; open locker; go north; go east; go north; open {place}; "
            "take all but me; go west; go west; go south; open passageway; go south; open box; open cabinet; "
            "open trunk; take all but me; go east; go east; go south; go south; take all but me; go west; go "
            "west; go north; go east; close {place}; take all but me; unlock {place} with passkey; unlock "
            "{place} with latchkey; unlock {place} with key; open {place}; take all but me; {goal}; go west; "
            "go south; take all but me; go east; unlock {place} with passkey; unlock {place} with latchkey; "
            "unlock {place} with key; unlock {place} with keycard; close {place}; open {place}; take all but "
            "me; unlock {place} with key; {goal}; go north"
        ),
        "lock": (
            "go east; go west; take all but me; go north; close {place}; lock {place} with key; go west; go "
            "north; open locker; take all but me; go east; open locker; take all but me; lock {place} with "
            "keycard; lock {place} with {key}; go south; lock {place} with keycard; go north; take all but "
            "me; go east; go south; open box; open portal; take all but me; go west; take all but me; go "
            "south; unlock {place} with passkey; go west; open chest; take all but me; go west; go east; "
            "close {place}; take all but me; lock {place} with key; lock {place} with latchkey; lock {place} "
            "with passkey; lock {place} with keycard; lock {place} with {key}"
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
"""Scripts by turns (16: TextWorld-easy-v0, 24: -medium-v0, 50: -hard-v0) and group of goals.

They were fitted to seeds 50,001 to 51,500 of each level, by simulated annealing in a simulator of the parser, which is
not in the repository. Commands that won no training game were removed, so that a script may be shorter than the turns;
the player then repeats it.
"""
