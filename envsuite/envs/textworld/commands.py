"""What may be sent to a Z-machine interpreter, and what is worth listing.

The engine takes anything, and some of it does harm: a leading backslash never returns, `save` and `script` write files,
`restart` and two commands in a line make the tracked state wrong, and so do brackets: the tracker reads what happened from
`[opening the box - succeeded]`, and `answer ...` says after whoever types it. `clean` lets none of that through. What comes through
all the same can do no more than write into the worker's own folder, which goes with it.
"""

from __future__ import annotations

import re
import unicodedata

MAX_LENGTH = 198  # bytes; the interpreter cuts what is longer

SIGNIFICANT = 6
"""letters of a word that a Z-machine of any version looks at (from version 4 on nine): to it `transcriptx` is `transcript`
(Z-Machine Standards Document 1.1, section 13.3)"""

COMMANDS = """
save restore restart quit q script unscript noscript transcript record recording unrecord replay undo oops o verify
notify restrict enable disable print
"""
META = frozenset(word[:SIGNIFICANT] for word in COMMANDS.split())
"""first words, as far as they signify, of commands to the interpreter, and of TextWorld's own for debugging (`print_state`
tells the whole hidden world, `restrict commands` changes what is understood)"""
PRINTING = frozenset(
    word[:SIGNIFICANT] for word in ("brief", "superbrief", "verbose", "normal", "long", "short", "version")
)
"""commands, alone in a line, that change what later turns print, or print the banner"""
PLAIN = str.maketrans(
    {"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", "\u00a0": " ", **dict.fromkeys("\\[]", "")}
)
FIRST_WORD, THEN = re.compile("[a-z]+"), re.compile(r"\bthen\b")

EMPTY = "Say what you want to do."
TOO_LONG = f"That is too long: a command has at most {MAX_LENGTH} characters."
FOREIGN = "This game understands plain English letters only."
SEVERAL = "One command at a time, without full stops, commas or 'then'."
OUTSIDE = "That is a command to the interpreter; here it does nothing."

LOOKING = ("look", "inventory")
EXAMINE, RECIPE = "examine ", "examine cookbook"


def clean(command: str) -> tuple[str, str]:
    """(what to send, '') or ('', why nothing is sent): lower case, one line, single spaces, printable ASCII."""
    if not (command.isascii() and command.isprintable()):
        command = (command.strip().splitlines() or [""])[0]
        command = "".join(" " if char.isspace() else char for char in command if char.isspace() or _printable(char))
    command = command.translate(PLAIN)
    command = " ".join(command.lower().split()).rstrip(". ")
    if not command:
        return "", EMPTY
    if len(command) > MAX_LENGTH:
        return "", TOO_LONG
    if not command.isascii():
        return "", FOREIGN
    if "." in command or "," in command or THEN.search(command):
        return "", SEVERAL
    letters = FIRST_WORD.match(command)
    first = letters.group()[:SIGNIFICANT] if letters else ""
    alone = " " not in command
    if first in META or (first in PRINTING and alone) or command.startswith(("tw-", "#", "$", "*")):
        return "", OUTSIDE
    return command, ""


def _printable(char: str) -> bool:
    return not unicodedata.category(char).startswith("C")


def worthwhile(commands: list[str]) -> list[str]:
    """Admissible commands less those that only look, but for the cookbook, which alone tells the recipe."""
    return [
        command
        for command in commands
        if command not in LOOKING and (not command.startswith(EXAMINE) or command == RECIPE)
    ]


UNDERSTOOD_ANYWAY = frozenset(["help", "goal", "score", "wait", "z"])
"""commands of generated games that no list of admissible ones names"""

NOT_UNDERSTOOD = re.compile(
    r"beg your pardon|not a verb|didn't understand|don't understand|can't see any such|only understood you as far"
    r"|have to be more specific|don't know the word|What do you want|Which do you mean|not something you can|You can't",
    re.IGNORECASE,
)
"""how Inform and Infocom games turn a command down, for games that come without their .json"""
