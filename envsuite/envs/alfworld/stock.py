"""ALFWorld's own engine: textworld's PDDL environment on Fast Downward.

It is slow (a second to load a game, 50 ms per step) and not thread-safe: its translator keeps
options in module globals, overwrites `sys.argv` and replaces `sys.stdout`. This wrapper restores
both and refuses calls from any thread but the main one. Each engine holds a copy of Fast Downward's
34 MB library across games; `close` returns it to a pool for the next engine of the process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from envsuite.cache import cache_dir, write_atomically
from envsuite.envs.alfworld.games.problem import display_names
from envsuite.errors import DataError, EngineFailure, MissingExtra

_idle: list[Any] = []
"""Pool of unused environments.

The library cannot be unloaded, because its exit handler would crash the process."""


class EngineReply(NamedTuple):
    """Reply of an engine: feedback, all admissible commands, and whether the game is won."""

    feedback: str
    admissible: list[str]
    won: bool


class StockEngine:
    """Plays one game at a time; call `load` before `reset`."""

    def __init__(self) -> None:
        with _guarded():
            try:
                import textworld
                from textworld.envs.pddl import PddlEnv
            except ModuleNotFoundError as error:
                raise MissingExtra(
                    f"engine=textworld needs the package {error.name!r}: pip install 'envsuite[alfworld-stock]', or "
                    "use engine=native."
                ) from error
            self._env: Any = _idle.pop() if _idle else PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True))
        self._loaded = False
        self._digest = ""

    def load(self, game: Mapping[str, Any], name: str) -> None:
        """Loads the fields of a game file. Raises DataError if the engine cannot load the game."""
        self._loaded = False
        try:
            with _guarded():
                self._env.load(game)
        except KeyError as error:
            if error.args == ("val1",):  # raised by Fast Downward's translator if the goal is unreachable
                raise DataError(
                    f"Game {name}: its goal is unreachable, and the textworld engine cannot load such games: "
                    "use engine=native."
                ) from error
            raise self._unreadable(name, error) from error
        except EngineFailure:
            raise
        except (Exception, SystemExit) as error:  # the translator exits on a syntax error
            raise self._unreadable(name, error) from error
        entities = self._env._entity_infos
        for entity, name_shown in display_names(list(entities)).items():
            entities[entity].name = name_shown
        logic = [game["pddl_domain"], game["grammar"], game["pddl_problem"]]
        self._digest = hashlib.sha256(json.dumps(logic).encode()).hexdigest()
        self._loaded = True

    def reset(self) -> EngineReply:
        with _guarded():
            assert self._loaded, "call load() before reset()"
            state = self._env.reset()
        return EngineReply(state.feedback, state["admissible_commands"], bool(state["won"]))

    def step(self, command: str) -> EngineReply:
        """Executes a command; inadmissible ones change nothing and return 'Nothing happens.'."""
        with _guarded():
            state, _, _ = self._env.step(command)
        return EngineReply(state.feedback, state["admissible_commands"], bool(state["won"]))

    def opening_plan(self) -> list[str]:
        """Returns Fast Downward's plan for a game just reset, from the disk cache if possible."""
        path = cache_dir("alfworld", "plans") / f"{self._digest}.json"
        with contextlib.suppress(OSError, ValueError):
            plan = json.loads(path.read_text())
            if isinstance(plan, list) and all(isinstance(word, str) for word in plan):
                return plan
        plan = self.plan()
        write_atomically(path, json.dumps(plan))
        return plan

    def plan(self) -> list[str]:
        """Returns Fast Downward's plan from the current state, or [] (takes 0.01 to 15 s)."""
        with _guarded():
            return list(self._env._pddl_state.replan(self._env._entity_infos))

    def close(self) -> None:
        """Returns the library to the pool; the engine cannot be used afterwards."""
        if self._env is not None:
            _idle.append(self._env)
            self._env = None

    def _unreadable(self, name: str, error: BaseException) -> DataError:
        return DataError(f"Game {name}: the textworld engine cannot read it ({type(error).__name__}: {error}).")


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        raise EngineFailure("The textworld engine must not run in threads: use worker processes, or engine=native.")
    argv, stdout = sys.argv, sys.stdout
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.argv, sys.stdout = argv, stdout
