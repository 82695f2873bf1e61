"""TextWorld: find, carry, open and cook things by typing commands to a parser game.

Rooms contain objects, containers, supporters, doors and keys; the objective asks for one or more
quests (fetch this, put that there, eat the meal). Each command takes one turn, understood or not.

Rewards: `sparse` pays 1 when the game is won. `dense` pays the increase of the game's own score
(TextWorld's `score` is a running total). Each quest pays once, so no cycle of commands pays: the
dense rewards of an episode sum to its final score, at most `max_score` (1 in most custom games, 7
to 10 in `simple` with dense rewards, 3 to 17 in cooking). `shaped` adds potential differences from
the exact shortest plan, and raises an error if a game is too large for it. Taking the wrong object
(treasure hunter), or spoiling or eating an ingredient (cooking, simple), loses the game: the stop
reason is `failed`.

Challenges: `custom` (a house of any size), `simple` (one fixed house with the rewards of the
Practitioner's Guide), `cooking` (First TextWorld Problems), `treasure_hunter` and `coin_collector`
(mazes). `game=` plays your own Z-machine file, or a folder of them. Difficulty grows with more
rooms, longer quests, more distractors and higher levels.

Seeds are TextWorld's own: seed 17 of `TextWorld-w2-o3-q4-v0` is `tw-make custom --world-size 2
--nb-objects 3 --quest-length 4 --seed 17`. With `split_by=structure` (the levels) a seed below 40,000 stands for a test game, below 50,000 for a validation game, and others
for training games, and games of different splits never share a structure (`structure.py`). Games come from the
cache or are generated on reset.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.core import TURNS_LEFT, TextEnv
from envsuite.envs.textworld.blind import blind_commands, brief_goal_commands
from envsuite.envs.textworld.commands import REJECTION, UNLISTED_COMMANDS, clean, filter_commands
from envsuite.envs.textworld.engine.interpreter import UNKNOWN, Frame, Interpreter, Opening, generate_logic
from envsuite.envs.textworld.engine.planner import changing_facts
from envsuite.envs.textworld.game_cache import GENERATION_SECONDS, find_game, find_logic, story_path
from envsuite.envs.textworld.games import (
    SETTINGS,
    GameSpec,
    check_settings,
    game_spec,
    textworld_version,
)
from envsuite.envs.textworld.menu import LEVELS
from envsuite.envs.textworld.native.game import NativeGame, load_native
from envsuite.envs.textworld.observation import STYLES, opening_text
from envsuite.envs.textworld.story_files import SUFFIXES, check_story
from envsuite.errors import BadKnob, DataError, EngineFailure, UsageError
from envsuite.types import Knob, Outcome

PLAN_STATES = 150_000
"""Number of states searched for an exact plan, which takes a few seconds."""
PLAN_SECONDS = 120.0
OPEN_SECONDS = 60.0

GENERAL = """You are playing a text adventure: you read what you see and carry, and type one command per turn.
Commands are short and plain, for example:
look, inventory, examine <thing>, go <north|south|east|west>, open <thing>, close <thing>, take <thing>, \
take <thing> from <place>, drop <thing>, put <thing> on <place>, insert <thing> into <place>, \
unlock <thing> with <key>, lock <thing> with <key>, eat <food>."""
HINTS = {
    "custom": "Do what the objective asks for; things are often behind closed doors or inside containers.",
    "simple": "Do what the objective asks for. Do not eat the food before it is asked for.",
    "cooking": "Read the recipe with 'examine cookbook'. Further commands: cook <food> with <oven|stove|BBQ>, \
chop, slice or dice <food> with <knife>, prepare meal, eat meal. An oven roasts, a stove fries, a BBQ grills. \
Cooking or cutting in a way that the recipe does not ask for, or eating an ingredient, loses the game.",
    "treasure_hunter": "Find the object that is asked for and take it. Taking the other one loses the game.",
    "coin_collector": "Find the coin somewhere in the maze and take it.",
    "": "Do what the game asks for.",
}


class SavedGame(NamedTuple):
    """The value that `get_state` returns."""

    path: str
    interpreter: bytes
    frame: Frame
    game: GameSpec | None
    objective: str
    max_score: int | None
    labels: tuple[tuple[str, str], ...]
    played: tuple[str, ...] = ()
    native: Any = None
    """state of the native engine, if it played the game so far; `interpreter` is empty then"""


class TextWorld(TextEnv):
    """A text adventure, one game per episode. Rules: docs/envs/textworld.md."""

    isolate = True  # generating a game takes seconds; the engine runs in its own process
    knobs = (
        Knob("challenge", "custom", "kind of game", choices=tuple(SETTINGS)),
        Knob("game", "", "a .z8 file (with its .json), or a folder of them, instead of a generated game"),
        Knob(
            "split_by",
            "seed",
            "seed: the seed is TextWorld's own; structure: no game of test or valid has the structure of a game of train",
            choices=("seed", "structure"),
        ),
        Knob("world_size", 2, "custom: rooms", low=1, high=100),
        Knob("nb_objects", 3, "custom: objects, at least", low=0, high=200),
        Knob("quest_length", 4, "custom: number of commands in the quest", low=1, high=50),
        Knob("rewards", "dense", "simple: how many subgoals pay", choices=("dense", "balanced", "sparse")),
        Knob(
            "goal",
            "detailed",
            "custom: the objective states every command of the quest (detailed), or the last (brief); "
            "simple: every subgoal (detailed), the dinner only (brief), or nothing (none)",
            choices=("detailed", "brief", "none"),
        ),
        Knob("recipe", 1, "cooking: ingredients", low=1, high=5),
        Knob("take", 0, "cooking: number of ingredients to find, at most `recipe`", low=0, high=5),
        Knob("go", 1, "cooking: rooms", choices=(1, 6, 9, 12)),
        Knob("open", False, "cooking: doors and containers are closed"),
        Knob("cook", False, "cooking: ingredients must be cooked"),
        Knob("cut", False, "cooking: ingredients must be cut"),
        Knob("drop", False, "cooking: the inventory is limited"),
        Knob(
            "recipe_seed",
            0,
            "cooking: shuffles the recipe independently of the world; needs take",
            low=0,
            high=2**32 - 1,
        ),
        Knob(
            "foods",
            "all",
            "cooking: which ingredients, by the competition's split",
            choices=("all", "train", "valid", "test"),
        ),
        Knob("level", 5, "treasure_hunter: 1..30, coin_collector: 1..300", low=1, high=300),
        Knob(
            "observations",
            "compact",
            "compact: room, reply, inventory; raw: as the engine prints; guide: as in the Practitioner's Guide",
            choices=("compact", "raw", "guide"),
        ),
        Knob(
            "admissible",
            "filtered",
            "filtered: without commands that only look; whole: the engine's list",
            choices=("filtered", "whole"),
        ),
        Knob(
            "engine",
            "auto",
            "auto: listed commands without compiling, except in cooking, until a command needs the interpreter",
            choices=("auto", "interpreter"),
        ),
        TURNS_LEFT,
    )
    ranges = {"score": (0.0, 1.0)}
    levels = LEVELS
    experts = ("", "policy")
    """'': a shortest plan, or the engine's policy if the game is too large; 'policy': always the
    policy"""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        textworld_version()  # raises now if the package is missing
        settings = vars(self.settings)
        self.challenge: str = "" if settings["game"] else settings["challenge"]
        if self.challenge:
            own = SETTINGS[self.challenge]
            defaults = {name: default for group in SETTINGS.values() for name, default in group.items()}
            for name, default in defaults.items():
                if name not in own and settings[name] != default:
                    raise BadKnob(
                        f"Knob {name}={settings[name]!r} does not apply to challenge {self.challenge!r}, "
                        f"which has {', '.join(own)}."
                    )
            check_settings(self.challenge, {name: settings[name] for name in own})
        self.instructions = f"{GENERAL}\n{HINTS[self.challenge]}"
        self.interpreter = Interpreter()
        self.files = _story_files(settings["game"]) if settings["game"] else []
        self.native: NativeGame | None = None
        """the engine that plays without compiling; None once the interpreter has taken over"""
        self._played: list[str] = []
        self.game: GameSpec | None = None
        self.path: Path | None = None
        self.frame = Frame("")
        self.max_score: int | None = None
        self._labels: dict[str, str] = {}

    def _reset(self, seed: int) -> str:
        if self.files:
            self.path = self.files[seed % len(self.files)]
            digest = hashlib.sha256(self.path.read_bytes()).hexdigest()[:16]
            self._labels = {"task_type": "file", "instance": self.path.stem, "content": digest}
        else:
            own = {name: getattr(self.settings, name) for name in SETTINGS[self.challenge]}
            self.game = game_spec(self.challenge, own, seed, self.settings.split_by)
            self._labels = {"task_type": self.challenge, "instance": self.game.name}
            self.path = story_path(self.game)
        self._played, self.native = [], self._load_native()
        opening: Opening = self._open() if self.native is None else self.native.opening()
        self.frame, self.max_score = opening.frame, opening.max_score
        self.objective = " ".join(opening.objective.split()) or (
            "Find out what there is to do, and do it." if self.challenge else "Play the game as far as you can."
        )
        return opening_text(opening) if self.settings.observations == "compact" else self._text(self.frame)

    def _load_native(self) -> NativeGame | None:
        """Returns the game for the native engine at its start; None if it does not cover the game."""
        if self.game is None or self.challenge == "cooking" or self.settings.engine == "interpreter":
            return None
        return load_native(self._logic(), self.settings.observations != "raw")

    def _logic(self) -> Path:
        """Returns the .json file of a generated game, which is generated if necessary."""
        assert self.game is not None
        return find_logic(self.game) or Path(generate_logic(self.game, GENERATION_SECONDS))

    def _open(self) -> Opening:
        """Starts the game in the interpreter, and generates and compiles it if necessary."""
        if self.game is not None and find_game(self.game) is None:
            self.interpreter.ask("make", self.game, timeout=GENERATION_SECONDS)
        with_state = self.settings.observations != "raw"
        opening: Opening = self.interpreter.ask("open", str(self.path), with_state, timeout=OPEN_SECONDS)
        return opening

    def _use_interpreter(self) -> None:
        """Moves a game from the native engine to the interpreter, which repeats the commands so far."""
        if self.native is None:
            return
        frame = self._open().frame
        for command in self._played:
            frame = self.interpreter.ask("step", command)
        if frame != self.frame:
            raise EngineFailure(
                f"The native engine and the interpreter disagree on {self._labels['instance']} after "
                f"{self._played}: use engine=interpreter, and report it."
            )
        self.native = None

    def _send(self, command: str) -> Frame:
        """Plays a clean command in the native engine, or in the interpreter if it is not listed."""
        if self.native is not None:
            answer = self.native.step(command)
            if answer is not None:
                self._played.append(command)
                return answer
            self._use_interpreter()
        frame: Frame = self.interpreter.ask("step", command)
        return frame

    def _text(self, frame: Frame) -> str:
        """Returns the observation of a frame in the style of the knob `observations`."""
        return STYLES[self.settings.observations](frame)

    def _act(self, command: str) -> Outcome:
        sent, refusal = clean(command)
        if refusal:
            return Outcome(refusal, valid=False, progression=self._share())
        before = self.frame
        self.frame = frame = self._send(sent)
        return Outcome(
            text=self._text(frame),
            reward=float((frame.score or 0) - (before.score or 0)),
            done=frame.won or frame.lost,
            success=frame.won,
            valid=_was_valid(sent, before, frame),
            progression=self._share(),
        )

    def _share(self) -> float:
        if not self.max_score or self.frame.score is None:
            return float(self.frame.won)
        return min(1.0, max(0.0, self.frame.score / self.max_score))

    def admissible(self) -> list[str]:
        if self.frame.won or self.frame.lost:
            return []
        commands = self.frame.commands or []
        return filter_commands(commands) if self.settings.admissible == "filtered" else list(commands)

    def expert(self, kind: str = "") -> str | None:
        if kind not in self.experts:
            raise UsageError(f"TextWorld has no expert {kind!r}, only '' (shortest plan) and 'policy'.")
        if kind == "":
            remaining, command = self._plan()
            if remaining != UNKNOWN:
                return command
        self._use_interpreter()
        command_from_policy: str | None = self.interpreter.ask("policy", timeout=PLAN_SECONDS)
        return command_from_policy

    def blind_script(self) -> list[str]:
        if self.challenge == "custom" and self.settings.goal == "brief":
            return brief_goal_commands(self.objective, self.settings.max_steps)
        return blind_commands(self.objective)

    def remaining(self) -> int | None:
        """Returns the length of a shortest plan. Raises DataError if none can be computed."""
        remaining, _ = self._plan()
        if remaining == UNKNOWN:
            raise DataError(
                f"No exact plan for {self._labels['instance']} (its .json is missing, or it has more than "
                f"{PLAN_STATES:,} states), so shaped rewards are unavailable: use sparse or dense."
            )
        return remaining

    def _plan(self) -> tuple[int | None, str | None]:
        request: tuple[Any, ...] = ("plan",)
        if self.native is not None:
            done = sum(1 << number for number, is_done in enumerate(self.native.done) if is_done)
            request = ("plan_logic", str(self._logic()), changing_facts(self.native), done)
        plan: tuple[int | None, str | None] = self.interpreter.ask(*request, PLAN_STATES, timeout=PLAN_SECONDS)
        return plan

    def get_state(self) -> SavedGame:
        """Returns a snapshot: the memory of the interpreter or the native engine, the tracked logic, and the
        last frame.
        """
        native = None if self.native is None else self.native.get_state()
        state: bytes = b"" if self.native is not None else self.interpreter.ask("save")
        labels, played = tuple(self._labels.items()), tuple(self._played)
        return SavedGame(
            str(self.path), state, self.frame, self.game, self.objective, self.max_score, labels, played, native
        )

    def set_state(self, state: SavedGame) -> None:
        """Restores a snapshot, which may be of another game or from another environment of this task."""
        with_state = self.settings.observations != "raw"
        if state.native is None:
            self.interpreter.ask("load", state.path, with_state, state.interpreter, timeout=OPEN_SECONDS)
        self.path, self.frame, self.game = Path(state.path), state.frame, state.game
        self.objective, self.max_score, self._labels = state.objective, state.max_score, dict(state.labels)
        self._played, self.native = list(state.played), None
        if state.native is not None:
            self.native = native = load_native(self._logic(), with_state)
            if native is None:
                raise DataError(f"Game {state.path} is damaged: remove its folder, and start the episode again.")
            native.set_state(state.native)

    def labels(self) -> dict[str, str]:
        return dict(self._labels)

    def metrics(self) -> dict[str, float]:
        """Returns `score`, the share of the maximum as in BALROG (1 if won), and the engine's own
        score.
        """
        return {"score": max(self._share(), float(self.frame.won)), "raw_score": float(self.frame.score or 0)}

    def extra_info(self) -> dict[str, Any]:
        return {
            "won": self.frame.won,
            "lost": self.frame.lost,
            "score": self.frame.score,
            "max_score": self.max_score,
            "moves": self.frame.moves,
            "extra.gamefile": str(self.path),
        }

    def close(self) -> None:
        self.interpreter.close()


def _was_valid(command: str, before: Frame, after: Frame) -> bool:
    if before.commands is None:  # a game without a .json file
        return not REJECTION.search(after.feedback)
    listed = command in {known.lower() for known in before.commands}
    return listed or command in UNLISTED_COMMANDS or (after.moves or 0) > (before.moves or 0)


def _story_files(game: str) -> list[Path]:
    """Returns the story file at a path, or those in a folder sorted by name. Raises DataError."""
    path = Path(game).expanduser().absolute()
    if not path.is_dir():
        if not path.exists():
            raise DataError(f"Game {path} does not exist: check the path (tw-make writes .z8 files).")
        check_story(path)
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
    if not files:
        raise DataError(f"Folder {path} contains no Z-machine files (.z8): check the path.")
    for file in files:
        check_story(file)
    return files
