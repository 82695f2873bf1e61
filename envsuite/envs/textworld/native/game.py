"""A native engine for generated games: state, listed commands and replies.

It covers TextWorld's standard rules (all challenges except `cooking`). `NativeGame` raises NotCovered for
a game that contains anything else. Its frames are those of `TrackedGame`, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.envs.textworld.engine.interpreter import LOST, WON, Frame, Opening
from envsuite.envs.textworld.native.actions import answers, handed_over
from envsuite.envs.textworld.native.prose import (
    NotCovered,
    dictionary_word,
    in_sentence,
    parse_text,
    plain,
    quoted_in_parts,
    render,
    with_article,
)

RULES = ("70911fc8", "7ffc3f12")
"""First digits of the digests of the rules that this engine implements: TextWorld's standard rules, and the part
of them that coin collector uses."""
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
STATIC = {"north_of", "south_of", "east_of", "west_of", "link", "free", "match", "edible"}
STATUSES = ("open", "closed", "locked")
PLACES = ("at", "in", "on")
RESTART = "Would you like to RESTART, RESTORE a saved game, QUIT or UNDO the last command?"
BANNER = (Path(__file__).parent / "banner.txt").read_text()
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
MAX_ENTITIES = 120
"""Number of rooms and things; larger games were not compared with the interpreter."""
PART = 200
"""Number of characters of the parts in which TextWorld writes the objective."""
KINDS = ("t", "s", "c", "o", "f", "k", "d")
NAME = re.compile(r"[A-Za-z0-9' -]+")
SMALL_WORDS = {"the", "of"}
"""Words that TextWorld does not let stand for a thing."""

CENTRED = 125
"""Width in which the game's end is announced."""

Answer = Callable[[], str]
Fact = tuple[str, ...]


class Quest(NamedTuple):
    """Alternatives that complete a quest, or lose the game while it is open."""

    wins: list[list[Fact]]
    fails: list[list[Fact]]
    reward: int
    required: bool


