"""Rewording: replaces words in a model's prompts, and translates its commands back.

A wording swaps pairs of words in all prompts and commands of a model. Swapping in both directions
makes it its own inverse, so that every command keeps its meaning and stays possible. The
environment, the expert and the random player see the original words. Source: GLAM's tests with
synonyms and invented words (Carta et al., ICML 2023, section 4.3).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from envsuite.errors import UsageError
from envsuite.tools import Tool
from envsuite.types import Task

_SYNONYMS = {
    "take": "grab", "put": "place", "open": "unshut", "close": "shut", "go": "walk", "move": "shift", "use": "employ",
    "turn": "rotate", "pick": "lift", "drop": "release", "toggle": "switch", "look": "gaze", "examine": "inspect",
    "heat": "warm", "cool": "chill", "clean": "scrub", "cook": "prepare", "cut": "slice", "chop": "dice",
    "insert": "stick", "forward": "ahead", "fetch": "retrieve", "see": "notice", "room": "chamber",
}  # fmt: skip
_INVENTED = {
    "take": "dax", "put": "wug", "open": "zup", "close": "blick", "go": "fep", "move": "toma", "use": "kiv",
    "turn": "lorp", "pick": "mib", "drop": "snarf", "toggle": "quell", "look": "plim", "examine": "vost", "heat": "greb",
    "cool": "nalp", "clean": "tarm", "cook": "yorn", "cut": "jund", "chop": "hisp", "insert": "clabe", "forward": "obly",
}  # fmt: skip


def _swap(pairs: dict[str, str]) -> Callable[[str], str]:
    """Returns a function that swaps each key with its value in a text and keeps capitals."""
    table = pairs | {value: key for key, value in pairs.items()}
    if len(table) != 2 * len(pairs):
        raise ValueError("a wording must contain each word only once")
    pattern = re.compile(r"\b(" + "|".join(sorted(table, key=len, reverse=True)) + r")\b", re.IGNORECASE)

    def reword(match: re.Match[str]) -> str:
        word = match.group()
        replacement = table[word.lower()]
        if word.isupper() and len(word) > 1:
            return replacement.upper()
        return replacement.capitalize() if word[0].isupper() else replacement

    return lru_cache(maxsize=4096)(lambda text: pattern.sub(reword, text))  # every prompt shows earlier texts again


WORDINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "synonyms": _swap(_SYNONYMS),
    "invented": _swap(_INVENTED),
}
"""Functions that reword a text, by name; applying one twice restores the text."""


CODE_FAMILIES = ("swegym", "datascicoding")
"""Families whose observations and commands hold files and programs, which have to stay as they are."""


def check_wording(wording: str, task: Task) -> None:
    """Raises UsageError for another wording of a task of `CODE_FAMILIES`."""
    if wording != "plain" and task.family in CODE_FAMILIES:
        raise UsageError(
            f"--prompt-wording {wording} would change words in the files and programs of {task.id}: leave it out."
        )


def reworded(tool: Tool, reword: Callable[[str], str]) -> Tool:
    """Returns a tool with other words: its name, its description, and the format of its command."""
    pieces = re.split(r"(\{\w+\})", tool.command)
    return replace(
        tool,
        name="_".join(map(reword, tool.name.split("_"))),
        description=reword(tool.description),
        command="".join(piece if piece.startswith("{") else reword(piece) for piece in pieces),
        arguments={name: reword(meaning) for name, meaning in tool.arguments.items()},
    )
