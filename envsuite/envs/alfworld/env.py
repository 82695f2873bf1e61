"""ALFWorld: household tasks in text (Shridhar et al., 2021), official games and generated ones.

The player stands in a room of receptacles (cabinets, a fridge, a desk), walks between them, opens
them, and does one of six tasks: put an object somewhere; clean, heat or cool one first; put two of
a kind in one place; look at one under a lamp. The admissible commands list everything the player
can do; every other command is answered "Nothing happens.".

A game is won when its goal holds, regardless of what came before. Sparse rewards pay 1 at that
point. Dense rewards pay each subgoal once, 1 in total for a solved game (`subgoals.py`), so no
cycle of commands pays. Shaped rewards use the distance given by the exact solver.

Difficulty grows with more receptacles to search, more objects, targets hidden in closed receptacles
and longer task types.
"""

from __future__ import annotations

import json
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from envsuite.core import TextEnv
from envsuite.envs.alfworld.blind import blind_commands
from envsuite.envs.alfworld.engine import NOTHING_HAPPENS, AlfworldGame, GameState, NativeEngine
from envsuite.envs.alfworld.games import data, solver
from envsuite.envs.alfworld.games.compiled import load_compiled
from envsuite.envs.alfworld.games.generator import GeneratorSettings, generate
from envsuite.envs.alfworld.games.logic import DIALECTS, Unrecognised, remake
from envsuite.envs.alfworld.games.package import package_folder
from envsuite.envs.alfworld.knobs import GENERATED, GENERATED_KNOBS, GENERATOR_KNOBS
from envsuite.envs.alfworld.menu import LEVELS
from envsuite.envs.alfworld.observations import OBSERVATIONS
from envsuite.envs.alfworld.partial import PartialExpert
from envsuite.envs.alfworld.stock import EngineReply, StockEngine
from envsuite.envs.alfworld.subgoals import Marks, SubgoalTracker
from envsuite.envs.alfworld.tools import TOOLS
from envsuite.errors import UsageError
from envsuite.types import Outcome

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


class GameSource(NamedTuple):
    """A game before an engine loads it."""

    name: str
    file: str
    """path of the official file; the game's name for generated games"""
    text: str
    """content of the file; empty if only the native engine plays it"""
    game: AlfworldGame | None
    """None if only the stock engine can play it"""


class SavedEpisode(NamedTuple):
    """The value that `get_state` returns."""

    name: str
    state: GameState
    marks: Marks
    turn: int
    over: bool