class NativeGame:
    """A game read from its .json file."""

    def __init__(self, path: Path, inventory: bool) -> None:
        data = json.loads(path.read_bytes())
        if hashlib.sha256(data["KB"]["logic"].encode()).hexdigest()[:8] not in RULES:
            raise NotCovered("other rules")
        self.with_inventory = inventory
        self.objective: str = data["objective"]
        infos: dict[str, dict[str, Any]] = {key: info for key, info in data["infos"] if key not in ("P", "I")}
        self.names: dict[str, str] = {key: info["name"] for key, info in infos.items()}
        self._check(infos)
        self.kind: dict[str, str] = {key: info["type"] for key, info in infos.items()}
        self.article = {key: with_article(name) for key, name in self.names.items()}
        # Inform takes a door for a proper name, because TextWorld introduces it without an article.
        self.definite = {key: name if self.kind[key] == "d" else f"the {name}" for key, name in self.names.items()}
        self.title = {key: f"-= {str.title(name)} =-" for key, name in self.names.items() if self.kind[key] == "r"}
        self.texts = {key: parse_text(info["desc"] or "", key) for key, info in infos.items()}
        self._read_world([(fact["name"], *(x["name"] for x in fact["arguments"])) for fact in data["world"]])
        self._read_quests(data["quests"])
        self._objective_text = self._read_objective()
        self.reset()

    def _check(self, infos: dict[str, dict[str, Any]]) -> None:
        """Finds names whose words are also words of other names. Raises NotCovered for names of other kinds."""
        if len(infos) > MAX_ENTITIES:
            raise NotCovered(f"{len(infos)} rooms and things")
        words = {}
        for key, info in infos.items():
            if info["type"] not in (*KINDS, "r") or info["definite"] or info["indefinite"] or info["synonyms"]:
                raise NotCovered(f"entity {key}")
            if not NAME.fullmatch(info["name"]):
                raise NotCovered(f"name {info['name']!r}")
            if info["type"] != "r":
                words[key] = [dictionary_word(word) for word in info["name"].lower().split()]
        self.rivals: dict[str, set[str]] = {}
        """things with a name whose words are also words of others' names, and those others"""
        understood = {key: set(name) - SMALL_WORDS for key, name in words.items()}
        for key, name in words.items():
            if rivals := {other for other in words if other != key and set(name) <= understood[other]}:
                if any(set(words[other]) == set(name) for other in rivals):
                    raise NotCovered(f"two names of the words {name}")
                self.rivals[key] = rivals

    def _read_world(self, facts: list[tuple[str, ...]]) -> None:
        self.exits: dict[str, dict[str, tuple[str, str | None]]] = {
            key: {} for key in self.kind if self.kind[key] == "r"
        }
        self.key_of: dict[str, str] = {}
        self.doors: dict[str, list[str]] = {key: [] for key in self.exits}
        self._start_status: dict[str, str] = {}
        self._start_place: dict[str, str] = {}
        links: dict[tuple[str, str], str] = {}
        free = {fact[1:] for fact in facts if fact[0] == "free"}
        for name, *arguments in facts:
            if name == "link":
                links[arguments[0], arguments[2]] = arguments[1]
                self.doors[arguments[0]].append(arguments[1])
            elif name == "match":
                self.key_of[arguments[1]] = arguments[0]
            elif name in STATUSES:
                self._start_status[arguments[0]] = name
            elif name in PLACES:
                self._start_place[arguments[0]] = arguments[1]
            elif name not in STATIC:
                raise NotCovered(f"fact {name}")
        for name, *arguments in facts:
            direction = name.removesuffix("_of")
            if direction in OPPOSITE:  # north_of(a, b): a lies north of b
                there, here = arguments
                door = links.get((here, there))
                if door is None and ((here, there) not in free or (there, here) not in free):
                    raise NotCovered("a blocked way")
                self.exits[here][direction] = (there, door)
        # Inform lists the things of a place in the order of their declarations. TextWorld declares kind by kind, in
        # alphabetical order, and the things of a kind as its facts first mention them.
        mentions: dict[str, None] = {}
        for name, *arguments in facts:
            if arguments[0] not in self.exits:
                mentions.update(dict.fromkeys(arguments if name == "match" else arguments[:1]))
        placed = [key for key in mentions if key in self._start_place and key != "P"]
        self._order = sorted(placed, key=lambda key: self.kind[key])

    def _read_quests(self, quests: list[dict[str, Any]]) -> None:
        self.quests: list[Quest] = []
        self.max_score = 0
        for quest in quests:
            if quest["repeatable"]:
                raise NotCovered("a quest that can be repeated")
            wins, fails = ([_condition(event) for event in quest[kind]] for kind in ("win_events", "fail_events"))
            if not quest["optional"] or quest["reward"] > 0:
                self.max_score += quest["reward"]
            self.quests.append(Quest(wins, fails, quest["reward"], bool(wins) and not quest["optional"]))
        losing = {fact for quest in self.quests for event in quest.fails for fact in event}
        self._can_fail = bool(losing)
        if any(fact in losing for quest in self.quests for event in quest.wins for fact in event):
            raise NotCovered("a fact that can lose the game and score at once")
        if not any(quest.required for quest in self.quests) or not 0 <= self.max_score < len(NUMBERS):
            raise NotCovered("no quest, or high rewards")

    def reset(self) -> None:
        """Returns to the start of the game."""
        self.status = dict(self._start_status)
        self.contents: dict[str, list[str]] = {key: [] for key, kind in self.kind.items() if kind in ("r", "c", "s")}
        self.contents["I"] = []
        self.place: dict[str, str] = {}
        for key in self._order:
            self.place[key] = self._start_place[key]
            self.contents[self._start_place[key]].append(key)
        self.room = self._start_place["P"]
        self._last_inventory = ""
        self.done = [False] * len(self.quests)
        self.score = self.turns = 0
        self.won = self.lost = False
        self.update()

    def get_state(self) -> Any:
        """Returns the present state for `set_state`."""
        contents = {key: list(keys) for key, keys in self.contents.items()}
        return (
            dict(self.status),
            contents,
            dict(self.place),
            self.room,
            list(self.done),
            self.score,
            self.turns,
            self.won,
            self.lost,
        )

    def set_state(self, state: Any) -> None:
        """Restores a state of this game."""
        status, contents, place, self.room, done, self.score, self.turns, self.won, self.lost = state
        self.status, self.place, self.done = dict(status), dict(place), list(done)
        self.contents = {key: list(keys) for key, keys in contents.items()}
        self.update()

    def listed(self, key: str) -> str:
        """Returns the contents of a place as a list with articles."""
        return in_sentence([self.article[thing] for thing in self.contents[key]])

    def inventory(self) -> str:
        """Returns the sentence that lists what the player carries."""
        carried = f": {self.listed('I')}" if self.contents["I"] else " nothing"
        return f"You are carrying{carried}."

    def opening(self) -> Opening:
        """Returns the first frame."""
        text = f"{BANNER}{self._objective_text}\n\n{self.describe_room().rstrip()}\n\n>"
        return Opening(self._frame(text), self.objective, self.max_score)

    def _read_objective(self) -> str:
        """Returns the objective as it is printed. Raises NotCovered."""
        if "[" in self.objective or "\n" in self.objective:
            raise NotCovered("an objective with substitutions")
        return plain(quoted_in_parts(self.objective, PART))

    def step(self, command: str) -> Frame | None:
        """Plays a listed command; returns None, and changes nothing, for one that only the interpreter can play."""
        answer = self.answers.get(command.lower())
        if answer is None or answer is handed_over or self.won or self.lost:
            return None
        if self._can_fail and self.with_inventory:
            self._last_inventory = self.inventory()  # the interpreter does not tell it in the turn that loses the game
        text = answer()
        self.turns += 1
        text += self._end_of_turn()
        if not (self.won or self.lost):
            text += "\n>"
        return self._frame(text)

    def _end_of_turn(self) -> str:
        """Completes and fails quests; returns what is printed about them."""
        before = self.score_before = self.score
        for number, quest in enumerate(self.quests):
            if self.done[number]:
                continue
            if any(all(map(self._holds, event)) for event in quest.fails):
                self.lost = True
                return (
                    f"\n{LOST.center(CENTRED).rstrip()}\n\nYou scored {self.score} out of a possible {self.max_score}, "
                    f"in {self.turns} turn{'s' * (self.turns != 1)}.\n\n\n{RESTART}\n>"
                )
            elif any(all(map(self._holds, event)) for event in quest.wins):
                self.score += quest.reward
                self.done[number] = True
        text = ""
        if self.score != before:
            gain = self.score - before
            text = f"\nYour score has just gone up by {NUMBERS[gain]} point{'s' * (gain != 1)}.\n"
        self.won = all(done for done, quest in zip(self.done, self.quests, strict=True) if quest.required)
        if self.won:
            turns = self.turns + 1
            text += (
                f"\n\n{WON.center(CENTRED).rstrip()}\n\nYou scored {self.score} out of a possible {self.max_score}, "
            )
            text += f"in {turns} turn{'s' * (turns != 1)}.\n\n\n{RESTART}\n>"
        return text

    def _holds(self, fact: tuple[str, ...]) -> bool:
        name, thing, *where = fact
        if name in STATUSES:
            return self.status[thing] == name
        if name == "eaten":
            return self.place[thing] == ""
        if thing == "P":
            return self.room == where[0]
        return self.place[thing] == where[0]

    def _frame(self, text: str) -> Frame:
        if self.won or self.lost:
            bar = f" {self.title[self.room]}{self.score_before}/{self.turns}"
        else:
            bar = f"{self.title[self.room]}{self.score}/{self.turns + 1}"
        inventory = self._last_inventory if self.lost else self.inventory()
        return Frame(
            f"{text}{' ' * 128}{bar}",
            self.names[self.room],
            inventory if self.with_inventory else None,
            self.score,
            self.turns,
            self.won,
            self.lost,
            self.commands,
        )

    def describe_room(self) -> str:
        """Returns the room's title, its description and what is on its floor."""
        floor = [key for key in self.contents[self.room] if self.kind[key] not in ("c", "s")]
        text = f"{self.title[self.room]}\n{render(self.texts[self.room], self)}\n\n"
        if floor:
            text += f"There is {in_sentence([self.article[key] for key in floor])} on the floor.\n"
        return text

    def rivals_in_scope(self, key: str) -> set[str]:
        """Returns the things in scope that a command with the name of `key` could mean as well."""
        return set(filter(self._is_in_scope, self.rivals.get(key, ())))

    def _is_in_scope(self, key: str) -> bool:
        """Tests whether the player sees or carries a thing, so that commands can mean it."""
        if self.kind[key] == "d":
            return key in self.doors[self.room]
        place = self.place[key]
        if place in (self.room, "I"):
            return True
        return self.place.get(place) == self.room and self.status.get(place, "open") == "open"

    def move(self, thing: str, place: str) -> None:
        """Moves a thing to a place, where it is listed first; '' is nowhere."""
        self.contents[self.place[thing]].remove(thing)
        self.place[thing] = place
        if place:
            self.contents[place].insert(0, thing)
        self.update()

    def update(self) -> None:
        """Computes the listed commands of the present state."""
        listed: dict[str, Answer] = answers(self)
        self.commands = sorted(listed)
        self.answers = {command.lower(): answer for command, answer in listed.items()}


def _condition(event: dict[str, Any]) -> list[Fact]:
    """Returns the facts of an event that can change."""
    facts = [(fact["name"], *(x["name"] for x in fact["arguments"])) for fact in event["condition"]["preconditions"]]
    return [fact for fact in facts if fact[0] not in STATIC]


def load_native(path: Path, inventory: bool) -> NativeGame | None:
    """Returns the game of a .json file; None if only the interpreter can play it."""
    try:
        return NativeGame(path, inventory)
    except (NotCovered, OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # also a damaged file, which the interpreter's path reports or replaces
