"""Running games: jericho executes the story file, and textworld's logic tracks the state.

`TrackedGame` reports the same as textworld's own wrappers, byte for byte, without the parts that
this package never uses and without repeated computation: valid actions and transitions are cached
per state. The unpatched engine in benchmarks and tests uses textworld's wrappers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jericho
import textworld
from textworld.envs.wrappers.tw_inform7 import _detect_i7_events_debug_tags as extract_events
from textworld.generator.game import Game, GameProgression
from textworld.generator.inform7 import Inform7Game
from textworld.logic import Action, Proposition, State

from envsuite.envs.textworld.engine.interpreter import LOST, WON, Frame
from envsuite.errors import EngineFailure

MAX_STATES = 5_000
"""Number of states of a game that are kept from one episode to the next."""
HALTED = "Emulator halted"
"""jericho's reply after a crash of the interpreter."""


class TrackedState(NamedTuple):
    """A state of the game's logic."""

    facts: frozenset[Proposition]
    room: str | None
    actions: list[Action]
    """valid actions, those with the most preconditions first"""
    commands: list[str]
    after: dict[str, tuple[Action, TrackedState]]
    """event reported by the interpreter -> (action, next state)"""


class TrackedGame:
    """A .z8 file with its .json file."""

    def __init__(self, path: str, inventory: bool) -> None:
        self.game = Game.load(str(Path(path).with_suffix(".json")))
        self._inform7 = Inform7Game(self.game)
        self._frotz = jericho.FrotzEnv(path, -1)
        self._tags = ["inventory"] * inventory + ["moves", "score"]
        self._tracked_states: dict[frozenset[Proposition], TrackedState] = {}
        self._event_texts: dict[Action, str] = {}

    def close(self) -> None:
        self._frotz.close()

    @property
    def facts(self) -> frozenset[Proposition]:
        """The facts that hold now."""
        return self._state.facts

    def reset(self) -> Frame:
        if len(self._tracked_states) > MAX_STATES:
            self._tracked_states.clear()
        text, _ = self._frotz.reset()
        self._extra: dict[str, str] = {}
        for tag in self._tags:
            self._extract_infos(self._frotz.step(f"tw-extra-infos {tag}")[0])
        self._frotz.step("tw-trace-actions")
        self._done: list[Action] = []
        self._progression: GameProgression | None = (
            None  # created on demand, because it takes as long as everything else together
        )
        self._state = self._tracked_state(frozenset(self.game.world.state.facts))
        return self._frame(text)

    def step(self, command: str) -> Frame:
        text = self._extract_infos(self._frotz.step(command)[0])
        events, text = extract_events(text)
        for event in events:
            self._apply_event(event.lower())
        return self._frame(text)

    def get_state(self) -> Any:
        """Returns the state of the interpreter and of the tracked logic, without objects of textworld.

        Those contain hash values, which differ between processes.
        """
        return self._frotz.get_state(), self._extra, [action.serialize() for action in self._done]

    def set_state(self, state: Any) -> None:
        """Restores a state of this game, after a `reset`."""
        interpreter, self._extra, done = state
        self._frotz.set_state(interpreter)
        self._done = [Action.deserialize(action) for action in done]
        facts = self._state.facts  # of the start
        for action in self._done:
            facts = (facts | action.added) - action.removed
        self._state = self._tracked_state(facts)

    def _frame(self, text: str) -> Frame:
        score = self._extra.get("score")
        return Frame(
            text,
            self._state.room,
            self._extra.get("inventory"),
            None if score is None else int(score.split("\n")[0]),
            len(self._done),
            WON in text,
            LOST in text,
            self._state.commands,
        )

    def _extract_infos(self, text: str) -> str:
        """Removes the extra information from a reply: <score>, line break, 3, line break, </score>."""
        for tag in self._tags:
            opening, closing = f"<{tag}>\n", f"</{tag}>"
            begin, end = text.find(opening), text.rfind(closing)
            if 0 <= begin <= end - len(opening):
                _, value = extract_events(text[begin + len(opening) : end])
                if value := value.strip():
                    self._extra[tag] = value
                text = text[:begin] + text[end + len(closing) :]
        return text

    def _apply_event(self, event: str) -> None:
        state = self._state
        if event not in state.after:
            action = next((action for action in state.actions if self._event_text(action) == event), None)
            action = action or match_synonym(event, state.actions, self._event_text, self.game)
            if action is None:
                return
            state.after[event] = action, self._tracked_state((state.facts | action.added) - action.removed)
        action, self._state = state.after[event]
        self._done.append(action)

    def _event_text(self, action: Action) -> str:
        """Returns the text by which the interpreter reports an action."""
        text = self._event_texts.get(action)
        if text is None:
            event: str = self.game.kb.inform7_events[action.name]
            text = self._event_texts[action] = event.format(**self._inform7._get_name_mapping(action)).lower()
        return text

    def _tracked_state(self, facts: frozenset[Proposition]) -> TrackedState:
        known = self._tracked_states.get(facts)
        if known is None:
            kb = self.game.kb
            actions = list(State(kb.logic, facts).all_applicable_actions(kb.rules.values(), kb.types.constants_mapping))
            room = next(
                (fact.arguments[1] for fact in facts if fact.name == "at" and fact.arguments[0].name == "P"), None
            )
            known = self._tracked_states[facts] = TrackedState(
                facts,
                self.game.infos[room.name].name if room else None,
                sorted(actions, key=lambda action: -len(action.preconditions)),
                sorted(set(map(sys.intern, self._inform7.gen_commands_from_actions(actions)))),
                {},
            )
        return known

    def policy(self) -> list[str]:
        """Returns the commands of the engine's winning policy, which is not the shortest; may be
        empty.
        """
        if self._progression is None:
            self._progression, self._followed = GameProgression(self.game), 0
        for action in self._done[self._followed :]:
            self._progression.state.apply(action)
            for quest in self._progression.quest_progressions:
                quest.update(action, self._progression.state)
        self._followed = len(self._done)
        commands: list[str] = self._inform7.gen_commands_from_actions(self._progression.winning_policy or ())
        return commands


