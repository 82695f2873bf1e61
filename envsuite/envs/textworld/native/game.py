"""A native engine for generated games: state, listed commands and replies.

It covers TextWorld's standard rules (challenge `custom`). `NativeGame` raises NotCovered for
games that contain anything else. Its frames equal those of `TrackedGame`, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envsuite.envs.textworld.engine.interpreter import LOST, WON, Frame, Opening
from envsuite.envs.textworld.native.actions import answers
from envsuite.envs.textworld.native.prose import (
    NotCovered,
    in_sentence,
    parse_text,
    plain,
    quoted_in_parts,
    render,
    with_article,
)

RULES = "70911fc8"
"""First digits of the digest of the rules that this engine implements."""
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
STATIC = {"north_of", "south_of", "east_of", "west_of", "link", "free", "match", "edible"}
STATUSES = ("open", "closed", "locked")
PLACES = ("at", "in", "on")
RESTART = "Would you like to RESTART, RESTORE a saved game, QUIT or UNDO the last command?"
BANNER = (Path(__file__).parent / "banner.txt").read_text()
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
MAX_ENTITIES = 40
"""Number of rooms and things; larger games were not compared with the interpreter."""
PART = 200
"""Number of characters of the parts in which TextWorld writes the objective."""
KINDS = ("t", "s", "c", "o", "f", "k", "d")

Answer = Callable[[], str]


class NativeGame:
    """A game read from its .json file."""

    def __init__(self, path: Path, inventory: bool) -> None:
        data = json.loads(path.read_bytes())
        if hashlib.sha256(data["KB"]["logic"].encode()).hexdigest()[:8] != RULES:
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
        self.reset()

    def _check(self, infos: dict[str, dict[str, Any]]) -> None:
        """Raises NotCovered for names that the interpreter might not tell apart."""
        words = []
        if len(infos) > MAX_ENTITIES:
            raise NotCovered(f"{len(infos)} rooms and things")
        for key, info in infos.items():
            if info["type"] not in (*KINDS, "r") or info["definite"] or info["indefinite"] or info["synonyms"]:
                raise NotCovered(f"entity {key}")
            if not info["name"].isascii():
                raise NotCovered(f"name {info['name']!r}")
            if info["type"] != "r":
                words.append(set(info["name"].lower().split()))
        for number, name in enumerate(words):
            if any(name <= other for place, other in enumerate(words) if place != number):
                raise NotCovered("names within names")

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
        # Inform lists the things of a place in the order in which TextWorld's facts first mention them.
        mentions: dict[str, None] = {}
        for name, *arguments in facts:
            if arguments[0] not in self.exits:
                mentions.update(dict.fromkeys(arguments if name == "match" else arguments[:1]))
        self._order = [key for key in mentions if key in self._start_place and key != "P"]

    def _read_quests(self, quests: list[dict[str, Any]]) -> None:
        self.quests: list[tuple[list[list[tuple[str, ...]]], int]] = []
        for quest in quests:
            if quest["fail_events"] or quest["optional"] or quest["repeatable"]:
                raise NotCovered("a quest that can fail or is optional")
            events = []
            for event in quest["win_events"]:
                facts = [
                    (fact["name"], *(x["name"] for x in fact["arguments"]))
                    for fact in event["condition"]["preconditions"]
                ]
                events.append([fact for fact in facts if fact[0] not in STATIC])
            self.quests.append((events, quest["reward"]))
        self.max_score = sum(reward for _, reward in self.quests)
        if not self.quests or self.max_score >= len(NUMBERS):
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
        self.done = [False] * len(self.quests)
        self.score = self.turns = 0
        self.won = False
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
        )

    def set_state(self, state: Any) -> None:
        """Restores a state of this game."""
        status, contents, place, self.room, done, self.score, self.turns, self.won = state
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
        text = f"{BANNER}{self._objective_text()}\n\n{self.describe_room().rstrip()}\n\n>"
        return Opening(self._frame(text), self.objective, self.max_score)

    def _objective_text(self) -> str:
        if "[" in self.objective or "\n" in self.objective:
            raise NotCovered("an objective with substitutions")
        return plain(quoted_in_parts(self.objective, PART))

    def step(self, command: str) -> Frame | None:
        """Plays a listed command; returns None, and changes nothing, for any other."""
        answer = self.answers.get(command.lower())
        if answer is None or self.won:
            return None
        text = answer()
        self.turns += 1
        text += self._score_text()
        if not self.won:
            text += "\n>"
        return self._frame(text)

    def _score_text(self) -> str:
        before = self.score_before = self.score
        for number, (events, reward) in enumerate(self.quests):
            if not self.done[number] and any(all(map(self._holds, event)) for event in events):
                self.score += reward
                self.done[number] = True
        text = ""
        if self.score != before:
            gain = self.score - before
            text = f"\nYour score has just gone up by {NUMBERS[gain]} point{'s' * (gain != 1)}.\n"
        if all(self.done):
            self.won = True
            turns = self.turns + 1
            text += f"\n\n{' ' * 55}{WON}\n\nYou scored {self.score} out of a possible {self.max_score}, "
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
        if self.won:
            bar = f" {self.title[self.room]}{self.score_before}/{self.turns}"
        else:
            bar = f"{self.title[self.room]}{self.score}/{self.turns + 1}"
        return Frame(
            f"{text}{' ' * 128}{bar}",
            self.names[self.room],
            self.inventory() if self.with_inventory else None,
            self.score,
            self.turns,
            self.won,
            LOST in text,
            self.commands,
        )

    def describe_room(self) -> str:
        """Returns the room's title, its description and what is on its floor."""
        floor = [key for key in self.contents[self.room] if self.kind[key] not in ("c", "s")]
        text = f"{self.title[self.room]}\n{render(self.texts[self.room], self)}\n\n"
        if floor:
            text += f"There is {in_sentence([self.article[key] for key in floor])} on the floor.\n"
        return text

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


def load_native(path: Path, inventory: bool) -> NativeGame | None:
    """Returns the game of a .json file; None if only the interpreter can play it."""
    try:
        return NativeGame(path, inventory)
    except (NotCovered, OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # also a damaged file, which the interpreter's path reports or replaces
