"""Turns the engine's text into compact observations."""

from __future__ import annotations

import re
from collections.abc import Callable

from envsuite.envs.textworld.engine.interpreter import Frame, Opening

BAR = re.compile(r"-= (.*?) =-\s*-?\d+/\d+\s*\Z")  # status bar at the end: room, score/moves
BANNER = re.compile(r"[ _$|/\\><]+")  # a line of the ASCII-art title
ROOM = re.compile(r"-= .+? =-\n(.*?)(?=\s*>|\Z)", re.DOTALL)  # the description below a room's name
LAST_LINE = re.compile(r"^[^-=>\n].*(?=\n\s*>)", re.MULTILINE)  # the line before the engine's prompt
FAREWELL = "Would you like to RESTART"  # no command can answer this question


def opening_text(opening: Opening) -> str:
    """Returns the first compact observation, without banner, and without an objective that the
    prompt has.
    """
    text, bar = _split_bar(opening.frame.feedback)
    lines = [line for line in text.split("\n") if not BANNER.fullmatch(line)]
    first = next((number for number, line in enumerate(lines) if _is_heading(line.strip())), 0)
    text = "\n".join(lines[first:] if opening.objective else lines)
    return compact(opening.frame._replace(feedback=text, room=opening.frame.room or bar))


def compact(frame: Frame) -> str:
    """Returns a sentence that names the room, the engine's text without decoration, and the
    inventory.
    """
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


def raw(frame: Frame) -> str:
    """Returns the engine's text."""
    return frame.feedback


def guide(frame: Frame) -> str:
    """Returns the observation of the Practitioner's Guide: a sentence that names the room, the room's
    description, the line before the engine's prompt, and the inventory.
    """
    lines: list[str] = []
    for description in ROOM.findall(frame.feedback):
        lines += filter(None, map(str.strip, description.split("\n")))
    lines += filter(None, map(str.strip, LAST_LINE.findall(frame.feedback)))
    text = "\n".join(dict.fromkeys(lines))
    room = frame.room or _split_bar(frame.feedback)[1]
    return f"You are now in the {room}.\n{text}\n{frame.inventory or ''}"


STYLES: dict[str, Callable[[Frame], str]] = {"compact": compact, "raw": raw, "guide": guide}
"""Styles of observations by the value of the knob."""


def _split_bar(text: str) -> tuple[str, str]:
    """Splits off the status bar; returns the text above it and the room it names ('' without a
    bar).
    """
    start = text.rfind("-= ")
    bar = BAR.match(text, start) if start >= 0 else None
    if bar is None:
        return text.rstrip().removesuffix(">"), ""
    return text[:start].rstrip().removesuffix(">"), bar.group(1)


def _is_heading(line: str) -> bool:
    return line.startswith("-= ") and line.endswith(" =-")