def pack_facts(history: Iterable[Iterable[Proposition]]) -> tuple[list[Any], list[list[int]]]:
    """Returns the distinct facts of a history, serialised, and for each entry the numbers of its facts."""
    numbers: dict[Proposition, int] = {}
    entries = [[numbers.setdefault(fact, len(numbers)) for fact in facts] for facts in history]
    return [fact.serialize() for fact in numbers], entries


def unpack_facts(packed: tuple[list[Any], list[list[int]]]) -> list[frozenset[Proposition]]:
    """Returns the history that `pack_facts` packed."""
    facts = [Proposition.deserialize(fact) for fact in packed[0]]
    return [frozenset(facts[number] for number in entry) for entry in packed[1]]


def match_synonym(event: str, actions: Iterable[Action], told_as: Callable[[Action], str], game: Game) -> Action | None:
    """Finds the action behind an event that textworld's own tracker does not recognise.

    `take key` is reported as "removing the key from the box", but `get key`, `pick up key` and
    `take key and lamp` as "taking the key", which textworld's tracker reads as a key on the floor.
    `go through gate` is reported as "entering gate", which it does not know. Without these cases
    the tracked room, commands, moves and plans would differ from the real game.
    """
    verb, _, thing = event.partition(" ")
    if verb == "taking":
        return next((action for action in actions if told_as(action).startswith(f"removing {thing} from ")), None)
    if verb != "entering":
        return None
    ways = {
        (fact.arguments[0], fact.arguments[2])
        for fact in game.world.facts
        if fact.name == "link" and game.infos[fact.arguments[1].name].name.lower() == thing
    }
    for action in actions:
        if action.name.startswith("go/"):
            here, there = (
                next(fact.arguments[1] for fact in facts if fact.name == "at")
                for facts in (action.removed, action.added)
            )
            if (here, there) in ways:
                return action
    return None


class UntrackedGame:
    """A story file without .json: its text, and a score if jericho knows the game."""

    game = None
    facts: frozenset[Proposition] = frozenset()

    def __init__(self, path: str) -> None:
        self._path = path
        self._env = textworld.start(path)

    def close(self) -> None:
        self._env.close()

    def reset(self) -> Frame:
        return self._frame(self._env.reset())

    def step(self, command: str) -> Frame:
        state, _, _ = self._env.step(command)
        return self._frame(state)

    def get_state(self) -> Any:
        """Returns the state of the interpreter."""
        return self._env._jericho.get_state()

    def set_state(self, state: Any) -> None:
        """Restores a state of this game, after a `reset`."""
        self._env._jericho.set_state(state)

    def _frame(self, state: Any) -> Frame:
        text = state["feedback"]
        if not text.strip() or text.startswith(HALTED):
            raise EngineFailure(f"The interpreter crashed on {self._path}: the file is damaged; download it again.")
        won = bool(state.get("won")) or WON in text
        lost = not won and (bool(state.get("lost")) or LOST in text or bool(state.get("done")))
        return Frame(text, score=state.get("score"), moves=state.get("moves"), won=won, lost=lost)

    def policy(self) -> list[str]:
        return []
