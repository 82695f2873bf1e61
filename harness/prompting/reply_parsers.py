"""Parsers of published set-ups: the command that each of them plays for a reply.

A parser takes the reply, the commands that it accepts (none: any) and the default command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from harness.prompting.grammars import Parsed
from harness.prompting.shell_layout import parse as parse_shell

Parser = Callable[[str, Sequence[str], str], Parsed]


def _parse_verl_agent(text: str, commands: Sequence[str], default: str) -> Parsed:
    """Takes the first <action>, in lower case; without one, the reply's last 30 characters.

    A reply without <think>, or with Chinese characters, counts as not understood but is played.
    """
    lower = text.lower()
    start, end = lower.find("<action>"), lower.find("</action>")
    if start < 0 or end < 0:
        return Parsed((lower[-30:],), substitute=True)
    command = lower[start + len("<action>") : end].strip()
    opened, closed = text.find("<think>"), text.find("</think>")
    thought = text[opened + len("<think>") : closed].strip() if 0 <= opened < closed else ""
    formatted = opened >= 0 and closed >= 0 and not re.search("[\u4e00-\u9fff]", text)
    return Parsed((command,), thought, substitute=not (formatted and command))


def _parse_balrog(text: str, commands: Sequence[str], default: str) -> Parsed:
    """Takes the whole reply, reduced to letters, white space and colons, if it is one of the commands."""
    command = re.sub(r"[^a-zA-Z\s:]", "", text.strip())
    understood = command in commands if commands else bool(command)
    return Parsed((command if understood or not commands else default,), substitute=not understood)


_SPELLINGS = {
    "turnleft": "turn left",
    "turnright": "turn right",
    "go left": "turn left",
    "go right": "turn right",
    "goforward": "go forward",
    "pickup": "pick up",
}


def _parse_verlog(text: str, commands: Sequence[str], default: str) -> Parsed:
    """Takes what follows the last "ACTION:" (or "action:", or "Action"), with common spellings corrected."""
    command, thought = text, ""
    for marker in ("ACTION:", "action:", "Action"):
        if marker in text:
            thought, _, command = text.rpartition(marker)
            break
    command = command.strip().lower().replace("_", " ")
    command = _SPELLINGS.get(command, command)
    understood = command in commands
    return Parsed((command if understood else default,), thought.strip(), substitute=not understood)


def _parse_whole(text: str, commands: Sequence[str], default: str) -> Parsed:
    """Takes the whole reply."""
    command = text.strip()
    return Parsed((command,), substitute=not command)


def _parse_guide(text: str, commands: Sequence[str], default: str) -> Parsed:
    """Takes the whole reply without backslashes."""
    return _parse_whole(text.replace("\\", ""), commands, default)


def _parse_react(text: str, commands: Sequence[str], default: str) -> Parsed:
    """Takes the first line. A line that begins with "think:" is a command too, and a thought."""
    command = text.partition("\n")[0].strip()
    thought = command.removeprefix("think:").strip() if command.startswith("think:") else ""
    return Parsed((command,), thought, substitute=not command)


PARSERS: dict[str, Parser] = {
    "verl-agent": _parse_verl_agent,
    "balrog": _parse_balrog,
    "verlog": _parse_verlog,
    "whole": _parse_whole,
    "guide": _parse_guide,
    "react": _parse_react,
    "shell": parse_shell,
}
"""Parsers by the name that the files of protocols use."""
