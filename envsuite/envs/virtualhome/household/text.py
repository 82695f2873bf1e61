"""Texts of version 1: short observations, the commands on offer, and a parser that forgives quotes and articles."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import replace
from functools import lru_cache
from sys import intern

from envsuite.envs.virtualhome.household.rules import HouseholdEngine
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
from envsuite.envs.virtualhome.rules.home import interned
from envsuite.envs.virtualhome.text import PARTICIPLES, PHRASES, REFUSED, TOOLS, CommandParser, listing
from envsuite.tools import Tool

MAX_SHARED = 500  # stored texts or lists of commands for each set of furniture
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
_Lists = dict[int, tuple[int, ...]]
_Narrated = tuple[_Lists, _Lists, dict[int, str]]
_QUOTES = " \t\n.!\"'`*“”‘’"
_FROM = re.compile(r"((?:take|grab|get|pick up|pick) .+?) (?:from|off|out of) .+", re.IGNORECASE)


class QuotedCommandParser(CommandParser):
    """Parser that also accepts a command in quotes, and "take X from Y"."""

    def parse(self, text: str) -> HomeAction | None:
        text = text[:400].strip(_QUOTES)
        if match := _FROM.fullmatch(text):
            text = match[1]
        return super().parse(text)


@lru_cache(maxsize=8192)
def _phrase(verb: str, x: str, y: str) -> str:
    """Returns a command. Homes share the text, so that many games at once need less memory."""
    return SHORT_PHRASES[verb].format(x=x, y=y)


class Offers:
    """Lists the commands that would be accepted in a state.

    Lists without loose things are shared by all homes with the same furniture; the others are stored for each game.
    """

    def __init__(self, engine: HouseholdEngine) -> None:
        self.engine, self.home = engine, engine.home
        memo = self.home.memo
        self._of_furniture: dict[tuple[str, int, int], str] = memo.setdefault("phrases", {})
        self._actions_of_furniture: dict[str, HomeAction] = memo.setdefault("actions", {LOOK: HomeAction("look")})
        self._empty_handed: dict[tuple[int, ...], tuple[str, ...]] = memo.setdefault("offers", {})
        self._walks: dict[tuple[int, int], tuple[str, ...]] = memo.setdefault("walks", {})
        self._of_objects: dict[tuple[str, int, int], str] = {}
        self._actions_of_objects: dict[str, HomeAction] = {}
        self._here: dict[Hashable, tuple[str, ...]] = {}

    def phrase(self, action: tuple[str, int, int]) -> str:
        """Returns the command for an action, which may be a plain tuple."""
        phrase = self._of_furniture.get(action) or self._of_objects.get(action)
        if phrase is None:
            whole, nouns = interned(HomeAction._make(action)), self.home.nouns
            phrase = _phrase(whole.verb, nouns.get(whole.x, ""), nouns.get(whole.y, ""))
            if whole.x & self.home.movable:
                self._of_objects[whole], self._actions_of_objects[phrase] = phrase, whole
            else:
                self._of_furniture[whole], self._actions_of_furniture[phrase] = phrase, whole
        return phrase

    def action(self, phrase: str) -> HomeAction | None:
        """Returns the action of a command that `phrase` has returned for this home or one with its furniture."""
        return self._actions_of_furniture.get(phrase) or self._actions_of_objects.get(phrase)

    def __call__(self, s: HomeState) -> tuple[str, ...]:
        """Returns the commands: walks, `look around`, then what can be done at the furniture where the player is."""
        home, near = self.home, s.near
        pieces = home.at_root[near] if near else 0
        things = self.engine.things_on(s, near) if near else ()
        key = s.room, near, s.open & pieces, s.power & pieces, s.sitting
        if not (things or s.right or s.left):
            offers = self._empty_handed.get(key)
            if offers is None:
                if len(self._empty_handed) >= MAX_SHARED:
                    self._empty_handed.clear()
                offers = self._empty_handed[key] = self._list(s, things)
            return offers
        if not near:
            key = s.room, 0, 0, 0, s.sitting
            return self._empty_handed.get(key) or self._empty_handed.setdefault(key, self._list(s, ()))
        whole = key, things, s.right, s.left
        offers = self._here.get(whole)
        if offers is None:
            offers = self._here[whole] = self._list(s, things)
        return offers

    def _list(self, s: HomeState, things: tuple[int, ...]) -> tuple[str, ...]:
        home, near, phrase = self.home, s.near, self.phrase
        if s.sitting:
            walks: tuple[str, ...] = (phrase((STANDUP, 0, 0)), LOOK)
        else:
            walks = self._walks.get((s.room, near)) or self._walks_from(s.room, near)
        if not near:
            return walks
        held = [bit for bit in (s.right, s.left) if bit]
        free = len(held) < 2
        opened, power = s.open, s.power
        actions = [(GRAB, bit, 0) for bit in things] if free else []  # tuples cost a tenth of a `HomeAction`
        for x in home.bits(home.at_root[near] & home.target):
            door = x & home.door
            if door:
                if opened & x:
                    actions.append((CLOSE, x, 0))
                elif free and not power & x:
                    actions.append((OPEN, x, 0))
            if x & home.switch and free:
                if power & x:
                    actions.append((SWITCHOFF, x, 0))
                elif not opened & x:
                    actions.append((SWITCHON, x, 0))
            if held:
                if x & home.container and (not door or opened & x):
                    actions += [(PUTIN, item, x) for item in held]
                if x & home.surface:
                    actions += [(PUTBACK, item, x) for item in held]
            if x & home.seat and not s.sitting:
                actions.append((SIT, x, 0))
        return (*walks, *map(phrase, actions))

    def _walks_from(self, room: int, near: int) -> tuple[str, ...]:
        home = self.home
        if not near:
            bits = [*(bit for bit in home.room_bits if bit != room), *home.bits(home.fixed_in[room] & home.target)]
            walks = (*[self.phrase((WALK, bit, 0)) for bit in bits], LOOK)
        else:
            walks = self._walks.get((room, 0)) or self._walks_from(room, 0)
            left_out = [self.phrase((WALK, bit, 0)) for bit in home.bits(home.at_root[near] & home.target)]
            walks = tuple([walk for walk in walks if walk not in left_out])
        self._walks[room, near] = walks
        return walks


class ShortNarrator:
    """Describes states in few words.

    Furniture is named with what stands on it; parentheses hold the loose things that can be seen on or in a piece.
    """

    def __init__(self, engine: HouseholdEngine) -> None:
        self.engine = engine
        home = engine.home
        narrated: _Narrated = home.memo.get("narrated") or self._furniture()
        self._roots, self._all_pieces, self._rooms = narrated
        self._pieces = engine.pieces
        # Texts without loose things in sight, and the texts of this game until something is taken or put.
        self._plain: dict[tuple[int, int, int, bool], str] = home.memo.setdefault("plain", {})
        self._empty_rooms: dict[tuple[int, int, int], str] = home.memo.setdefault("rooms", {})
        self._placed: dict[int, tuple[int, ...]] = {}
        self._texts: dict[tuple[int, ...], str] = {}
        self._participles = [(process, PARTICIPLES[process]) for process in home.processes]

    def _furniture(self) -> _Narrated:
        """Returns the furniture at floor level by room, all furniture of a room, and the other rooms."""
        home = self.engine.home
        roots = {
            room: tuple([bit for bit in home.bits(home.fixed_in[room]) if home.root[bit] == bit])
            for room in home.room_bits
        }
        rooms = {
            room: "Other rooms: " + ", ".join(home.nouns[other] for other in home.room_bits if other != room) + "."
            for room in home.room_bits
        }
        every = {room: tuple(home.bits(mask)) for room, mask in home.fixed_in.items()}
        home.memo["narrated"] = roots, every, rooms
        return roots, every, rooms

    def room(self, s: HomeState) -> str:
        """Returns the furniture of the player's room, and the loose things that can be seen from here."""
        engine, home = self.engine, self.engine.home
        mask, everything = home.fixed_in[s.room], not engine.nearsighted
        seen = s.room if everything else s.near  # where loose things are seen
        placed = engine.placed(s)
        if not seen or placed.keys().isdisjoint(self._seen_pieces(s.room, seen)):
            key = s.room, s.open & mask, s.power & mask
            text = self._empty_rooms.get(key)
            if text is None:
                if len(self._empty_rooms) >= MAX_SHARED:
                    self._empty_rooms.clear()
                text = self._empty_rooms[key] = self._describe(s, {}, True)
            return text
        return self._remembered((s.room, seen, s.open & mask, s.power & mask, s.marks), s, placed)

    def _seen_pieces(self, room: int, seen: int) -> Iterable[int]:
        return self._all_pieces[room] if seen == room else self._pieces[seen]

    def _remembered(self, key: tuple[int, ...], s: HomeState, placed: dict[int, tuple[int, ...]]) -> str:
        """Returns a room's or, for a key of other length, a spot's text, stored until something is taken or put."""
        if placed is not self._placed:
            self._placed, self._texts = placed, {}
        text = self._texts.get(key)
        if text is None:
            if len(key) == 5:
                text = self._describe(s, self._loose(s, key[1]), not self.engine.nearsighted)
            else:
                text = self._root(s, s.near, self._loose(s, s.near), True, stated=True)
            self._texts[key] = text
        return text

    def _describe(self, s: HomeState, loose: dict[int, list[str]], everything: bool) -> str:
        roots = [self._root(s, root, loose, everything or root == s.near) for root in self._roots[s.room]]
        return f"Here: {'; '.join(roots)}."

    def spot(self, s: HomeState) -> str:
        """Returns the furniture at which the player stands, with the loose things there."""
        mask = self.engine.home.at_root[s.near]
        return self._remembered((s.near, s.open & mask, s.power & mask, s.marks), s, self.engine.placed(s))

    def contents(self, s: HomeState, piece: int) -> str:
        """Returns the loose things on or in one piece of furniture, e.g. '(milk)' or '(empty)'."""
        things = self.engine.placed(s).get(piece)
        return f"({', '.join([self._thing(s, bit) for bit in things])})" if things else "(empty)"

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

    def _loose(self, s: HomeState, seen: int) -> dict[int, list[str]]:
        """Returns piece of furniture -> the loose things in the open on or in it, in the room or at the spot `seen`."""
        hidden = self.engine.home.door & ~s.open
        placed = self.engine.placed(s)
        return {
            place: [self._thing(s, bit) for bit in placed[place]]
            for place in self._seen_pieces(s.room, seen)
            if place in placed and not place & hidden
        }

    def _thing(self, s: HomeState, bit: int) -> str:
        noun = self.engine.home.nouns[bit]
        if not s.marks:
            return noun
        return " ".join([word for process, word in self._participles if self.engine.marked(s, bit, process)] + [noun])

    def _root(self, s: HomeState, root: int, loose: dict[int, list[str]], seen: bool, stated: bool = False) -> str:
        mask = self.engine.home.at_root[root]
        plain = not seen or not loose or not any(bit & mask for bit in loose)
        key = root, s.open & mask, s.power & mask, stated
        if plain and (text := self._plain.get(key)):
            return text
        pieces = [self._piece(s, bit, loose, seen, stated) for bit in self._pieces[root]]
        text = f"{pieces[0]} with {listing(pieces[1:])}" if len(pieces) > 1 else pieces[0]
        if plain:
            self._plain[key] = text = intern(text)
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
