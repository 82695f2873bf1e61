"""ALFWorld: household tasks in text (Shridhar et al., 2021), official games and generated ones.

The player stands in a room of receptacles (cabinets, a fridge, a desk), walks between them, opens them, and does one of
six things: put an object somewhere; clean, heat or cool one first; put two alike in one place; look at one under a lamp.
Everything the player may do is in the list of admissible commands; anything else is answered "Nothing happens.".

A game is won when its goal holds, whatever came before. Sparse pays 1 then. Dense pays subgoals once each, 1 in all for a
solved game (`subgoals.py`). Neither can be farmed: no subgoal pays twice. Shaped takes the exact solver's distance.

Harder: more receptacles to search, more objects in the way, targets hidden in closed receptacles, longer task types.
"""

from __future__ import annotations

import json
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.core import TextEnv
from envsuite.envs.alfworld import data, solver
from envsuite.envs.alfworld.books import BatchState
from envsuite.envs.alfworld.engine import NOTHING_HAPPENS, Game, NativeEngine, State
from envsuite.envs.alfworld.generator import Recipe, generate
from envsuite.envs.alfworld.logic import DIALECTS, Unrecognised, remake
from envsuite.envs.alfworld.menu import LEVELS
from envsuite.envs.alfworld.observations import OBSERVATIONS, STYLES
from envsuite.envs.alfworld.partial import PartialExpert
from envsuite.envs.alfworld.scenery import ROOMS, TASK_TYPES, package_folder
from envsuite.envs.alfworld.seam import Answer
from envsuite.envs.alfworld.stock import StockEngine
from envsuite.envs.alfworld.subgoals import Marks, Subgoals
from envsuite.errors import UsageError
from envsuite.types import Knob, Outcome, RewardMode

INSTRUCTIONS = """\
You are in a room of a house, described in words, and have a household task to do. You walk from one receptacle (a
cabinet, a desk, a fridge) to another, open closed ones, and carry one object at a time.
Commands:
  look                              what is around you
  inventory                         what you carry
  go to (receptacle)                walk there
  open (receptacle), close (receptacle)
  take (object) from (receptacle)
  {put}
  examine (something)
  use (object)                      turn a lamp on
  clean (object) with (receptacle)  at a sink
  heat (object) with (receptacle)   at a microwave
  cool (object) with (receptacle)   at a fridge
  slice (object) with (object)      with a knife in your hand
Objects and receptacles are named with their number, as in: take apple 1 from fridge 1. To look at an object under a
lamp, hold it and use the lamp."""
PUT = {"2.1.1": "put (object) in/on (receptacle)", "0.4": "move (object) to (receptacle)"}


class Source(NamedTuple):
    """A game before an engine has it."""

    name: str
    file: str
    """path of the official file; the name for generated games"""
    text: str
    """of the file; empty where only the native engine plays it"""
    game: Game | None
    """None where only the stock engine can play it"""


class Saved(NamedTuple):
    """What `get_state` gives."""

    name: str
    state: State
    marks: Marks
    turn: int
    over: bool


