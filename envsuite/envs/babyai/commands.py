"""Commands of BabyAI: their words, the parser, the six actions as tools, and reasons why a command has no effect."""

from __future__ import annotations

import functools
import re

from envsuite.envs.babyai.model import LOCKED
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
    return None if len(command) > 64 else _parse(command)


@functools.lru_cache(maxsize=1024)
def _parse(command: str) -> int | None:
    words = " ".join(re.sub(r"[_\-.!,;:'\"`]", " ", command.lower()).split())
    return COMMAND_TO_ACTION.get(words)


Ahead = tuple[str, str, int, bool, bool]
"""A thing in front of the player: type, colour, state of a door (-1 for others), whether the player can
stand on it, and whether it can be picked up."""


@functools.cache
def reasons_without_effect(ahead: Ahead | None, held: tuple[str, str] | None) -> tuple[str, ...]:
    """Returns for each action why it would change nothing, in words for the player; '' if it has an effect.

    `held` is the type and colour of what is in hand.
    """
    forward = pick_up = drop = toggle = ""
    name = "" if ahead is None else "a wall" if ahead[0] == "wall" else f"a {ahead[1]} {ahead[0]}"
    if ahead is not None and not ahead[3]:
        forward = f"You cannot go forward: {name} is in the way."
    if ahead is None or not ahead[4]:
        pick_up = "There is nothing to pick up directly in front of you."
    elif held is not None:
        pick_up = f"Your hand is full: you carry a {held[1]} {held[0]}."
    if held is None:
        drop = "You carry nothing."
    elif ahead is not None:
        drop = f"You cannot set it down here: {name} is in the way."
    if ahead is None or ahead[0] not in ("door", "box"):
        toggle = "There is nothing to toggle directly in front of you."
    elif ahead[2] == LOCKED and held != ("key", ahead[1]):
        toggle = f"The door is locked: it takes a {ahead[1]} key in your hand."
    return "", "", forward, pick_up, drop, toggle
