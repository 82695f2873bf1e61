"""Texts of version 1: short observations, the commands on offer, and a parser that forgives quotes and articles."""

from __future__ import annotations

import re
from dataclasses import replace

from envsuite.envs.virtualhome.rules.engine import (
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
from envsuite.envs.virtualhome.rules.fixed_engine import FixedEngine
from envsuite.envs.virtualhome.text import PARTICIPLES, PHRASES, REFUSED, TOOLS, CommandParser, listing
from envsuite.tools import Tool

LOOK = "look around"
SHORT_PHRASES = {verb: phrase.replace("the ", "") for verb, phrase in PHRASES.items()}
HOUSEHOLD_TOOLS = (
    *(replace(tool, command=tool.command.replace("the ", "")) for tool in TOOLS),
    Tool("look_around", "Describes the room, what you hold, and the other rooms.", LOOK),
)
REASONS = {
    **REFUSED,
    "LOOSE": "You cannot go to it: go to the furniture that it is on or in.",
    "UNKNOWN": "There is no such command or thing here: use one of the commands, and the whole name of a thing.",
}
_RESULTS = {
    GRAB: "You take the {x}.",
    PUTIN: "You put the {x} in the {y}.",
    PUTBACK: "You put the {x} on the {y}.",
    CLOSE: "The {x} is closed.",
    SWITCHON: "The {x} is on.",
    SWITCHOFF: "The {x} is off.",
    SIT: "You sit on the {x}.",
    STANDUP: "You stand.",
}
_QUOTES = " \t\n.!\"'`*“”‘’"
_FROM = re.compile(r"((?:take|grab|get|pick up|pick) .+?) (?:from|off|out of) .+", re.IGNORECASE)


class QuotedCommandParser(CommandParser):
    """Parser that also accepts a command in quotes, and "take X from Y"."""

    def parse(self, text: str) -> HomeAction | None:
        text = text[:400].strip(_QUOTES)
        if match := _FROM.fullmatch(text):
            text = match[1]
        return super().parse(text)


class Offers:
    """Lists the commands that would be accepted in a state, with their actions."""

    def __init__(self, engine: FixedEngine) -> None:
        self.home = engine.home
        self._walks: dict[tuple[int, int], dict[str, HomeAction]] = {}
        self._phrases: dict[HomeAction, str] = {}
        home = self.home
        self._pieces = {
            root: tuple((bit, bit & home.door, bit & home.switch) for bit in home.bits(mask & home.target))
            for root, mask in home.at_root.items()
        }
        self._looking = {LOOK: HomeAction("look")}

    def phrase(self, action: HomeAction) -> str:
        """Returns the command for an action."""
        phrase = self._phrases.get(action)
        if phrase is None:
            nouns = self.home.nouns
            phrase = SHORT_PHRASES[action.verb].format(x=nouns.get(action.x, ""), y=nouns.get(action.y, ""))
            self._phrases[action] = phrase
        return phrase

    def __call__(self, s: HomeState) -> dict[str, HomeAction]:
        home, near = self.home, s.near
        if s.sitting:
            offers = {"stand up": HomeAction(STANDUP), **self._looking}
        else:
            walks = self._walks.get((s.room, near))
            offers = dict(walks if walks is not None else self._walks_from(s.room, near))
        if not near:
            return offers
        held = [bit for bit in (s.right, s.left) if bit]
        free = len(held) < 2
        actions: list[HomeAction] = []
        opened, power = s.open, s.power
        if free:
            pieces, closed = home.at_root[near], home.door & ~opened
            for bit, inside, on in zip(home.movable_bits, s.inside, s.on, strict=True):
                if (inside | on) & pieces and not inside & closed and bit not in held:
                    actions.append(HomeAction(GRAB, bit))
        for x, door, switch in self._pieces[near]:
            if door:
                if opened & x:
                    actions.append(HomeAction(CLOSE, x))
                elif free and not power & x:
                    actions.append(HomeAction(OPEN, x))
            if switch and free:
                if power & x:
                    actions.append(HomeAction(SWITCHOFF, x))
                elif not opened & x:
                    actions.append(HomeAction(SWITCHON, x))
            if held:
                if x & home.container and (not door or opened & x):
                    actions += [HomeAction(PUTIN, item, x) for item in held]
                if x & home.surface:
                    actions += [HomeAction(PUTBACK, item, x) for item in held]
            if x & home.seat and not s.sitting:
                actions.append(HomeAction(SIT, x))
        phrases = self._phrases
        for action in actions:
            offers[phrases.get(action) or self.phrase(action)] = action
        return offers

    def _walks_from(self, room: int, near: int) -> dict[str, HomeAction]:
        home = self.home
        pieces = home.fixed_in[room] & home.target & ~home.at_root.get(near, 0)
        bits = [*(bit for bit in home.room_bits if bit != room), *home.bits(pieces)]
        actions = [HomeAction(WALK, bit) for bit in bits]
        walks = {self.phrase(action): action for action in actions} | self._looking
        self._walks[room, near] = walks
        return walks


class ShortNarrator:
    """Describes states in few words.

    Furniture is named with what stands on it; parentheses hold the loose things that can be seen on or in a piece.
    """

    def __init__(self, engine: FixedEngine) -> None:
        self.engine = engine
        home = engine.home
        self._roots = {
            room: [bit for bit in home.bits(home.fixed_in[room]) if home.root[bit] == bit] for room in home.room_bits
        }
        self._pieces = {root: [root, *home.bits(mask & ~root)] for root, mask in home.at_root.items()}
        self._plain: dict[tuple[int, int, int, bool], str] = {}  # texts of furniture without loose things
        self._empty_rooms: dict[tuple[int, int, int], str] = {}  # texts of rooms without loose things in sight
        self._participles = [(process, PARTICIPLES[process]) for process in home.processes]
        self._rooms = {
            room: "Other rooms: " + ", ".join(home.nouns[other] for other in home.room_bits if other != room) + "."
            for room in home.room_bits
        }

    def room(self, s: HomeState) -> str:
        """Returns the furniture of the player's room, and the loose things that can be seen from here."""
        everything = not self.engine.nearsighted
        loose = self._loose(s) if everything or s.near else {}
        mask = self.engine.home.fixed_in[s.room]
        key = s.room, s.open & mask, s.power & mask
        if not loose and (text := self._empty_rooms.get(key)):
            return text
        roots = [self._root(s, root, loose, everything or root == s.near) for root in self._roots[s.room]]
        text = f"Here: {'; '.join(roots)}."
        if not loose:
            self._empty_rooms[key] = text
        return text

    def spot(self, s: HomeState) -> str:
        """Returns the furniture at which the player stands, with the loose things there."""
        return self._root(s, s.near, self._loose(s), True, stated=True)

    def contents(self, s: HomeState, piece: int) -> str:
        """Returns the loose things on or in one piece of furniture, e.g. '(milk)' or '(empty)'."""
        things = self._loose(s).get(piece)
        return f"({', '.join(things)})" if things else "(empty)"

    def hands(self, s: HomeState) -> str:
        """Returns the sentence about the player's hands."""
        held = [self._thing(s, bit) for bit in (s.right, s.left) if bit]
        return f"You hold {listing(held)}." if held else "Your hands are empty."

    def everything(self, s: HomeState) -> str:
        """Returns the whole description: place, hands, room and other rooms."""
        nouns = self.engine.home.nouns
        where = f"You are in the {nouns[s.room]}"
        if s.sitting:
            where += f", on the {nouns[s.seat]}"
        elif s.near:
            where += f", at the {nouns[s.near]}"
        return f"{where}. {self.hands(s)} {self.room(s)} {self._rooms[s.room]}"

    def news(self, s: HomeState, action: HomeAction) -> str:
        """Returns what an accepted command has changed and what the player sees because of it."""
        verb, x, y = action
        home, nouns = self.engine.home, self.engine.home.nouns
        if verb == WALK:
            if x & home.room_mask:
                return f"You are in the {nouns[x]}. {self.room(s)}"
            return f"You are at the {self.spot(s)}."
        if verb == OPEN:
            return f"The {nouns[x]} is open {self.contents(s, x)}."
        if verb == "look":
            return self.everything(s)
        sentence = _RESULTS[verb].format(x=nouns.get(x, ""), y=nouns.get(y, ""))
        if verb in (GRAB, PUTIN, PUTBACK):
            return f"{sentence} {self.hands(s)}"
        return sentence

    def _loose(self, s: HomeState) -> dict[int, list[str]]:
        """Returns piece of furniture -> the loose things that lie open on or in it, in this room."""
        home, room = self.engine.home, s.room
        hidden = home.door & ~s.open
        loose: dict[int, list[str]] = {}
        for bit, inside, on in zip(home.movable_bits, s.inside, s.on, strict=True):
            if inside & room and not inside & hidden:
                place = on or inside & ~room
                if place:
                    loose.setdefault(place, []).append(self._thing(s, bit))
        return loose

    def _thing(self, s: HomeState, bit: int) -> str:
        noun = self.engine.home.nouns[bit]
        if not s.marks:
            return noun
        return " ".join([word for process, word in self._participles if self.engine.marked(s, bit, process)] + [noun])

    def _root(self, s: HomeState, root: int, loose: dict[int, list[str]], seen: bool, stated: bool = False) -> str:
        mask = self.engine.home.at_root[root]
        plain = not seen or not any(bit & mask for bit in loose)
        key = root, s.open & mask, s.power & mask, stated
        if plain and (text := self._plain.get(key)):
            return text
        pieces = [self._piece(s, bit, loose, seen, stated) for bit in self._pieces[root]]
        text = f"{pieces[0]} with {listing(pieces[1:])}" if len(pieces) > 1 else pieces[0]
        if plain:
            self._plain[key] = text
        return text

    def _piece(self, s: HomeState, bit: int, loose: dict[int, list[str]], seen: bool, stated: bool) -> str:
        home = self.engine.home
        words = home.nouns[bit]
        if s.power & bit:
            words = f"{'running' if bit in home.process else 'switched-on'} {words}"
        shut = bit & home.door & ~s.open
        if bit & home.door:
            words = f"{'closed' if shut else 'open'} {words}"
        if seen and not shut:
            if things := loose.get(bit):
                return f"{words} ({', '.join(things)})"
            if stated and bit & (home.surface | home.container):
                return f"{words} (empty)"
        return words
