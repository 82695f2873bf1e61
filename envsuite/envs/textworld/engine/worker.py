"""The worker process of `interpreter`, in which textworld runs.

Its arguments are the number of the pipe, the parent's process id and a temporary folder. Requests
are tuples (name, *arguments); answers are ("ok", value), ("frame", *fields) or ("raise", class
name, message). A frame is sent by its fields, because pickling the class takes longer than all the
rest.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envsuite.envs.textworld.engine.ambiguous_names import resolve_ambiguity
from envsuite.envs.textworld.engine.interpreter import UNKNOWN, Frame, Opening
from envsuite.envs.textworld.engine.pipe import Pipe
from envsuite.errors import DataError, EnvsuiteError

if TYPE_CHECKING:
    from textworld.generator.game import Game

    from envsuite.envs.textworld.engine.planner import QuestPlanner
    from envsuite.envs.textworld.engine.tracker import TrackedGame, UntrackedGame
    from envsuite.envs.textworld.games import GameSpec

Fact = tuple[str, ...]
"""A name and the keys of entities, such as ("in", "k_0", "I")."""


class GameSession:
    """Plays one game at a time and answers the requests of the client."""

    def __init__(self) -> None:
        self.path: str | None = None
        self.with_inventory = False
        self.story: TrackedGame | UntrackedGame | None = None
        self.played: list[str] = []
        self.facts: list[frozenset[Any]] = []  # the facts at the start, and after each command
        self.reply = ""
        self._planner: QuestPlanner | None = None
        self._logic: tuple[str, Game, QuestPlanner] | None = None  # of the game that is planned without a story file
        self._done = 0  # quests completed so far, for the planner
        self._seen = 0  # number of entries of `facts` included in `_done`

    def make(self, spec: GameSpec) -> str:
        """Generates a game into the cache and returns its path."""
        from envsuite.envs.textworld.game_cache import ensure_game

        return str(ensure_game(spec))

    def make_logic(self, spec: GameSpec) -> str:
        """Generates a game into the cache without compiling it, and returns the path of its .json file."""
        from envsuite.envs.textworld.game_cache import ensure_logic

        return str(ensure_logic(spec))

    def open(self, path: str, inventory: bool) -> Opening:
        """Starts a game from its beginning."""
        fresh = self.path != path or self.with_inventory != inventory
        if fresh:
            self._load(path, inventory)
        assert self.story is not None
        self.played, self.facts = [], []
        self._done = self._seen = 0
        frame = self._record(self.story.reset())
        game = self.story.game
        if game is None:
            return Opening(frame, "", None)
        expected = (f"-= {frame.room} =-", game.objective)
        if fresh and not all(_mentions(frame.feedback, phrase) for phrase in expected):
            self.path = None
            raise DataError(
                f"Game {path} starts in another room, or has another objective, than its .json file says: "
                f"that file belongs to another game; replace or remove it."
            )
        return Opening(frame, game.objective, int(game.max_score))

    def _load(self, path: str, inventory: bool) -> None:
        from envsuite.envs.textworld.engine.patches import apply_patches
        from envsuite.envs.textworld.engine.tracker import TrackedGame, UntrackedGame
        from envsuite.envs.textworld.story_files import check_story

        apply_patches()
        self.path, self._planner = None, None
        if self.story is not None:
            self.story.close()
            self.story = None
        check_story(Path(path))
        try:
            if path.endswith(".z8") and Path(path).with_suffix(".json").is_file():
                self.story = TrackedGame(path, inventory)
            else:
                self.story = UntrackedGame(path)
        except Exception as error:
            raise DataError(
                f"Game {path} does not start ({type(error).__name__}: {str(error)[:120]}): "
                f"its .json file is damaged or belongs to another game; generate both again, or remove the .json file."
            ) from error
        self.path, self.with_inventory = path, inventory

    def step(self, command: str) -> Frame:
        """Sends one command, which must have passed `commands.clean`."""
        assert self.story is not None
        frame = self.story.step(command)
        self.played.append(command)
        return self._record(frame)

    def save(self) -> bytes:
        """Returns the present state of the game for `load`."""
        from envsuite.envs.textworld.engine.tracker import pack_facts

        assert self.story is not None
        state = self.story.get_state(), self.played, pack_facts(self.facts), self.reply, self._done, self._seen
        return pickle.dumps(state, pickle.HIGHEST_PROTOCOL)

    def load(self, path: str, inventory: bool, state: bytes) -> None:
        """Restores a state that `save` returned in this or another worker on the same machine."""
        if self.path != path or self.with_inventory != inventory:
            self._load(path, inventory)
        from envsuite.envs.textworld.engine.tracker import unpack_facts

        assert self.story is not None
        self.story.reset()
        story, self.played, facts, self.reply, self._done, self._seen = pickle.loads(state)
        self.facts = unpack_facts(facts)
        self.story.set_state(story)

    def _record(self, frame: Frame) -> Frame:
        assert self.story is not None
        self.facts.append(self.story.facts)
        self.reply = frame.feedback
        return frame

    def policy(self) -> str | None:
        """Returns the first command of the engine's winning policy, which is not the shortest, or
        None.
        """
        assert self.story is not None
        commands = self.story.policy()
        return self._resolve(commands[0]) if commands else None

    def _resolve(self, command: str) -> str:
        """Rephrases an expert's command so that the interpreter understands it."""
        assert self.story is not None and self.story.game is not None
        return resolve_ambiguity(command, self.facts[-1], self.story.game.infos, self.played, self.reply)

    def plan(self, states: int) -> tuple[int | None, str | None]:
        """Returns (length of a shortest plan, its first command).

        (None, None) means that the game is lost. (UNKNOWN, None) means that the game has no .json
        file, or that the search reached the limit of `states`.
        """
        from envsuite.envs.textworld.engine.planner import QuestPlanner, SearchLimitReached

        assert self.story is not None
        if self.story.game is None:
            return UNKNOWN, None
        if self._planner is None:
            self._planner = QuestPlanner(self.story.game, states)
        for facts in self.facts[self._seen :]:
            self._done = self._planner.quests_done(facts, self._done)
        self._seen = len(self.facts)
        try:
            remaining, command = self._planner.plan(self.facts[-1], self._done)
        except SearchLimitReached:
            return UNKNOWN, None
        return remaining, None if command is None else self._resolve(command)

    def plan_logic(self, path: str, facts: list[Fact], done: int, states: int) -> tuple[int | None, str | None]:
        """Returns the same as `plan` for a game of which only the .json file may exist.

        `facts` are the changeable ones, and `done` the quests completed so far.
        """
        from textworld.generator.game import Game

        from envsuite.envs.textworld.engine.patches import apply_patches
        from envsuite.envs.textworld.engine.planner import QuestPlanner, SearchLimitReached, all_facts

        apply_patches()
        if self._logic is None or self._logic[0] != path:
            game = Game.load(path)
            self._logic = path, game, QuestPlanner(game, states)
        _, game, planner = self._logic
        now = all_facts(game, facts)
        try:
            remaining, command = planner.plan(now, done)
        except SearchLimitReached:
            return UNKNOWN, None
        return remaining, None if command is None else resolve_ambiguity(command, now, game.infos, (), "")