class AlfworldEnv(TextEnv):
    """A household task per episode, in text. Rules: docs/envs/alfworld.md."""

    knobs = GENERATED_KNOBS
    ranges = {"dense": (0.0, 1.0)}
    levels = {level: knobs for level, (_, knobs) in LEVELS.items()}
    experts = ("", "partial")
    instructions = INSTRUCTIONS.format(put=PUT["2.1.1"])
    tools = TOOLS["2.1.1"]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        settings = self.settings
        self._style = OBSERVATIONS[settings.observation]
        self._plain = settings.observation == "raw" and not settings.list_commands
        self._files: list[data.GameFile] = []
        self._epoch: list[int] | None = None
        if settings.games == GENERATED:
            if settings.numbers == "drawn" and settings.engine == "textworld":
                raise UsageError(
                    "The textworld engine numbers things itself: use numbers=consecutive, or engine=native."
                )
            package_folder()  # generating games reads its files: download it now if it is missing
            self._generator = _generator_settings(vars(settings))
        else:
            self._files = _official_files(vars(settings))
        self._stock: StockEngine | None = None
        self._native: NativeEngine | None = None
        self._subgoals: SubgoalTracker | None = None
        self._answer: EngineReply  # of the stock engine
        if settings.engine == "textworld":
            self._stock = StockEngine()

    @classmethod
    def needs_process(cls, settings: dict[str, Any]) -> bool:
        return bool(settings["engine"] == "textworld")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts the game of `seed`; without a seed, official games are played once per epoch.

        Each epoch is a new random order, which the last seed passed to `reset` determines.
        """
        if seed is not None:
            self._epoch = None
        elif self._files:
            return self._reset_in_epoch(options)
        return super().reset(seed=seed, options=options)

    def _reset_in_epoch(self, options: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        if self._epoch is None:
            self._epoch_rng = np.random.default_rng(int(self.np_random.integers(2**31)))
        if not self._epoch:
            self._epoch = self._epoch_rng.permutation(len(self._files)).tolist()
        return super().reset(seed=self._epoch.pop(), options=options)

    # ---- an episode

    def _reset(self, seed: int) -> str:
        source = self._source = self._find_game(seed)
        self._native = NativeEngine(source.game) if source.game is not None else None
        self._subgoals = SubgoalTracker(source.game) if source.game is not None else None
        self._plan: list[str] = []
        self._commands: list[str] = []
        self._partial_expert: PartialExpert | None = None
        self._start_state: GameState | None = None  # None: the start of the game
        if self.settings.engine == "textworld" or self._native is None:
            if self._stock is None:
                warnings.warn(
                    f"{source.name}: the native engine cannot read this game, so the slow textworld engine plays it.",
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
        self.instructions, self.tools = INSTRUCTIONS.format(put=PUT[self.dialect]), TOOLS[self.dialect]
        return self._render_observation(feedback)

    def _act(self, command: str) -> Outcome:
        self._commands.append(command)
        if self._stock is None:
            assert self._native is not None
            return self._outcome(self._native.act(command))
        self._update_plan(command.strip())
        self._answer = self._stock.step(command)
        if self._native is not None:
            self._native.step(command)
        return self._outcome(self._answer.feedback)

    def _outcome(self, feedback: str) -> Outcome:
        native, subgoals = self._native, self._subgoals
        won = self.won = self._answer.won if native is None or self._stock is not None else native.won
        if native is None or subgoals is None:
            reward = progression = float(won)
        else:
            reward = subgoals.update(native, feedback)
            progression = subgoals.value
        text = feedback if self._plain else self._render_observation(feedback, self.turn + 1)
        return Outcome(text, reward, won, won, feedback != NOTHING_HAPPENS, progression)

    def _render_observation(self, feedback: str, turn: int = 0) -> str:
        commands = self.admissible() if self.settings.list_commands else None
        return self._style(feedback, turn, self.objective, commands)

    def _find_game(self, seed: int) -> GameSource:
        with_text = self.settings.engine == "textworld"
        if not self._files:
            generated = _generated(seed, self._generator)
            return GameSource(generated.name, generated.name, generated.text if with_text else "", generated.game)
        file = self._files[seed % len(self._files)]
        return _official(file.name, file.path, file.digest, self.settings.dialect, with_text)

    # ---- information and experts

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
            "lost": False,  # as in the stock engine: ALFWorld games are never lost
            "score": int(self.won),
            "extra.gamefile": self._source.file,
            "dead_end": self.dead_end,
        }

    @property
    def dead_end(self) -> bool:
        """True if the object in hand can never be put down and the task needs another one."""
        native = self._native
        return native is not None and native.dead_end

    def expert(self, kind: str = "") -> str | None:
        """Returns the expert's next command.

        The default expert is the exact solver, or Fast Downward for games the solver cannot read
        and with engine=textworld. `partial` is an expert that knows only what this episode has
        shown (`partial.py`).
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
        if self._partial_expert is None:
            if self._source.game is None:
                raise UsageError(f"{self._source.name}: the expert `partial` needs the native engine.")
            self._partial_expert = PartialExpert(self._source.game, self._start_state)
        self._partial_expert.follow(self._commands)
        return self._partial_expert.next_command()

    def _update_plan(self, command: str) -> None:
        """Drops the current plan if a command leaves it; commands without effect do not."""
        if self._plan and self._plan[0] == command:
            del self._plan[0]
        elif command in self._answer.admissible:
            self._plan = []

    def blind_script(self) -> list[str]:
        return blind_commands(self.objective, PUT[self.dialect], getattr(self.settings, "hidden", -1.0))

    def remaining(self) -> int | None:
        if self._native is None:
            raise UsageError(
                f"{self._source.name}: the exact solver cannot read this game: use sparse or dense rewards."
            )
        return solver.remaining(self._native.game, self._native.get_state())

    def get_state(self) -> SavedEpisode:
        native, subgoals = self._state_of_episode("save")
        return SavedEpisode(self._source.name, native.get_state(), subgoals.get_state(), self.turn, self._over)

    def set_state(self, state: SavedEpisode) -> None:
        native, subgoals = self._state_of_episode("restore")
        if state.name != self._source.name:
            raise UsageError(f"The state belongs to {state.name}, not to {self._source.name}: reset to its seed first.")
        native.set_state(state.state)
        self.won = self.success = native.won
        subgoals.set_state(state.marks, self.won)
        self.turn, self._over, self.progression = state.turn, state.over, subgoals.value
        self._commands = []  # those before the state are unknown
        self._partial_expert, self._start_state = None, state.state

    def _state_of_episode(self, verb: str) -> tuple[NativeEngine, SubgoalTracker]:
        """Returns what holds the state of the episode. Raises UsageError if there is none to save or restore."""
        if self._native is None and self._stock is None:
            raise UsageError("There is no episode yet: reset to the state's seed first.")
        if self._stock is not None or self._native is None or self._subgoals is None:
            raise UsageError(f"The textworld engine cannot {verb} a state: use engine=native.")
        return self._native, self._subgoals

    def close(self) -> None:
        if self._stock is not None:
            self._stock.close()
            self._stock = None


