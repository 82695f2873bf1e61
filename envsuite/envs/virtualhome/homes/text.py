"""Texts of drawn homes: observations, the commands on offer, and a parser that forgives quotes and articles."""

from __future__ import annotations

import re
from dataclasses import replace

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
    HomeState,
)
from envsuite.envs.virtualhome.home import Home
from envsuite.envs.virtualhome.homes.rules import HomeRules
from envsuite.envs.virtualhome.text import PHRASES, TOOLS, CommandParser, listing
from envsuite.tools import Tool

LOOK = "look around"
LOOK_ACTION = HomeAction("look")
HOME_TOOLS = (
    *(replace(tool, command=tool.command.replace("the ", "")) for tool in TOOLS),
    Tool("look_around", "Describes the room, what you hold, and the other rooms.", LOOK),
)
REFUSED = {
    "NOT_VISIBLE": "You see no such thing from here.",
    "SITTING": "You are sitting: stand up first.",
    "NOT_SITTING": "You are not sitting.",
    "NOT_CLOSE": "That is out of reach: go there first.",
    "NO_FREE_HAND": "Both your hands are full.",
    "ALREADY_GRABBED": "You have that in your hand already.",
    "IN_CLOSED": "It is shut away: open what it is in first.",
    "DEST_NOT_OPEN": "That is closed: open it first.",
    "NOT_HOLDING": "You have no such thing in your hands.",
    "NOT_CLOSED_STATE": "That is open already.",
    "NOT_OPEN_STATE": "That is closed already.",
    "NOT_OFF_STATE": "That is on already.",
    "NOT_ON_STATE": "That is off already.",
    "RUNNING": "It is running: switch it off first.",
    "DOOR_OPEN": "It does not start with its door open.",
    "CANNOT": "That cannot be done to it.",
    "NO_PLACE": "Nothing can be put there.",
    "LOOSE": "You cannot go to it: go to the furniture that it is on or in.",
    "UNKNOWN": "There is no such command or thing here: use one of the commands, and the whole name of a thing.",
}
"""Reply to each reason of a refusal."""
DONE = {
    GRAB: "You take the {x}.",
    PUTIN: "You put the {x} in the {y}.",
    PUTBACK: "You put the {x} on the {y}.",
    CLOSE: "The {x} is closed.",
    SWITCHON: "The {x} is on.",
    SWITCHOFF: "The {x} is off.",
    SIT: "You sit on the {x}.",
    STANDUP: "You stand.",
}
"""Report of each verb that shows nothing new."""
PARTICIPLES = {
    "heat": "heated",
    "bake": "baked",
    "toast": "toasted",
    "boil": "boiled",
    "cool": "cooled",
    "freeze": "frozen",
    "wash": "washed",
    "rinse": "rinsed",
    "launder": "laundered",
    "dry": "dried",
    "brew": "filled",
}
_QUOTES = " \t\n.!\"'`*“”‘’"
_FROM = re.compile(r"((?:take|grab|get|pick up|pick) .+?) (?:from|off|out of) .+", re.IGNORECASE)


def phrase(home: Home, action: HomeAction) -> str:
    """Returns the command for an action."""
    if action == LOOK_ACTION:
        return LOOK
    words = PHRASES[action.verb].replace("the ", "")
    return words.format(x=home.nouns.get(action.x, ""), y=home.nouns.get(action.y, ""))


def offers(rules: HomeRules, s: HomeState) -> dict[str, HomeAction]:
    """Returns the commands that would be accepted: ways to leave, `look around`, then actions at the furniture here."""
    leave = [HomeAction(STANDUP)] if s.sitting else rules.walks(s)
    actions = [*leave, LOOK_ACTION, *rules.actions_here(s)]
    return {phrase(rules.home, action): action for action in actions}


class HomeCommandParser(CommandParser):
    """Parser that also accepts a command in quotes, "take X from Y", and "look"."""

    def parse(self, text: str) -> HomeAction | None:
        text = text[:400].strip(_QUOTES)
        if text.lower() in ("look", LOOK):
            return LOOK_ACTION
        if match := _FROM.fullmatch(text):
            text = match[1]
        return super().parse(text)


