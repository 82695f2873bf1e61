"""Commands of BabyAI: their words, the parser, and the six actions as tools."""

from __future__ import annotations

import re

from envsuite.tools import Tool

COMMANDS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
"""Commands in minigrid's order: the position is the action number."""
ALIASES = {
    "left": 0,
    "rotate left": 0,
    "right": 1,
    "rotate right": 1,
    "forward": 2,
    "move forward": 2,
    "move ahead": 2,
    "walk forward": 2,
    "go ahead": 2,
    "pickup": 3,
    "take": 3,
    "put down": 4,
    "release": 4,
    "switch": 5,
    "open": 5,
}
COMMAND_TO_ACTION = {**{command: action for action, command in enumerate(COMMANDS)}, **ALIASES}
_EFFECTS = (
    "Turns left on the spot by a quarter.",
    "Turns right on the spot by a quarter.",
    "Goes one step forward.",
    "Takes the key, ball or box directly in front of you.",
    "Sets what you carry down in the empty cell directly in front of you.",
    "Opens or closes the door, or opens the box, directly in front of you.",
)
TOOLS = tuple(
    Tool(command.replace(" ", "_"), effect, command) for command, effect in zip(COMMANDS, _EFFECTS, strict=True)
)


def parse_command(command: str) -> int | None:
    """Returns the action of a command, ignoring case, spacing and punctuation; None if there is
    none.
    """
    if len(command) > 64:
        return None
    words = " ".join(re.sub(r"[_\-.!,;:'\"`]", " ", command.lower()).split())
    return COMMAND_TO_ACTION.get(words)
