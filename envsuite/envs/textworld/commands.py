"""Filters commands before they reach a Z-machine interpreter, and selects those worth listing.

The engine accepts any text, and some of it does harm. A leading backslash hangs it, `save` and
`script` write files, and `restart`, two commands in one line, or brackets corrupt the tracked
state: the tracker reads events from lines such as `[opening the box - succeeded]`, and `answer ...`
echoes what the player types. `clean` rejects all of these. The worst a cleaned command can do is
write into the worker's temporary folder.
"""

from __future__ import annotations

import re
import unicodedata

MAX_LENGTH = 198  # bytes; the interpreter cuts what is longer

SIGNIFICANT = 6
"""Number of letters of a word that every Z-machine version compares (nine from version 4 on).

`transcriptx` therefore equals `transcript` (Z-Machine Standards Document 1.1, section 13.3)."""

COMMANDS = """
save restore restart quit q script unscript noscript transcript record recording unrecord replay undo oops o verify
notify restrict enable disable print
"""
META = frozenset(word[:SIGNIFICANT] for word in COMMANDS.split())
"""First words, cut to SIGNIFICANT letters, of commands to the interpreter or for debugging.

`print_state`, for example, shows the full hidden state, and `restrict commands` changes the parser.
"""
PRINTING = frozenset(
    word[:SIGNIFICANT] for word in ("brief", "superbrief", "verbose", "normal", "long", "short", "version")
)
"""Commands that, alone on a line, change the output of later turns or print the banner."""
PLAIN = str.maketrans(
    {"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", "\u00a0": " ", **dict.fromkeys("\\[]", "")}
)
FIRST_WORD, THEN = re.compile("[a-z]+"), re.compile(r"\bthen\b")

EMPTY = "Say what you want to do."
TOO_LONG = f"That is too long: a command has at most {MAX_LENGTH} characters."
FOREIGN = "This game understands plain English letters only."
SEVERAL = "One command at a time, without full stops, commas or 'then'."
OUTSIDE = "That is a command to the interpreter; here it does nothing."

LOOK_COMMANDS = ("look", "inventory")
EXAMINE, RECIPE = "examine ", "examine cookbook"


def clean(command: str) -> tuple[str, str]:
    """Returns (command to send, '') or ('', reason for rejecting it).

    The command is lower case, one line, single-spaced and printable ASCII.
    """
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


def filter_commands(commands: list[str]) -> list[str]:
    """Returns the admissible commands without those that only look, except the cookbook."""
    return [
        command
        for command in commands
        if command not in LOOK_COMMANDS and (not command.startswith(EXAMINE) or command == RECIPE)
    ]


UNLISTED_COMMANDS = frozenset(["help", "goal", "score", "wait", "z"])
"""Commands that generated games understand but never list as admissible."""

REJECTION = re.compile(
    r"beg your pardon|not a verb|didn't understand|don't understand|can't see any such|only understood you as far"
    r"|have to be more specific|don't know the word|What do you want|Which do you mean|not something you can|You can't",
    re.IGNORECASE,
)
"""Replies by which Inform and Infocom games reject a command, for games without a .json file."""
