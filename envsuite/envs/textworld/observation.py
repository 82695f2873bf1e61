"""From the engine's text to an observation."""

from __future__ import annotations

import re

from envsuite.envs.textworld.interpreter import Frame, Opening

BAR = re.compile(r"-= (.*?) =-\s*-?\d+/\d+\s*\Z")  # the bottom line: room, score/moves; a prompt and blanks before it
BANNER = re.compile(r"[ _$|/\\><]+")  # a line of the title, drawn
FAREWELL = "Would you like to RESTART"  # and to this question nobody may answer


def opening_text(opening: Opening) -> str:
    """The first compact observation: without banner, and without the objective where that one is in the prompt."""
    text, bar = _split_bar(opening.frame.feedback)
    lines = [line for line in text.split("\n") if not BANNER.fullmatch(line)]
    first = next((number for number, line in enumerate(lines) if _is_heading(line.strip())), 0)
    text = "\n".join(lines[first:] if opening.objective else lines)
    return compact(opening.frame._replace(feedback=text, room=opening.frame.room or bar))


def compact(frame: Frame) -> str:
    """A sentence naming the room, the engine's words without its frills, and what the player carries."""
    text, bar = _split_bar(frame.feedback)
    room = frame.room or bar
    lines = [f"You are in the {room.lower()}."] if room else []
    for line in map(str.strip, text.split("\n")):
        if line.startswith(FAREWELL):
            break
        if line and not _is_heading(line):
            lines.append(line)
    if frame.inventory:
        carried = frame.inventory.strip()
        if not lines or lines[-1] != carried:
            lines.append(carried)
    return "\n".join(lines)


def _split_bar(text: str) -> tuple[str, str]:
    """The text above the bottom line, and the room that line names ('' without one)."""
    at = text.rfind("-= ")
    bar = BAR.match(text, at) if at >= 0 else None
    if bar is None:
        return text.rstrip().removesuffix(">"), ""
    return text[:at].rstrip().removesuffix(">"), bar.group(1)


def _is_heading(line: str) -> bool:
    return line.startswith("-= ") and line.endswith(" =-")