class Narrator:
    """Describes states in few words.

    Furniture is named with what stands on it; parentheses hold the loose things that can be seen on or in a piece.
    """

    def __init__(self, rules: HomeRules) -> None:
        self.rules, self.home = rules, rules.home

    def everything(self, s: HomeState) -> str:
        """Returns the whole description: place, hands, room and other rooms."""
        nouns = self.home.nouns
        place = f"You are in the {nouns[s.room]}"
        if s.sitting:
            place += f", on the {nouns[s.seat]}"
        elif s.near:
            place += f", at the {nouns[s.near]}"
        other_rooms = ", ".join(nouns[room] for room in self.home.room_bits if room != s.room)
        return f"{place}. {self.hands(s)} {self.room(s)} Other rooms: {other_rooms}."

    def room(self, s: HomeState) -> str:
        """Returns the furniture of the player's room, and the loose things that can be seen from here."""
        roots = [bit for bit in self.rules.furniture[s.room] if self.home.root[bit] == bit]
        sees_all = not self.rules.nearsighted
        return f"Here: {'; '.join(self._group(s, root, sees_all or root == s.near) for root in roots)}."

    def at_hand(self, s: HomeState) -> str:
        """Returns the furniture at which the player stands, with the loose things there."""
        return self._group(s, s.near, True, says_empty=True)

    def contents(self, s: HomeState, piece: int) -> str:
        """Returns the loose things on or in one piece of furniture, e.g. '(milk)' or '(empty)'."""
        things = [self._thing(s, bit) for bit in self.rules.placed(s).get(piece, ())]
        return f"({', '.join(things) or 'empty'})"

    def hands(self, s: HomeState) -> str:
        """Returns the sentence about the player's hands."""
        held = [self._thing(s, bit) for bit in (s.right, s.left) if bit]
        return f"You hold {listing(held)}." if held else "Your hands are empty."

    def news(self, s: HomeState, action: HomeAction) -> str:
        """Returns what an accepted command has changed and what the player sees because of it."""
        verb, x, y = action
        nouns = self.home.nouns
        if verb == WALK and x & self.home.room_mask:
            return f"You are in the {nouns[x]}. {self.room(s)}"
        if verb == WALK:
            return f"You are at the {self.at_hand(s)}."
        if verb == OPEN:
            return f"The {nouns[x]} is open {self.contents(s, x)}."
        if action == LOOK_ACTION:
            return self.everything(s)
        report = DONE[verb].format(x=nouns.get(x, ""), y=nouns.get(y, ""))
        return f"{report} {self.hands(s)}" if verb in (GRAB, PUTIN, PUTBACK) else report

    def _thing(self, s: HomeState, bit: int) -> str:
        """Returns the name of a loose thing, with what appliances have done to it."""
        processes = [process for process in self.home.processes if s.marks and self.rules.marked(s, bit, process)]
        return " ".join([*(PARTICIPLES[process] for process in processes), self.home.nouns[bit]])

    def _group(self, s: HomeState, root: int, shows_things: bool, says_empty: bool = False) -> str:
        """Returns a piece of furniture at floor level with what stands on it."""
        base, *on_top = [self._piece(s, bit, shows_things, says_empty) for bit in self.rules.pieces[root]]
        return f"{base} with {listing(on_top)}" if on_top else base

    def _piece(self, s: HomeState, bit: int, shows_things: bool, says_empty: bool) -> str:
        home = self.home
        words = home.nouns[bit]
        if s.power & bit:
            words = f"{'running' if bit in home.process else 'switched-on'} {words}"
        is_shut = bool(bit & home.door & ~s.open)
        if bit & home.door:
            words = f"{'closed' if is_shut else 'open'} {words}"
        if not shows_things or is_shut:
            return words
        has_things = bit in self.rules.placed(s)
        holds_things = bit & (home.surface | home.container)
        return f"{words} {self.contents(s, bit)}" if has_things or (says_empty and holds_things) else words
