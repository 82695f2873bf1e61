"""The engine ALFWorld itself uses (textworld's PDDL environment on Fast Downward), behind the seam.

Slow (a second to load, 50 ms a step) and not fit for threads: its translator keeps options in module globals, overwrites
`sys.argv` and swaps `sys.stdout`. Here both are put back, and a call from any thread but the main one is refused. Each
engine holds a copy of Fast Downward's 34 MB library from game to game; `close` leaves it to the process's next engine.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from envsuite.cache import cache_dir, write_atomically
from envsuite.envs.alfworld.problem import spoken_names
from envsuite.envs.alfworld.seam import Answer
from envsuite.errors import DataError, EngineFailure

_idle: list[Any] = []
"""Environments no engine holds. The library cannot be unloaded: it leaves an exit handler that would crash the process."""


class StockEngine:
    """Plays one game at a time; `load` before `reset`."""

    def __init__(self) -> None:
        with _guarded():
            import textworld
            from textworld.envs.pddl import PddlEnv

            self._env: Any = _idle.pop() if _idle else PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True))
        self._loaded = False
        self._digest = ""

    def load(self, game: Mapping[str, Any], name: str) -> None:
        """Takes the fields of a `game.tw-pddl`. Raises DataError, naming the game, where this engine cannot load it."""
        self._loaded = False
        try:
            with _guarded():
                self._env.load(game)
        except KeyError as error:
            if error.args == ("val1",):  # what Fast Downward's translation of an unreachable goal ends in
                raise DataError(
                    f"Game {name}: its goal cannot be reached, and such games the textworld engine cannot load: "
                    "use engine=native."
                ) from error
            raise self._unreadable(name, error) from error
        except EngineFailure:
            raise
        except (Exception, SystemExit) as error:  # the translator exits on a syntax error
            raise self._unreadable(name, error) from error
        entities = self._env._entity_infos
        for entity, spoken in spoken_names(list(entities)).items():
            entities[entity].name = spoken
        logic = [game["pddl_domain"], game["grammar"], game["pddl_problem"]]
        self._digest = hashlib.sha256(json.dumps(logic).encode()).hexdigest()
        self._loaded = True

    def reset(self) -> Answer:
        assert self._loaded, "load() comes before reset()"
        with _guarded():
            state = self._env.reset()
        return Answer(state.feedback, state["admissible_commands"], bool(state["won"]))

    def step(self, command: str) -> Answer:
        """Does `command`; what is not admissible is answered 'Nothing happens.' and changes nothing."""
        with _guarded():
            state, _, _ = self._env.step(command)
        return Answer(state.feedback, state["admissible_commands"], bool(state["won"]))

    def opening_plan(self) -> list[str]:
        """Fast Downward's plan for the game just reset, from the disk where it was made before."""
        path = cache_dir("alfworld", "plans") / f"{self._digest}.json"
        with contextlib.suppress(OSError, ValueError):
            plan = json.loads(path.read_text())
            if isinstance(plan, list) and all(isinstance(word, str) for word in plan):
                return plan
        plan = self.plan()
        write_atomically(path, json.dumps(plan))
        return plan

    def plan(self) -> list[str]:
        """Fast Downward's plan from the present state: a search of 0.01 to 15 s. Empty where there is none."""
        with _guarded():
            return list(self._env._pddl_state.replan(self._env._entity_infos))

    def close(self) -> None:
        """Hands the library on; the engine plays no more."""
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