def _mentions(text: str, phrase: str) -> bool:
    """Tests whether `phrase` is in the interpreter's text, ignoring blanks, punctuation and case."""

    def letters(words: str) -> str:
        return "".join(char for char in words.lower() if char.isascii() and char.isalnum())

    return letters(phrase) in letters(text)


def serve(pipe: Pipe) -> None:
    """Answers requests until the client closes the pipe."""
    try:
        import textworld  # noqa: F401  import it before the first request, because it takes a second
    except ModuleNotFoundError as error:
        pipe.send(("raise", "ModuleNotFoundError", str(error)))
        return
    table = GameSession()
    pipe.send(("ok", None))
    while True:
        name, *arguments = pipe.receive()
        try:
            answer = getattr(table, name)(*arguments)
            pipe.send(("frame", *answer) if isinstance(answer, Frame) else ("ok", answer))
        except EnvsuiteError as error:
            pipe.send(("raise", type(error).__name__, str(error)))
        except ModuleNotFoundError as error:
            pipe.send(("raise", "ModuleNotFoundError", str(error)))
        except Exception as error:
            pipe.send(("raise", "EngineFailure", f"TextWorld failed at {name!r}: {type(error).__name__}: {error}"))


def clean_up_and_exit(folder: Path) -> None:
    """Removes the folder and kills the process group, as the client does in `interpreter._release`."""
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def exit_with_parent(parent: int, folder: Path) -> None:
    """Waits for the parent to die; a worker busy with an endless game would not notice the closed
    pipe.
    """
    while os.getppid() == parent:
        time.sleep(1.0)
    clean_up_and_exit(folder)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    warnings.simplefilter("ignore")
    temporary_folder = Path(sys.argv[3])
    threading.Thread(target=exit_with_parent, args=(int(sys.argv[2]), temporary_folder), daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        serve(Pipe(int(sys.argv[1])))
    clean_up_and_exit(temporary_folder)
