"""Texts: facts and states as paragraphs, actions as commands, and the parser of commands. All wording is our own."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
from envsuite.envs.virtualhome.rules.fixed_engine import FixedEngine, Loose
from envsuite.envs.virtualhome.rules.home import Home
from envsuite.envs.virtualhome.rules.published import Entertainment, Preparation, Published, data
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
DONE = {
    WALK: "You go to the {x}.",
    GRAB: "You take the {x}.",
    PUTIN: "You put the {x} in the {y}.",
    PUTBACK: "You put the {x} on the {y}.",
    OPEN: "You open the {x}.",
    CLOSE: "You close the {x}.",
    SWITCHON: "You switch on the {x}.",
    SWITCHOFF: "You switch off the {x}.",
    SIT: "You sit down on the {x}.",
    STANDUP: "You stand up.",
}
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
    "HELD": "You carry that with you.",
    "CANNOT": "That cannot be done to it.",
    "NO_PLACE": "Nothing can be put there.",
    "UNKNOWN": "That is no command that anyone here understands.",
}


def listing(words: Iterable[str], last: str = "and") -> str:
    """Joins words as in 'a', 'a and b', 'a, b and c'."""
    items = list(words)
    return f" {last} ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def command(home: Home, action: HomeAction) -> str:
    """Returns the command for an action."""
    return PHRASES[action.verb].format(x=home.nouns.get(action.x, ""), y=home.nouns.get(action.y, ""))


def done(home: Home, action: HomeAction) -> str:
    """Returns the sentence that reports a successful action."""
    return DONE[action.verb].format(x=home.nouns.get(action.x, ""), y=home.nouns.get(action.y, ""))


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


# ---- published facts in words ---------------------------------------------------------------------------------------


def paragraph(task: Published, facts: Iterable[str]) -> str:
    """Returns published facts as a paragraph whose last clause is completed by a command."""
    sentences = []
    for fact in facts:
        sentences += [_fact(task, part) for part in _split_fact(fact)]
    return " ".join(sentences)


def _split_fact(fact: str) -> list[str]:
    """Splits a fact with several parts, except facts that form a single sentence."""
    if fact.startswith("TV=on;"):
        return [fact]
    return fact.split(";")


def _names(task: Published, codes: str) -> list[str]:
    nouns = task.home.nouns
    if isinstance(task, Preparation):
        nouns_by_code = {"food": task.nouns[0], "appl": task.nouns[1]}
        return [nouns_by_code.get(code, code) for code in codes.split(",")]
    return [nouns[task.home.bit[code]] for code in codes.split(",")]


def _fact(task: Published, fact: str) -> str:
    kind, _, codes = fact.partition("=")
    if kind == "TV":
        parts = [_fact(task, part).rstrip(".") for part in fact.split(";")[1:]]
        return "While the tv is on, " + " and ".join(clause[0].lower() + clause[1:] for clause in parts) + "."
    if kind == "ROOM_LIST":
        return f"This home has four rooms: {listing(data()['rooms'].values())}."
    if kind == "ROOM":
        return f"Right now you stand in the {data()['rooms'][codes]}."
    if kind == "GOAL":
        return _published_goal(task)
    if kind == "ASK":
        return "As your next step, you"
    if kind in ("FOOD_IN_APPL", "SITTING", "APPL"):
        if isinstance(task, Preparation):
            food, appliance = task.nouns
            state = {"open": "stands open", "not_open": "has not been opened", "closed": "is shut"}.get(codes, "")
            return f"The {food} is inside the {appliance}." if kind == "FOOD_IN_APPL" else f"The {appliance} {state}."
        return "You have sat down on the sofa."
    if codes == "none":
        return "Nothing here is of use to you." if kind == "SEE" else "Your hands are empty."
    things = listing(f"the {name}" for name in _names(task, codes))
    return {
        "SEE": f"You notice {things}.",
        "HOLD": f"You carry {things}.",
        "NEAR": f"You are right beside {things}.",
        "FAR": f"You are some way off from {things}.",
        "NOT_HELD": f"You have not taken {things} yet.",
        "ON_TABLE": f"On the coffee table there is already {things}.",
    }[kind]


def _published_goal(task: Published) -> str:
    if isinstance(task, Entertainment):
        return "You want to enjoy the chips and the milk while you watch the tv from the sofa."
    assert isinstance(task, Preparation)
    food, appliance = task.nouns
    return f"You want the {food} heated up in the {appliance}."


def published_objective(task: Published) -> str:
    """Returns the objective of a published task in one sentence."""
    return _published_goal(task)


# ---- states of the fixed rules in words ----------------------------------------------------------------------


class Narrator:
    """Describes states of the fixed rules in words; `everywhere` includes the other rooms.

    The text of a room is stored until something visible in it changes.
    """

    def __init__(self, engine: FixedEngine, everywhere: bool = False) -> None:
        self.engine, self.everywhere = engine, everywhere
        home = engine.home
        memo = home.memo
        if "elsewhere" not in memo:
            memo["furniture"] = {room: home.bits(mask) for room, mask in home.fixed_in.items()}
            memo["elsewhere"] = {
                room: "Elsewhere: " + listing(f"the {home.nouns[bit]}" for bit in home.room_bits if bit != room) + "."
                for room in home.room_bits
            }
        self._furniture: dict[int, list[int]] = memo["furniture"]
        self._elsewhere: dict[int, str] = memo["elsewhere"]
        self._participles = [(p, PARTICIPLES[p]) for p in home.processes]
        self._pieces: dict[tuple[int, bool, bool], str] = memo.setdefault("words", {})
        self._rooms: dict[tuple[int, int, int, int, Loose], str] = {}

    def _piece(self, bit: int, is_open: bool, power: bool) -> str:
        """Returns the words for a piece of furniture."""
        words = self._pieces.get((bit, is_open, power))
        if words is None:
            home = self.engine.home
            support = home.bits(home.supports[bit])[:1]
            where = f" on the {home.nouns[support[0]]}" if support else ""
            states = ["open" if is_open else "closed"] if bit & home.door else []
            states += ["on" if power else "off"] if bit & home.switch else []
            words = f"the {home.nouns[bit]}{where}" + (f" ({', '.join(states)})" if states else "")
            self._pieces[bit, is_open, power] = words
        return words

    def __call__(self, s: HomeState, loose: Loose) -> str:
        """Returns the description of a state: place, hands and visible things; `loose` is `engine.loose(s)`."""
        nouns = self.engine.home.nouns
        first = f"You are in the {nouns[s.room]}"
        if s.sitting:
            first += f", sitting on the {nouns[s.seat]}" + (f", facing the {nouns[s.facing]}" if s.facing else "")
        elif s.near:
            first += f", at the {nouns[s.near]}"
        in_hand = [self._thing(s, bit) for bit in (s.right, s.left) if bit]
        hands = f"You hold {listing(in_hand)}." if in_hand else "Your hands are empty."
        here = f"{first}. {hands} Here: {self._room(s, s.room, loose)}"
        if not self.everywhere:
            return f"{here} {self._elsewhere[s.room]}"
        others = [room for room in self.engine.home.room_bits if room != s.room]
        return " ".join(
            [here, *(f"In the {nouns[room]}: {self._room(s, room, self.engine.loose(s, room))}" for room in others)]
        )

    def _thing(self, s: HomeState, bit: int) -> str:
        noun = self.engine.home.nouns[bit]
        if not s.marks:
            return f"the {noun}"
        marks = [word for process, word in self._participles if self.engine.marked(s, bit, process)]
        return f"the {' '.join([*marks, noun])}"

    def _room(self, s: HomeState, room: int, loose: Loose) -> str:
        """Returns the description of a room: its furniture with the loose things there."""
        home = self.engine.home
        furniture = home.fixed_in[room]
        key = room, s.open & furniture, s.power & furniture, s.marks, loose
        text = self._rooms.get(key)
        if text is None:
            text = self._rooms[key] = self._describe(s, room, dict(loose))
        return text

    def _describe(self, s: HomeState, room: int, loose: dict[int, tuple[int, ...]]) -> str:
        home = self.engine.home
        empty, filled = [], []
        for bit in self._furniture[room]:
            words = self._piece(bit, s.open & bit > 0, s.power & bit > 0)
            if things := loose.get(bit):
                contents = listing(self._thing(s, thing) for thing in things)
                filled.append(f"{'On' if bit & home.surface else 'In'} {words}: {contents}.")
            elif bit & home.target:
                empty.append(words)
        return " ".join([f"{listing(empty)}." if empty else "", *filled]).strip() or "nothing of use."


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