class AlfworldEnv(TextEnv):
    """One household task per episode; see the head of this file."""

    knobs = (
        Knob("games", "generated", "which games: made from the seed, or an official split under $ALFWORLD_DATA",
             choices=("generated", *data.EXPECTED)),
        Knob("flagged", False, "official games whose file says solvable: false, instead of the solvable ones"),
        Knob("engine", "native", "native, or textworld's own: a thousand times slower", choices=("native", "textworld")),
        Knob("dialect", "file", "as the game file has it (generated: 2.1.1), or remade: 'put a in/on b' | 'move a to b'",
             choices=("file", *DIALECTS)),
        Knob("observation", "raw", "wording: the game's own | ReAct's, without the arrival | verl-agent's", choices=STYLES),
        Knob("list_commands", False, "end every observation with the admissible commands"),
        Knob("task_types", TASK_TYPES, "generated: kinds of task", choices=TASK_TYPES),
        Knob("rooms", tuple(ROOMS), "generated: kinds of room", choices=tuple(ROOMS)),
        Knob("receptacles", 0, "generated: how many, 0 as the floor plan has (6 to 54)", low=0, high=60),
        Knob("objects", 0, "generated: portable objects within reach, 0 as in official games (8 to 61)", low=0, high=100),
        Knob("distractors", -1, "generated: objects the task could as well have asked for, -1 as it comes", low=-1, high=50),
        Knob("hidden", -1.0, "generated: share of targets in closed receptacles, -1 as in official games", low=-1.0, high=1.0),
        Knob("copies", 0, "generated: objects of the target's class, 0 as in official games (1 to 4)", low=0, high=8),
    )  # fmt: skip
    levels = {level: knobs for level, (_, knobs) in LEVELS.items()}
    experts = ("", "partial")
    instructions = INSTRUCTIONS.format(put=PUT["2.1.1"])

    def __init__(self, **kwargs: Any) -> None:
        self._books, self._seat = BatchState(1), 0
        super().__init__(**kwargs)
        chosen = self.settings
        self._style = OBSERVATIONS[chosen.observation]
        self._plain = chosen.observation == "raw" and not chosen.list_commands
        self._recipe = Recipe(
            chosen.task_types,
            chosen.rooms,
            chosen.receptacles,
            chosen.objects,
            chosen.distractors,
            chosen.hidden,
            chosen.copies,
            DIALECTS[0] if chosen.dialect == "file" else chosen.dialect,
        )
        self._files: list[data.GameFile] = []
        if chosen.games != "generated":
            files = {game.name: game for game in data.games(chosen.games, chosen.flagged)}
            self._files = [files[name] for name in data.panel(games=chosen.games, flagged=chosen.flagged).games]
            if not self._files:
                what = "flagged unsolvable" if chosen.flagged else "solvable"
                raise UsageError(f"There are no {what} games of {chosen.games} in {data.data_folder()}: {data.CURES}.")
        else:
            package_folder()  # new games are made from the package's data: missing, it is missed now
        self._stock: StockEngine | None = None
        self._answer: Answer  # of the stock engine
        if chosen.engine == "textworld":
            self._stock = StockEngine()

    @classmethod
    def needs_process(cls, settings: dict[str, Any]) -> bool:
        return bool(settings["engine"] == "textworld")

    @property
    def turn(self) -> int:  # type: ignore[override]
        """Commands of this episode so far."""
        return self._books.turns[self._seat]

    @turn.setter
    def turn(self, turn: int) -> None:
        self._books.turns[self._seat] = turn

    def seated(self, books: BatchState, seat: int) -> AlfworldEnv:
        """Itself, keeping its books from the next reset on among those of other environments."""
        self._books, self._seat = books, seat
        return self

    # ---- an episode --------------------------------------------------------------------------------------------------

    def _reset(self, seed: int) -> str:
        source = self._source = self._find(seed)
        books, seat = self._books, self._seat
        self._native = NativeEngine(source.game) if source.game is not None else None
        self._subgoals = Subgoals(source.game, books, seat) if source.game is not None else None
        self._plan: list[str] = []
        books.files[seat] = source.file
        books.forget(seat)
        self._seeker: PartialExpert | None = None
        self._seen_from: State | None = None  # the start, where None
        if self.settings.engine == "textworld" or self._native is None:
            if self._stock is None:
                warnings.warn(
                    f"{source.name}: the native engine does not know its rules; the slow textworld engine plays it.",
                    stacklevel=2,
                )
                self._stock = StockEngine()
            self._stock.load(json.loads(source.text), source.name)
            self._answer = self._stock.reset()
            feedback, _, self.won = self._answer
        else:
            feedback, self.won = self._native.opening, self._native.won
        self.objective = feedback.rpartition("Your task is to: ")[2]
        self.dialect = dialect_of(source)
        self.instructions = INSTRUCTIONS.format(put=PUT[self.dialect])
        alone = self._stock is None and self.reward_mode is not RewardMode.SHAPED
        books.engines[seat] = self._native if alone else None
        return self._shown(feedback)

    def _act(self, command: str) -> Outcome:
        self._books.log.append({self._seat: command})
        if self._stock is None:
            assert self._native is not None
            return self._outcome(self._native.act(command))
        self._follow(command.strip())
        self._answer = self._stock.step(command)
        if self._native is not None:
            self._native.step(command)
        return self._outcome(self._answer.feedback)

    def _outcome(self, feedback: str) -> Outcome:
        native, subgoals = self._native, self._subgoals
        won = self.won = self._answer.won if native is None or self._stock is not None else native.won
        if native is None or subgoals is None:
            gained = progression = float(won)
        else:
            gained = subgoals.note(native, feedback)
            progression = subgoals.value
        text = feedback if self._plain else self._shown(feedback, self.turn + 1)
        return Outcome(text, gained, won, won, feedback != NOTHING_HAPPENS, progression)

    def _shown(self, feedback: str, turn: int = 0) -> str:
        commands = self.admissible() if self.settings.list_commands else None
        return self._style(feedback, turn, self.objective, commands)

    def _find(self, seed: int) -> Source:
        with_text = self.settings.engine == "textworld"
        if not self._files:
            made = _generated(seed, self._recipe)
            return Source(made.name, made.name, made.text if with_text else "", made.game)
        file = self._files[seed % len(self._files)]
        return _official(file.name, file.path, file.digest, self.settings.dialect, with_text)

    # ---- what is known about it --------------------------------------------------------------------------------------

    def admissible(self) -> list[str]:
        if self._stock is None and self._native is not None:
            return self._native.admissible()
        return self._answer.admissible

    def labels(self) -> dict[str, str]:
        source = self._source
        kind = source.game.goal.kind if source.game is not None else source.name.split("/")[1].split("-")[0]
        return {"instance": source.name, "task_type": kind, "dialect": self.dialect}

    def extra_info(self) -> dict[str, Any]:
        return {
            "won": self.won,
            "lost": False,  # as the stock engine has it: no state of ALFWorld ends a game unwon
            "score": int(self.won),
            "extra.gamefile": self._source.file,
            "dead_end": self.dead_end,
        }

    @property
    def dead_end(self) -> bool:
        """What is held can never be put down again, and the task not be done with it in hand."""
        native = self._native
        return native is not None and native.dead_end

    def expert(self, kind: str = "") -> str | None:
        """The exact solver's command; of games it cannot read, and with engine=textworld, Fast Downward's.

        `partial`: what one would do who knows only what this episode has shown (`partial.py`).
        """
        if kind == "partial":
            return self._partial()
        if self._stock is None:
            assert self._native is not None
            return solver.next_command(self._native.game, self._native.get_state())
        if not self._plan:
            self._plan = self._stock.opening_plan() if self.turn == 0 else self._stock.plan()
        return self._plan[0] if self._plan else None

    def _partial(self) -> str | None:
        if self._seeker is None:
            if self._source.game is None:
                raise UsageError(f"{self._source.name}: the expert `partial` plays only games of the native engine.")
            self._seeker = PartialExpert(self._source.game, self._seen_from)
        self._seeker.follow(self._books.said(self._seat))
        return self._seeker.next_command()

    def _follow(self, command: str) -> None:
        """Forgets a plan that is left; what does nothing does not leave it."""
        if self._plan and self._plan[0] == command:
            del self._plan[0]
        elif command in self._answer.admissible:
            self._plan = []

    def remaining(self) -> int | None:
        if self._native is None:
            raise UsageError(
                f"{self._source.name}: the exact solver does not know its rules: use sparse or dense rewards."
            )
        return solver.remaining(self._native.game, self._native.get_state())

    def get_state(self) -> Saved:
        if self._stock is not None or self._native is None or self._subgoals is None:
            raise UsageError("The textworld engine cannot save a state: use engine=native.")
        return Saved(self._source.name, self._native.get_state(), self._subgoals.get_state(), self.turn, self._over)

    def set_state(self, state: Saved) -> None:
        if self._stock is not None or self._native is None or self._subgoals is None:
            raise UsageError("The textworld engine cannot restore a state: use engine=native.")
        if state.name != self._source.name:
            raise UsageError(f"This is a state of {state.name}, not of {self._source.name}: reset to its seed first.")
        self._native.set_state(state.state)
        self.won = self.success = self._native.won
        self._subgoals.set_state(state.marks, self.won)
        self.turn, self._over, self.progression = state.turn, state.over, self._subgoals.value
        self._books.forget(self._seat)  # what was seen is not restored
        self._seeker, self._seen_from = None, state.state

    def close(self) -> None:
        if self._stock is not None:
            self._stock.close()
            self._stock = None


def dialect_of(source: Source) -> str:
    """What the game wants to be told: 'put a in/on b' (2.1.1) or 'move a to b' (0.4)."""
    if source.game is not None:
        return "0.4" if source.game.sentences.put_command.startswith("move") else "2.1.1"
    return "0.4" if "move {o} to {r}" in json.loads(source.text)["grammar"] else "2.1.1"


@lru_cache(maxsize=128)
def _generated(seed: int, recipe: Recipe) -> Any:
    return generate(seed, recipe)


@lru_cache(maxsize=256)
def _official(name: str, path: Path, digest: str, dialect: str, with_text: bool) -> Source:
    """`digest` makes a changed file another game."""
    try:
        if dialect == "file" and not with_text:
            return Source(name, str(path), "", Game.load(path))
        text = _text(path, dialect)
        return Source(name, str(path), text if with_text else "", Game.from_json(text, str(path)))
    except Unrecognised:
        return Source(name, str(path), _text(path, dialect), None)


def _text(path: Path, dialect: str) -> str:
    text = data.read_game(path)
    return text if dialect == "file" else remake(text, dialect)
