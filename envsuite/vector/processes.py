"""`ProcessVectorEnv`: one vector environment whose games are shared out among processes.

Each process has a vector environment of its own with a run of consecutive games. Steps and resets of all processes go
on at the same time, and their results are joined. Results are those of one vector environment of all games.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from multiprocessing import connection
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from envsuite.errors import EngineFailure, UsageError
from envsuite.vector.base import VectorStep, games_to_reset

_GRACE = 10.0  # seconds that a process has to close its environments
Make = Callable[[int], VectorEnv[Any, Any, Any]]
"""Builds the vector environment of one process from its number of games. It must be picklable."""


class ProcessVectorEnv(VectorEnv[Any, Any, Any]):
    """`num_envs` games in `processes` processes of this machine, stepped at the same time.

    Raises UsageError for fewer games than processes, and what a process raises. A process that dies raises
    EngineFailure; the environment is closed then, because the games of that process are lost.
    """

    def __init__(self, make: Make, num_envs: int, processes: int) -> None:
        self._processes: list[Any] = []
        self._pipes: list[connection.Connection] = []
        if not 1 <= processes <= num_envs:
            raise UsageError(f"processes={processes} does not fit {num_envs} games: use 1 to {num_envs} processes.")
        self.num_envs = num_envs
        sizes = [num_envs // processes + (i < num_envs % processes) for i in range(processes)]
        self._slices = [slice(*ends) for ends in pairwise(accumulate(sizes, initial=0))]
        context: Any = multiprocessing.get_context("spawn")  # forks of a process with threads deadlock
        try:
            for size in sizes:
                pipe, far_end = context.Pipe()
                self._pipes.append(pipe)
                process = context.Process(target=_serve, args=(far_end, pickle.dumps(make), size), daemon=True)
                process.start()
                self._processes.append(process)
                far_end.close()
            spaces = self._answers(range(processes), starting=True)[0]
        except BaseException:
            self.close()
            raise
        self.metadata, self.render_mode, self.single_observation_space, self.single_action_space = spaces
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.autoreset_mode: AutoresetMode = self.metadata["autoreset_mode"]
        self._texts = [""] * num_envs
        self._over = np.zeros(num_envs, dtype=bool)

    # ---- Gymnasium's interface ------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Starts an episode in every game, or in those of `options["reset_mask"]`: bool [num_envs].

        `seed` is one integer per game, or the seed of the first game, from which the others count on.
        """
        n = self.num_envs
        seeds = [None] * n if seed is None else range(seed, seed + n) if isinstance(seed, int) else seed
        if len(seeds) != n:
            raise ValueError(f"{n} games need {n} seeds, not {len(seeds)}.")
        shared = dict(options or {})
        mask = shared.pop("reset_mask", None)
        if mask is None:
            mask = np.ones(n, dtype=bool)
        elif not isinstance(mask, np.ndarray) or mask.shape != (n,) or mask.dtype != np.bool_ or not mask.any():
            raise ValueError(f"reset_mask needs {n} booleans in a numpy array, one of them true, not {mask!r}.")
        requests: list[Any] = []
        for games in self._slices:
            here = mask[games]
            if not here.any():
                requests.append(None)
                continue
            given = shared if here.all() else {**shared, "reset_mask": here}
            requests.append(("reset", (), {"seed": list(seeds[games]), "options": given if options else None}))
        infos: list[dict[str, Any]] = []
        for games, answer in zip(self._slices, self._ask(requests), strict=True):
            texts, info = answer or (self._texts[games], {})
            self._texts[games] = texts
            infos.append(info)
        self._over[mask] = False
        return tuple(self._texts), self._joined(infos)

    def step(self, actions: Sequence[str]) -> VectorStep:
        """Executes `actions[i]` in game i; with NEXT_STEP, finished games are reset instead."""
        games_to_reset(actions, self._over, self.autoreset_mode)
        answers = self._ask([("step", (list(actions[games]),), {}) for games in self._slices])
        texts, rewards, terminated, truncated, infos = zip(*answers, strict=True)
        self._texts = [*chain.from_iterable(texts)]
        ended = np.concatenate(terminated), np.concatenate(truncated)
        self._over = ended[0] | ended[1]
        return tuple(self._texts), np.concatenate(rewards), *ended, self._joined(infos)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Returns what a method or attribute of every game's environment returns; it must be picklable."""
        return tuple(chain.from_iterable(self._ask([("call", (name, *args), kwargs)] * len(self._pipes))))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Returns a copy of an attribute of every game's environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets an attribute of every game's environment: to one value each of a list or tuple, or to the same."""
        if not isinstance(values, list | tuple):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(f"{self.num_envs} games need {self.num_envs} values, not {len(values)}.")
        self._ask([("set_attr", (name, values[games]), {}) for games in self._slices])

    def render(self) -> tuple[Any, ...]:
        """Returns the frame of every game."""
        return tuple(chain.from_iterable(self._ask([("render", (), {})] * len(self._pipes))))

    @property  # type: ignore[misc]  # as in Gymnasium's own vector environments
    def np_random(self) -> Any:
        """Copies of the games' random generators."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> Any:
        """The seeds of the games' random generators."""
        return self.get_attr("np_random_seed")

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the processes, which close their environments first."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=_GRACE)
            if process.is_alive():
                process.kill()
                process.join()

    # ---- processes ------------------------------------------------------------------------------------------------

    def _ask(self, requests: Sequence[Any]) -> list[Any]:
        """Sends one request to each process (None: none to this one) and returns their answers."""
        if self.closed:
            raise UsageError("This vector environment is closed: make a new one.")
        try:
            asked = [i for i, request in enumerate(requests) if request is not None]
            for i in asked:
                with contextlib.suppress(OSError):  # of a dead process, which `_answers` reports
                    self._pipes[i].send(requests[i])
            return self._answers(asked)
        except KeyboardInterrupt:  # answers may be left in the pipes, half read
            self.close()
            raise

    def _answers(self, asked: Sequence[int], starting: bool = False) -> list[Any]:
        """Returns one answer per process, None if it was not asked. Raises the first error after all have answered."""
        answers: list[Any] = [None] * len(self._pipes)
        first: BaseException | None = None
        for i in asked:
            try:
                answers[i], error = self._pipes[i].recv()
            except (EOFError, OSError):
                raise self._death(i, starting) from None
            first = first or error
        if first is not None:
            raise first
        return answers

    def _death(self, i: int, starting: bool) -> EngineFailure:
        """Closes the environment and returns the error for a process that has died."""
        self._processes[i].join(timeout=_GRACE)
        code = self._processes[i].exitcode
        self.close()
        games = self._slices[i]
        cure = (
            "A script must build it below `if __name__ == '__main__':`."
            if starting
            else "The environment is closed; make a new one."
        )
        return EngineFailure(
            f"Process {i + 1} of {len(self._processes)}, with games {games.start} to {games.stop - 1}, has died "
            f"(exit code {code}). {cure}"
        )

    # ---- infos ----------------------------------------------------------------------------------------------------

    def _joined(self, infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Joins the infos of all processes; an entry that a process lacks is empty for its games, as in Gymnasium."""
        joined: dict[str, Any] = {}
        for key in dict.fromkeys(chain.from_iterable(infos)):
            parts = [info.get(key) for info in infos]
            example = next(part for part in parts if part is not None)
            if isinstance(example, dict):
                joined[key] = self._joined([part or {} for part in parts])
            else:
                joined[key] = np.concatenate([*self._filled(parts, example)])
        return joined

    def _filled(self, parts: Sequence[np.ndarray | None], example: np.ndarray) -> Iterator[np.ndarray]:
        for part, games in zip(parts, self._slices, strict=True):
            if part is None:
                fill = None if example.dtype == object else 0
                part = np.full((games.stop - games.start, *example.shape[1:]), fill, dtype=example.dtype)
            yield part


def _serve(pipe: connection.Connection, make: bytes, size: int) -> None:
    """Runs in a process: answers requests until the parent closes its end or dies. The parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            envs = pickle.loads(make)(size)
        except Exception as error:
            _answer(pipe, None, error)
            return
        try:
            _answer(pipe, (envs.metadata, envs.render_mode, envs.single_observation_space, envs.single_action_space))
            while True:
                method, args, kwargs = pipe.recv()
                try:
                    answer = getattr(envs, method)(*args, **kwargs)
                except Exception as error:
                    _answer(pipe, None, error)
                else:
                    _answer(pipe, answer)
        finally:
            envs.close()


def _answer(pipe: connection.Connection, answer: Any, error: Exception | None = None) -> None:
    """Sends an answer or an error. An error that cannot be pickled, or read again, becomes an EngineFailure."""
    try:
        message = pickle.dumps((answer, error), pickle.HIGHEST_PROTOCOL)
        if error is not None:
            pickle.loads(message)
    except Exception as unpicklable:
        reason = error if error is not None else unpicklable
        message = pickle.dumps((None, EngineFailure(f"{type(reason).__name__}: {reason}")))
    pipe.send_bytes(message)
