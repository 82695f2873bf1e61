"""Words: facts and states as paragraphs, actions as commands, and back. All sentences are our own."""

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
    Action,
    State,
)
from envsuite.envs.virtualhome.home import Home
from envsuite.envs.virtualhome.mended import Mended
from envsuite.envs.virtualhome.published import Entertainment, Preparation, Published, data

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
    """'a', 'a and b', 'a, b and c'."""
    listed = list(words)
    return f" {last} ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)


def command(home: Home, action: Action) -> str:
    """The action as a player says it."""
    return PHRASES[action.verb].format(x=home.nouns.get(action.x, ""), y=home.nouns.get(action.y, ""))


def done(home: Home, action: Action) -> str:
    """The action as it is told when it worked."""
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
_LONGEST = 200  # no command is longer; what is gets no regular expression to chew on


class Grammar:
    """Finds the action in what a player says: case, articles, underscores and a few synonyms are free."""

    def __init__(self, home: Home) -> None:
        self.bits = {noun.lower(): bit for bit, noun in home.nouns.items()}
        named = home.target | home.room_mask
        self.bits = {noun: bit for noun, bit in self.bits.items() if bit & named}

    def parse(self, said: str) -> Action | None:
        """The action, or None where nothing fits."""
        if len(said) > _LONGEST:
            return None
        words = " ".join(_ARTICLES.sub(" ", said.lower().replace("_", " ").strip(" .!")).split())
        if words in ("stand up", "stand", "get up"):
            return Action(STANDUP)
        if found := _PUT.fullmatch(words):
            item, where, place = found.groups()
            if item in self.bits and place in self.bits:
                return Action(PUTBACK if where in ("on", "onto", "upon") else PUTIN, self.bits[item], self.bits[place])
        for verb, pattern in _SIMPLE:
            if (found := pattern.fullmatch(words)) and found[1] in self.bits:
                return Action(verb, self.bits[found[1]])
        return None


# ---- published facts in words ---------------------------------------------------------------------------------------


def paragraph(task: Published, facts: Iterable[str]) -> str:
    """What is told of published facts, in their order; the last clause is one that a command completes."""
    sentences = []
    for fact in facts:
        sentences += [_fact(task, part) for part in _joined(fact)]
    return " ".join(sentences)


def _joined(fact: str) -> list[str]:
    """Facts fused into one sentence stay one; a room with what is seen there is two."""
    if fact.startswith("TV=on;"):
        return [fact]
    return fact.split(";")


def _names(task: Published, codes: str) -> list[str]:
    nouns = task.home.nouns
    if isinstance(task, Preparation):
        own = {"food": task.nouns[0], "appl": task.nouns[1]}
        return [own.get(code, code) for code in codes.split(",")]
    return [nouns[task.home.bit[code]] for code in codes.split(",")]


def _fact(task: Published, fact: str) -> str:
    kind, _, codes = fact.partition("=")
    if kind == "TV":
        told = [_fact(task, part).rstrip(".") for part in fact.split(";")[1:]]
        return "While the tv is on, " + " and ".join(clause[0].lower() + clause[1:] for clause in told) + "."
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
    """What the episode is about, in one sentence."""
    return _published_goal(task)


# ---- mended states in words -----------------------------------------------------------------------------------------


class Narrator:
    """Tells a mended state in words. `everywhere`: what can be seen in the other rooms is told too."""

    def __init__(self, engine: Mended, everywhere: bool = False) -> None:
        self.engine, self.everywhere = engine, everywhere
        home = engine.home
        self._furniture = {
            room: [(bit, self._words(bit)) for bit in home.bits(home.fixed_in[room])] for room in home.room_bits
        }
        self._elsewhere = {
            room: "Elsewhere: " + listing(f"the {home.nouns[other]}" for other in home.room_bits if other != room) + "."
            for room in home.room_bits
        }
        self._participles = [(p, PARTICIPLES[p]) for p in home.processes]

    def _words(self, bit: int) -> dict[tuple[bool, bool], str]:
        """A fixed thing in words, by whether it is open and whether it is on."""
        home = self.engine.home
        support = home.bits(home.supports[bit])[:1]
        where = f" on the {home.nouns[support[0]]}" if support else ""
        told = {}
        for is_open in (False, True):
            for power in (False, True):
                states = ["open" if is_open else "closed"] if bit & home.door else []
                states += ["on" if power else "off"] if bit & home.switch else []
                told[is_open, power] = f"the {home.nouns[bit]}{where}" + (f" ({', '.join(states)})" if states else "")
        return told

    def __call__(self, s: State, seen: int) -> str:
        """Where one is, what one holds, what is here and in what state. `seen` is `engine.visible(s)`."""
        home, nouns = self.engine.home, self.engine.home.nouns
        first = f"You are in the {nouns[s.room]}"
        if s.sitting:
            first += f", sitting on the {nouns[s.seat]}" + (f", facing the {nouns[s.facing]}" if s.facing else "")
        elif s.near:
            first += f", at the {nouns[s.near]}"
        held = [self._thing(s, bit) for bit in (s.right, s.left) if bit]
        told = [first + ".", f"You hold {listing(held)}." if held else "Your hands are empty."]
        told.append("Here: " + self._room(s, s.room, seen))
        if self.everywhere:
            for room in home.room_bits:
                if room != s.room:
                    told.append(f"In the {nouns[room]}: " + self._room(s, room, -1))
        else:
            told.append(self._elsewhere[s.room])
        return " ".join(told)

    def _thing(self, s: State, bit: int) -> str:
        noun = self.engine.home.nouns[bit]
        if not s.marks:
            return f"the {noun}"
        marks = [word for process, word in self._participles if self.engine.marked(s, bit, process)]
        return f"the {' '.join([*marks, noun])}"

    def _room(self, s: State, room: int, seen: int) -> str:
        """The furniture of a room and the loose things of `seen` that are there, outside closed containers."""
        home = self.engine.home
        closed = home.door & ~s.open
        hands = s.right | s.left
        lying: dict[int, list[str]] = {}
        for bit, inside, on in zip(home.movable_bits, s.inside, s.on):
            if inside & room and seen & bit and not bit & hands and not inside & closed:
                lying.setdefault(on or inside & ~room, []).append(self._thing(s, bit))
        bare, full = [], []
        for bit, told in self._furniture[room]:
            words = told[s.open & bit > 0, s.power & bit > 0]
            if things := lying.get(bit):
                full.append(f"{'On' if bit & home.surface else 'In'} {words}: {listing(things)}.")
            elif bit & home.target:
                bare.append(words)
        return " ".join([f"{listing(bare)}." if bare else "", *full]).strip() or "nothing of use."


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
