"""Commands of all homes: their wording, which is our own, and their parser."""

from __future__ import annotations

import re
from collections.abc import Iterable

from envsuite.envs.virtualhome.engine import (
    CLOSE,
    GRAB,
    OPEN,
    PUTBACK,
    PUTIN,
    SIT,
    STANDUP,
    SWITCHOFF,
    SWITCHON,
    WALK,
    HomeAction,
)
from envsuite.envs.virtualhome.home import Home
from envsuite.tools import Tool

PHRASES = {
    WALK: "go to the {x}",
    GRAB: "take the {x}",
    PUTIN: "put the {x} in the {y}",
    PUTBACK: "put the {x} on the {y}",
    OPEN: "open the {x}",
    CLOSE: "close the {x}",
    SWITCHON: "switch on the {x}",
    SWITCHOFF: "switch off the {x}",
    SIT: "sit on the {x}",
    STANDUP: "stand up",
}
_THING = {"thing": "the name of a thing"}
TOOLS = (
    Tool("go_to", "Goes to a room or a thing.", "go to the {place}", {"place": "the name of a room or a thing"}),
    Tool("take", "Takes a thing into a free hand.", "take the {thing}", _THING),
    Tool("put_in", "Puts a thing into a container.", "put the {thing} in the {container}",
         _THING | {"container": "the name of an open container"}),
    Tool("put_on", "Puts a thing on a surface.", "put the {thing} on the {surface}",
         _THING | {"surface": "the name of a surface"}),
    Tool("open", "Opens a thing.", "open the {thing}", _THING),
    Tool("close", "Closes a thing.", "close the {thing}", _THING),
    Tool("switch_on", "Switches a thing on.", "switch on the {thing}", _THING),
    Tool("switch_off", "Switches a thing off.", "switch off the {thing}", _THING),
    Tool("sit_on", "Sits down on a seat.", "sit on the {seat}", {"seat": "the name of a seat"}),
    Tool("stand_up", "Stands up.", "stand up"),
)  # fmt: skip


def listing(words: Iterable[str], last: str = "and") -> str:
    """Joins words as in 'a', 'a and b', 'a, b and c'."""
    items = list(words)
    return f" {last} ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def command(home: Home, action: HomeAction) -> str:
    """Returns the command for an action."""
    return PHRASES[action.verb].format(x=home.nouns.get(action.x, ""), y=home.nouns.get(action.y, ""))


# ---- from words to actions ------------------------------------------------------------------------------------------

_VERBS = (
    (WALK, r"(?:go|walk|move)(?: over)?(?: to| into)?"),
    (GRAB, r"(?:take|grab|get|pick up|pick)"),
    (OPEN, r"open"),
    (CLOSE, r"(?:close|shut)"),
    (SWITCHON, r"(?:switch on|turn on|start)"),
    (SWITCHOFF, r"(?:switch off|turn off|stop)"),
    (SIT, r"sit(?: down)?(?: on| in)?"),
)
_SIMPLE = [(verb, re.compile(f"{pattern} (.+)")) for verb, pattern in _VERBS]
_PUT = re.compile(r"(?:put|place|set|lay) (.+?)(?: back)? (into|inside|in|onto|on|upon) (.+)")
_ARTICLES = re.compile(r"\b(?:the|a|an|my|your)\b")
_MAX_LENGTH = 200  # longer inputs are rejected without regular expressions


class CommandParser:
    """Parser of commands; ignores case, articles and underscores, and accepts a few synonyms."""

    def __init__(self, home: Home) -> None:
        self.bits = {noun.lower(): bit for bit, noun in home.nouns.items()}
        referable = home.target | home.room_mask
        self.bits = {noun: bit for noun, bit in self.bits.items() if bit & referable}

    def parse(self, text: str) -> HomeAction | None:
        """Returns the action of a command, or None if it cannot be parsed."""
        if len(text) > _MAX_LENGTH:
            return None
        words = " ".join(_ARTICLES.sub(" ", text.lower().replace("_", " ").strip(" .!")).split())
        if words in ("stand up", "stand", "get up"):
            return HomeAction(STANDUP)
        if match := _PUT.fullmatch(words):
            item, where, place = match.groups()
            if item in self.bits and place in self.bits:
                return HomeAction(
                    PUTBACK if where in ("on", "onto", "upon") else PUTIN, self.bits[item], self.bits[place]
                )
        for verb, pattern in _SIMPLE:
            if (match := pattern.fullmatch(words)) and match[1] in self.bits:
                return HomeAction(verb, self.bits[match[1]])
        return None