def _generator_settings(knobs: dict[str, Any]) -> GeneratorSettings:
    """Returns the generator's settings; `dialect=file` means the dialect of the published games."""
    dialect = DIALECTS[0] if knobs["dialect"] == "file" else knobs["dialect"]
    values = {knob.name: knobs[knob.name] for knob in GENERATOR_KNOBS}
    return GeneratorSettings(task_types=knobs["task_types"], dialect=dialect, **values)


def _official_files(knobs: dict[str, Any]) -> list[data.GameFile]:
    """Returns the official games in the order of their panel. Raises UsageError if there are none."""
    files = {game.name: game for game in data.games(knobs["games"], knobs["flagged"])}
    selected = [files[name] for name in data.panel(**knobs).games]
    if not selected:
        kind = "flagged unsolvable" if knobs["flagged"] else "solvable"
        raise UsageError(
            f"There are no {kind} games of {knobs['games']} of the types {', '.join(knobs['task_types'])} in "
            f"{data.data_folder()}: {data.DATA_HELP}."
        )
    return selected


def dialect_of(source: GameSource) -> str:
    """Returns the dialect of a game: '2.1.1' ('put a in/on b') or '0.4' ('move a to b')."""
    if source.game is not None:
        return "0.4" if source.game.sentences.put_command.startswith("move") else "2.1.1"
    return "0.4" if "move {o} to {r}" in json.loads(source.text)["grammar"] else "2.1.1"


@lru_cache(maxsize=128)
def _generated(seed: int, settings: GeneratorSettings) -> Any:
    return generate(seed, settings)


@lru_cache(maxsize=256)
def _official(name: str, path: Path, digest: str, dialect: str, with_text: bool) -> GameSource:
    """Loads an official game; `digest` is part of the cache key, so that a changed file is
    reloaded.
    """
    try:
        if dialect == "file" and not with_text:
            return GameSource(name, str(path), "", load_compiled(path, digest))
        text = _text(path, dialect)
        return GameSource(name, str(path), text if with_text else "", AlfworldGame.from_json(text, str(path)))
    except Unrecognised:
        return GameSource(name, str(path), _text(path, dialect), None)


def _text(path: Path, dialect: str) -> str:
    text = data.read_game(path)
    return text if dialect == "file" else remake(text, dialect)
