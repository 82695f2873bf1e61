"""The other side of `interpreter`: the process in which textworld runs. Started with the pipe's number, the other side's process and the
folder made for it.

Requests are tuples (name, *arguments), answers ("ok", value), ("frame", *fields) or ("raise", class name, message). A frame
goes by its fields: pickled whole, it would name its class, and finding that takes longer than all the rest.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envsuite.envs.textworld.interpreter import UNKNOWN, Frame, Opening
from envsuite.envs.textworld.names import spelled
from envsuite.envs.textworld.pipe import Pipe
from envsuite.errors import DataError, EnvsuiteError

if TYPE_CHECKING:
    from envsuite.envs.textworld.games import GameSpec
    from envsuite.envs.textworld.planner import Planner
    from envsuite.envs.textworld.tracker import Tracked, Untracked


class Table:
    """One game at a time."""

    def __init__(self) -> None:
        self.path: str | None = None
        self.with_inventory = False
        self.story: Tracked | Untracked | None = None
        self.played: list[str] = []
        self.facts: list[frozenset[Any]] = []  # the facts at the start, and after each command
        self.reply = ""
        self._planner: Planner | None = None
        self._done = 0  # quests completed, for the planner
        self._seen = 0  # how many of `facts` went into that

    def make(self, spec: GameSpec) -> str:
        """Generates a game into the cache; its path."""
        from envsuite.envs.textworld.store import ensure_game

        return str(ensure_game(spec))

    def open(self, path: str, inventory: bool) -> Opening:
        """Starts a game from its beginning."""
        fresh = self.path != path or self.with_inventory != inventory
        if fresh:
            self._load(path, inventory)
        assert self.story is not None
        self.played, self.facts = [], []
        self._done = self._seen = 0
        frame = self._noted(self.story.reset())
        game = self.story.game
        if game is None:
            return Opening(frame, "", None)
        told = (f"-= {frame.room} =-", game.objective)
        if fresh and not all(_tells(frame.feedback, what) for what in told):
            self.path = None
            raise DataError(
                f"Game {path} opens elsewhere, or asks for other things, than the .json beside it says: that one is another "
                f"game's; put its own there, or take it away."
            )
        return Opening(frame, game.objective, int(game.max_score))

    def _load(self, path: str, inventory: bool) -> None:
        from envsuite.envs.textworld.hasten import hasten
        from envsuite.envs.textworld.story import check_story
        from envsuite.envs.textworld.tracker import Tracked, Untracked

        hasten()
        self.path, self._planner = None, None
        if self.story is not None:
            self.story.close()
            self.story = None
        check_story(Path(path))
        try:
            if path.endswith(".z8") and Path(path).with_suffix(".json").is_file():
                self.story = Tracked(path, inventory)
            else:
                self.story = Untracked(path)
        except Exception as error:
            raise DataError(
                f"Game {path} does not start ({type(error).__name__}: {str(error)[:120]}): "
                f"the .json beside it is damaged or another game's; generate both anew, or take the .json away."
            ) from error
        self.path, self.with_inventory = path, inventory

    def step(self, command: str) -> Frame:
        """Sends one command, which must have been cleaned."""
        assert self.story is not None
        frame = self.story.step(command)
        self.played.append(command)
        return self._noted(frame)

    def _noted(self, frame: Frame) -> Frame:
        assert self.story is not None
        self.facts.append(self.story.facts)
        self.reply = frame.feedback
        return frame

    def policy(self) -> str | None:
        """The first command of the engine's winning policy, which wins but is not the shortest; None without one."""
        assert self.story is not None
        commands = self.story.policy()
        return self._spelled(commands[0]) if commands else None

    def _spelled(self, command: str) -> str:
        """An expert's command as the interpreter understands it."""
        assert self.story is not None and self.story.game is not None
        return spelled(command, self.facts[-1], self.story.game.infos, self.played, self.reply)

    def plan(self, states: int) -> tuple[int | None, str | None]:
        """(commands to go, the first of them); (None, None) where all is lost, (UNKNOWN, None) where nothing is known.

        Nothing is known of a game without .json, and where `states` states did not hold an end.
        """
        from envsuite.envs.textworld.planner import Planner, TooLarge

        assert self.story is not None
        if self.story.game is None:
            return UNKNOWN, None
        if self._planner is None:
            self._planner = Planner(self.story.game, states)
        for facts in self.facts[self._seen :]:
            self._done = self._planner.quests_done(facts, self._done)
        self._seen = len(self.facts)
        try:
            remaining, command = self._planner.plan(self.facts[-1], self._done)
        except TooLarge:
            return UNKNOWN, None
        return remaining, None if command is None else self._spelled(command)


def _tells(text: str, what: str) -> bool:
    """Whether `what` is in the interpreter's text, which has its own ways with blanks, quotes and capitals."""
    plain = lambda some: "".join(char for char in some.lower() if char.isascii() and char.isalnum())
    return plain(what) in plain(text)


def serve(pipe: Pipe) -> None:
    """Answers requests until the other side is gone."""
    try:
        import textworld  # noqa: F401  the second that takes is spent before the first request
    except ModuleNotFoundError as error:
        pipe.send(("raise", "ModuleNotFoundError", str(error)))
        return
    table = Table()
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
            pipe.send(("raise", "EngineFailure", f"TextWorld broke at {name!r}: {type(error).__name__}: {error}"))


def leave(folder: Path) -> None:
    """What the other side does (`interpreter._release`), where it was killed outright: its folder and its group go."""
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def leave_with(parent: int, folder: Path) -> None:
    """Waits until the other side is gone: a worker in the middle of a game that never gets done hears of no pipe closed."""
    while os.getppid() == parent:
        time.sleep(1.0)
    leave(folder)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    warnings.simplefilter("ignore")
    own = Path(sys.argv[3])
    threading.Thread(target=leave_with, args=(int(sys.argv[2]), own), daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        serve(Pipe(int(sys.argv[1])))
    leave(own)
