"""Games played: the story is jericho's to run, the logic textworld's to know.

`Tracked` tells what textworld's own wrappers tell, to the byte, without what nobody here asks them for, and without working
things out again: a situation met before has the same valid actions, and what happens in it leads to the same next one. The
raw engine, beside which we are measured and compared, runs on textworld's wrappers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jericho
import textworld
from textworld.envs.wrappers.tw_inform7 import _detect_i7_events_debug_tags as take_out_events
from textworld.generator.game import Game, GameProgression
from textworld.generator.inform7 import Inform7Game
from textworld.logic import State

from envsuite.envs.textworld.interpreter import LOST, WON, Frame
from envsuite.errors import EngineFailure

if TYPE_CHECKING:
    from textworld.logic import Action, Proposition

REMEMBERED = 5_000
"""situations of one game that are kept from one episode to the next"""
HALTED = "Emulator halted"
"""what jericho says in a game's place"""


class Situation(NamedTuple):
    """A state of the game's logic."""

    facts: frozenset[Proposition]
    room: str | None
    actions: list[Action]
    """the valid ones, those with the most preconditions first"""
    commands: list[str]
    after: dict[str, tuple[Action, Situation]]
    """by event the interpreter has told of: what was done, and where that led"""


class Tracked:
    """A .z8 with its .json beside it."""

    def __init__(self, path: str, inventory: bool) -> None:
        self.game = Game.load(str(Path(path).with_suffix(".json")))
        self._inform7 = Inform7Game(self.game)
        self._frotz = jericho.FrotzEnv(path, -1)
        self._tags = ["inventory"] * inventory + ["moves", "score"]
        self._situations: dict[frozenset[Proposition], Situation] = {}
        self._told: dict[Action, str] = {}

    def close(self) -> None:
        self._frotz.close()

    @property
    def facts(self) -> frozenset[Proposition]:
        """What holds now."""
        return self._now.facts

    def reset(self) -> Frame:
        if len(self._situations) > REMEMBERED:
            self._situations.clear()
        text, _ = self._frotz.reset()
        self._extra: dict[str, str] = {}
        for tag in self._tags:
            self._take_out_extra(self._frotz.step(f"tw-extra-infos {tag}")[0])
        self._frotz.step("tw-trace-actions")
        self._done: list[Action] = []
        self._progression: GameProgression | None = None  # until somebody asks: it costs as much as all the rest
        self._now = self._situation(frozenset(self.game.world.state.facts))
        return self._frame(text)

    def step(self, command: str) -> Frame:
        text = self._take_out_extra(self._frotz.step(command)[0])
        events, text = take_out_events(text)
        for event in events:
            self._happen(event.lower())
        return self._frame(text)

    def _frame(self, text: str) -> Frame:
        score = self._extra.get("score")
        return Frame(
            text,
            self._now.room,
            self._extra.get("inventory"),
            None if score is None else int(score.split("\n")[0]),
            len(self._done),
            WON in text,
            LOST in text,
            self._now.commands,
        )

    def _take_out_extra(self, text: str) -> str:
        """A reply without what the game was told to add to each: <score>, line break, 3, line break, </score>."""
        for tag in self._tags:
            opening, closing = f"<{tag}>\n", f"</{tag}>"
            begin, end = text.find(opening), text.rfind(closing)
            if 0 <= begin <= end - len(opening):
                _, value = take_out_events(text[begin + len(opening) : end])
                if value := value.strip():
                    self._extra[tag] = value
                text = text[:begin] + text[end + len(closing) :]
        return text

    def _happen(self, event: str) -> None:
        now = self._now
        if event not in now.after:
            action = next((action for action in now.actions if self._told_as(action) == event), None)
            action = action or in_other_words(event, now.actions, self._told_as, self.game)
            if action is None:
                return
            now.after[event] = action, self._situation((now.facts | action.added) - action.removed)
        action, self._now = now.after[event]
        self._done.append(action)

    def _told_as(self, action: Action) -> str:
        """The event by which the interpreter tells of an action."""
        told = self._told.get(action)
        if told is None:
            event: str = self.game.kb.inform7_events[action.name]
            told = self._told[action] = event.format(**self._inform7._get_name_mapping(action)).lower()
        return told

    def _situation(self, facts: frozenset[Proposition]) -> Situation:
        known = self._situations.get(facts)
        if known is None:
            kb = self.game.kb
            actions = list(State(kb.logic, facts).all_applicable_actions(kb.rules.values(), kb.types.constants_mapping))
            room = next(
                (fact.arguments[1] for fact in facts if fact.name == "at" and fact.arguments[0].name == "P"), None
            )
            known = self._situations[facts] = Situation(
                facts,
                self.game.infos[room.name].name if room else None,
                sorted(actions, key=lambda action: -len(action.preconditions)),
                sorted(set(map(sys.intern, self._inform7.gen_commands_from_actions(actions)))),
                {},
            )
        return known

    def policy(self) -> list[str]:
        """The commands of the engine's winning policy, which is not the shortest; none where it has none."""
        if self._progression is None:
            self._progression, self._followed = GameProgression(self.game), 0
        for action in self._done[self._followed :]:
            self._progression.state.apply(action)
            for quest in self._progression.quest_progressions:
                quest.update(action, self._progression.state)
        self._followed = len(self._done)
        commands: list[str] = self._inform7.gen_commands_from_actions(self._progression.winning_policy or ())
        return commands


def in_other_words(
    event: str, actions: Iterable[Action], told_as: Callable[[Action], str], game: Game
) -> Action | None:
    """What was done, where textworld's own tracker does not know: things taken and doors gone through in other words.

    `take key` is traced as "removing the key from the box", but `get key`, `pick up key` and `take key and lamp` as "taking
    the key", which to that tracker is the key on the floor alone. `go through gate` is traced as "entering gate", which it
    does not know at all. Without these the room, admissible commands, moves and plans would be another game's from then on.
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


class Untracked:
    """A story file alone: its text, and a score where jericho knows the game."""

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

    def _frame(self, state: Any) -> Frame:
        text = state["feedback"]
        if not text.strip() or text.startswith(HALTED):
            raise EngineFailure(f"The interpreter cannot go on with {self._path}: the file is damaged; get it anew.")
        won = bool(state.get("won")) or WON in text
        lost = not won and (bool(state.get("lost")) or LOST in text or bool(state.get("done")))
        return Frame(text, score=state.get("score"), moves=state.get("moves"), won=won, lost=lost)

    def policy(self) -> list[str]:
        return []
