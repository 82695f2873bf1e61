"""The other side of `interpreter`: the process in which textworld runs. Started with the pipe's number, the other side's process and the
folder made for it.

Requests are tuples (name, *arguments), answers ("ok", value) or ("raise", class name, message).
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
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envsuite.envs.textworld.interpreter import UNKNOWN, Frame, Opening
from envsuite.envs.textworld.names import spelled
from envsuite.errors import DataError, EngineFailure, EnvsuiteError

if TYPE_CHECKING:
    from envsuite.envs.textworld.games import GameSpec
    from envsuite.envs.textworld.planner import Planner

WON, LOST = "*** The End ***", "*** You lost! ***"  # the banners of generated games
HALTED = "Emulator halted"  # what jericho says in a game's place


class Table:
    """One game at a time, its state tracked."""

    def __init__(self) -> None:
        self.path: str | None = None
        self.with_inventory = self.with_policy = False
        self.env: Any = None
        self.game: Any = None  # what the .json says; None where there is none
        self.state: Any = None
        self.rooms: dict[str, str] = {}
        self.played: list[str] = []
        self.facts: list[Any] = []  # the facts at the start, and after each command
        self._planner: Planner | None = None
        self._done = 0  # quests completed, for the planner
        self._seen = 0  # how many of `facts` went into that

    def make(self, spec: GameSpec) -> str:
        """Generates a game into the cache; its path."""
        from envsuite.envs.textworld.store import ensure_game

        return str(ensure_game(spec))

    def open(self, path: str, inventory: bool) -> Opening:
        """Starts a game from its beginning."""
        if self.path != path or self.with_inventory != inventory:
            self._load(path, inventory)
        self.state = self.env.reset()
        self.played, self.facts = [], []
        self._done = self._seen = 0
        frame = self._frame()
        if self.game is None:
            return Opening(frame, "", None)
        if not _tells(frame.feedback, f"-= {frame.room} =-") or not _tells(frame.feedback, self.game.objective):
            self.path = None
            raise DataError(
                f"Game {path} opens elsewhere, or asks for other things, than the .json beside it says: that one is another "
                f"game's; put its own there, or take it away."
            )
        return Opening(frame, self.game.objective, int(self.game.max_score))

    def _load(self, path: str, inventory: bool) -> None:
        import textworld

        from envsuite.envs.textworld.hasten import hasten
        from envsuite.envs.textworld.story import check_story
        from envsuite.envs.textworld.tracking import track_other_words

        hasten()
        track_other_words()

        self.path, self.game, self._planner = None, None, None
        if self.env is not None:
            self.env.close()
            self.env = None
        check_story(Path(path))
        infos = textworld.EnvInfos()  # a game of unknown make gives text, and a score where jericho knows it
        if path.endswith(".z8") and Path(path).with_suffix(".json").is_file():
            infos = textworld.EnvInfos(
                admissible_commands=True, moves=True, inventory=inventory, policy_commands=self.with_policy
            )
        try:
            self.env = textworld.start(path, infos)
            self.game = _game_of(self.env)
            self.rooms = {key: info.name for key, info in self.game.infos.items()} if self.game else {}
        except Exception as error:
            raise DataError(
                f"Game {path} does not start ({type(error).__name__}: {str(error)[:120]}): "
                f"the .json beside it is damaged or another game's; generate both anew, or take the .json away."
            ) from error
        self.path, self.with_inventory = path, inventory

    def step(self, command: str) -> Frame:
        """Sends one command, which must have been cleaned."""
        self.state, _, _ = self.env.step(command)
        self.played.append(command)
        return self._frame()

    def _frame(self) -> Frame:
        state = self.state
        feedback: str = state["feedback"]
        if self.game is None:
            if not feedback.strip() or feedback.startswith(HALTED):
                raise EngineFailure(f"The interpreter cannot go on with {self.path}: the file is damaged; get it anew.")
            won = bool(state.get("won")) or WON in feedback
            lost = not won and (bool(state.get("lost")) or LOST in feedback or bool(state.get("done")))
            return Frame(feedback, score=state.get("score"), moves=state.get("moves"), won=won, lost=lost)
        facts = state["_facts"]
        self.facts.append(facts)
        room = next(
            (fact.arguments[1].name for fact in facts if fact.name == "at" and fact.arguments[0].name == "P"), ""
        )
        return Frame(
            feedback,
            self.rooms.get(room),
            state["inventory"] if self.with_inventory else None,
            state["score"],
            state["moves"],
            state["won"],
            state["lost"],
            state["admissible_commands"],
        )

    def policy(self) -> str | None:
        """The first command of the engine's winning policy, which wins but is not the shortest; None without one."""
        if self.game is None:
            return None
        if not self.with_policy:  # tracking it costs as much as all the rest, so it waits until somebody asks
            assert self.path is not None
            self.with_policy = True
            path, played, self.path = self.path, self.played, None
            self.open(path, self.with_inventory)
            for command in played:
                self.step(command)
        commands = self.state.get("policy_commands")
        return self._spelled(commands[0]) if commands else None

    def _spelled(self, command: str) -> str:
        """An expert's command as the interpreter understands it."""
        return spelled(command, self.facts[-1], self.game.infos, self.played, self.state["feedback"])

    def plan(self, states: int) -> tuple[int | None, str | None]:
        """(commands to go, the first of them); (None, None) where all is lost, (UNKNOWN, None) where nothing is known.

        Nothing is known of a game without .json, and where `states` states did not hold an end.
        """
        from envsuite.envs.textworld.planner import Planner, TooLarge

        if self.game is None:
            return UNKNOWN, None
        if self._planner is None:
            self._planner = Planner(self.game, states)
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


def _game_of(env: Any) -> Any:
    """The parsed .json, which the wrappers hold."""
    while env is not None:
        game = getattr(env, "_game", None)
        if game is not None:
            return game
        env = getattr(env, "_wrapped_env", None)
    return None


def serve(pipe: Connection) -> None:
    """Answers requests until the other side is gone."""
    try:
        import textworld  # noqa: F401  the second that takes is spent before the first request
    except ModuleNotFoundError as error:
        pipe.send(("raise", "ModuleNotFoundError", str(error)))
        return
    table = Table()
    pipe.send(("ok", None))
    while True:
        name, *arguments = pickle.loads(pipe.recv_bytes())
        try:
            answer = getattr(table, name)(*arguments)
            pipe.send_bytes(pickle.dumps(("ok", answer), pickle.HIGHEST_PROTOCOL))
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
        serve(Connection(int(sys.argv[1])))
    leave(own)
