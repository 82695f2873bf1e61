"""`ProcessVectorEnv`: one vector environment whose games are shared out among processes.

Each process plays consecutive games in its own vector environment. All processes step and reset at the same time, and
their results are joined into what one vector environment of all games would return.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from multiprocessing import connection
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from envsuite.errors import EngineFailure, EnvsuiteError, UsageError
from envsuite.vector.base import TextVectorEnv, VectorStep, games_to_reset

_PATIENCE = 2.0  # seconds that a process has to end by itself before it is interrupted
_GRACE = 10.0  # seconds that an interrupted process has to close its environments
_GARBAGE = 20_000, 10, 10  # thresholds of the search for cyclic garbage; the objects of many games make it slow
_END = b""  # request to end
Make = Callable[[int], VectorEnv[Any, Any, Any]]
"""Builds the vector environment of one process from its number of games. It must be picklable."""


class ProcessVectorEnv(VectorEnv[Any, Any, Any]):
    """`num_envs` games in `processes` processes of this machine, stepped at the same time.

    Raises UsageError for fewer games than processes, and what a process raises. A process that dies raises
    EngineFailure, and the environment is closed, because the games of that process are lost. Ctrl-C closes it as well,
    because it may come in the middle of an answer. After another error of `step` or `reset`, all games must be reset.
    The environments of the games are reached by `call`, `get_attr` and `set_attr`; it has no `envs`. Only one thread
    may use it at a time.

    A process that waits for its next request draws the games of later resets (`TextVectorEnv.draw_ahead`).
    """

    def __init__(self, make: Make, num_envs: int, processes: int) -> None:
        self._processes: list[Any] = []
        self._pipes: list[connection.Connection] = []
        self._calls = threading.Lock()
        self._closed_by = ""  # what has closed the environment, other than close()
        if not (isinstance(num_envs, int | np.integer) and num_envs >= 1):
            raise UsageError(f"num_envs={num_envs!r} is no number of games: use an integer from 1.")
        if not (isinstance(processes, int | np.integer) and 1 <= processes <= num_envs):
            raise UsageError(f"processes={processes!r} does not fit {num_envs} games: use 1 to {num_envs} processes.")
        self.num_envs = num_envs = int(num_envs)
        sizes = [num_envs // processes + (i < num_envs % processes) for i in range(processes)]
        self._slices = [slice(*ends) for ends in pairwise(accumulate(sizes, initial=0))]
        context: Any = multiprocessing.get_context("spawn")  # forks of a process with threads deadlock
        pickled = pickle.dumps(make)  # read by `_serve`, which can answer with an error
        try:
            for size in sizes:
                pipe, far_end = context.Pipe()
                self._pipes.append(pipe)
                process = context.Process(target=_serve, args=(far_end, pickled, size, os.getpid()), daemon=True)
                process.start()
                self._processes.append(process)
                far_end.close()
            self.spec, self.metadata, self.render_mode, *spaces = self._answers(range(processes), starting=True)[0]
        except BaseException:
            self.close()
            raise
        self.single_observation_space, self.single_action_space = spaces
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.autoreset_mode: AutoresetMode = self.metadata["autoreset_mode"]
        self._texts = [""] * num_envs
        self._over = np.zeros(num_envs, dtype=bool)
        self._failed = False  # a step or reset raised, so that it is not known what the games did

    def __reduce__(self) -> Any:
        raise TypeError("A vector environment in several processes cannot be pickled: build one where it is needed.")

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
        if self._failed and not (self._refuses() or mask.all()):
            raise gym.error.ResetNeeded("An earlier call failed: reset() all games, without a reset_mask.")
        requests: list[Any] = []
        for games in self._slices:
            here = mask[games]
            if not here.any():
                requests.append(None)
                continue
            given = shared if here.all() else {**shared, "reset_mask": here}
            requests.append(("reset", (), {"seed": list(seeds[games]), "options": given if options else None}))
        infos: list[dict[str, Any]] = []
        for games, answer in zip(self._slices, self._ask(requests, plays=True), strict=True):
            texts, info = answer or (self._texts[games], {})
            self._texts[games] = texts
            infos.append(info)
        self._over[mask] = False
        self._failed = False
        return tuple(self._texts), self._joined(infos)

    def step(self, actions: Sequence[str]) -> VectorStep:
        """Executes `actions[i]` in game i; with NEXT_STEP, finished games are reset instead."""
        if self._failed and not self._refuses():
            raise gym.error.ResetNeeded("An earlier call failed: reset() all games before step().")
        games_to_reset(actions, self._over, self.autoreset_mode)
        answers = self._ask([("step", (list(actions[games]),), {}) for games in self._slices], plays=True)
        self._failed = False
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
        """Ends the processes. They close their environments first, also those that are interrupted in a step."""
        for pipe in self._pipes:
            with contextlib.suppress(OSError):  # the process has died
                pipe.send_bytes(_END)
            pipe.close()
        for end, wait in ((None, _PATIENCE), ("terminate", _GRACE), ("kill", _GRACE)):
            deadline = time.monotonic() + wait
            for process in self._processes:
                if end and process.is_alive():
                    getattr(process, end)()
            for process in self._processes:
                process.join(timeout=max(0.0, deadline - time.monotonic()))

    # ---- processes ------------------------------------------------------------------------------------------------

    def _refuses(self) -> bool:
        """Returns True if `_ask` raises UsageError now."""
        return self.closed or self._calls.locked()

    def _ask(self, requests: Sequence[Any], plays: bool = False) -> list[Any]:
        """Sends one request to each process (None: none to this one) and returns their answers.

        `plays` marks a step or reset: after an error, it is not known what the games did.
        """
        if self.closed:
            raise UsageError(f"This vector environment is closed{self._closed_by}: make a new one.")
        if not self._calls.acquire(blocking=False):
            raise UsageError("This vector environment is in use by another thread: call it from one thread at a time.")
        try:
            self._failed |= plays
            return self._exchange(requests)
        finally:
            self._calls.release()

    def _exchange(self, requests: Sequence[Any]) -> list[Any]:
        messages = {i: pickle.dumps(request) for i, request in enumerate(requests) if request is not None}
        try:
            for i, message in messages.items():
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # `_answers` reports a dead process
                    self._pipes[i].send_bytes(message)
        except BaseException as cause:  # an interrupt
            self._close_after(cause)
            raise
        return self._answers(messages)

    def _close_after(self, cause: BaseException) -> None:
        """Closes the environment after an exception that leaves requests or answers in the pipes."""
        died = isinstance(cause, EngineFailure)
        self._closed_by = f", because {'a process has died' if died else f'{type(cause).__name__} interrupted a call'}"
        self.close()

    def _answers(self, asked: Iterable[int], starting: bool = False) -> list[Any]:
        """Returns one answer per process, None if it was not asked. Raises the first error after all have answered."""
        messages: dict[int, bytes] = {}
        try:
            for i in asked:
                try:
                    messages[i] = self._pipes[i].recv_bytes()
                except (EOFError, BrokenPipeError, ConnectionResetError):
                    raise self._death(i, starting) from None
        except BaseException as cause:  # also an interrupt: answers are left in the pipes, perhaps half read
            self._close_after(cause)
            raise
        answers: list[Any] = [None] * len(self._pipes)
        for i, message in messages.items():
            answers[i], error, trace = pickle.loads(message)
            if error is not None:
                if trace:
                    error.add_note(trace)
                raise error
        return answers

    def _death(self, i: int, starting: bool) -> EngineFailure:
        """Returns the error for a process that has died."""
        process, games = self._processes[i], self._slices[i]
        process.join(timeout=_PATIENCE)
        cure = "The environment is closed; make a new one."
        if starting and process.exitcode == 1:
            cure = (
                "Its output is above. A program must be in a file, and build the environment below "
                "`if __name__ == '__main__':`."
            )
        return EngineFailure(
            f"Process {i + 1} of {len(self._processes)}, with games {games.start} to {games.stop - 1}, has died "
            f"(exit code {process.exitcode}). {cure}"
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
                # The type is that of the first game with the entry, as in one process.
                joined[key] = np.concatenate([*self._filled(parts, example)], dtype=example.dtype, casting="unsafe")
        return joined

    def _filled(self, parts: Sequence[np.ndarray | None], example: np.ndarray) -> Iterator[np.ndarray]:
        for part, games in zip(parts, self._slices, strict=True):
            if part is None:
                fill = None if example.dtype == object else 0
                part = np.full((games.stop - games.start, *example.shape[1:]), fill, dtype=example.dtype)
            yield part


def _serve(pipe: connection.Connection, make: bytes, size: int, parent: int) -> None:
    """Runs in a process: answers requests until the parent ends it or dies. The parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, lambda number, frame: None)  # programs that games start do not inherit this
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            envs = _load(make)(size)
        except Exception as error:
            _answer(pipe, None, error)
            return
        try:
            drawing = envs if isinstance(envs, TextVectorEnv) else None
            if drawing:  # other vector environments may need an early search for garbage, for example of large arrays
                gc.freeze()  # what exists now lives as long as the process
                gc.set_threshold(*_GARBAGE)
            spaces = envs.single_observation_space, envs.single_action_space
            _answer(pipe, (envs.spec, envs.metadata, envs.render_mode, *spaces))
            idle = True  # there is nothing to draw
            while True:
                if not pipe.poll(_PATIENCE if idle else 0):
                    if os.getppid() != parent:  # which a process forked from it may hide
                        return
                    idle = not (drawing and drawing.draw_ahead())
                    continue
                idle = False
                request = pipe.recv_bytes()
                if request == _END:
                    return
                try:
                    method, args, kwargs = pickle.loads(request)
                    answer = getattr(envs, method)(*args, **kwargs)
                except Exception as error:
                    _answer(pipe, None, error)
                else:
                    _answer(pipe, answer)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # closing is not interrupted
            envs.close()


def _load(make: bytes) -> Make:
    """Raises UsageError for a class or function that a new process does not find."""
    try:
        loaded: Make = pickle.loads(make)
    except AttributeError as error:
        if error.__traceback__ and error.__traceback__.tb_next:  # an imported module raised it
            raise
        raise UsageError(
            f"A new process cannot build the environment ({error}): define its class in a module, not in a notebook."
        ) from None
    return loaded


def _answer(pipe: connection.Connection, answer: Any, error: Exception | None = None) -> None:
    """Sends an answer or an error. An error that cannot be pickled, or read again, becomes an EngineFailure.

    The traceback, which pickling would lose, goes with errors that users do not cause: the parent adds it as a note.
    """
    trace = ""
    if error is not None and not isinstance(error, EnvsuiteError | gym.error.Error):
        trace = "".join(traceback.format_exception(error))
    try:
        message = pickle.dumps((answer, error, trace), pickle.HIGHEST_PROTOCOL)
        if error is not None:
            pickle.loads(message)
    except Exception as unpicklable:
        reason = error if error is not None else unpicklable
        message = pickle.dumps((None, EngineFailure(f"{type(reason).__name__}: {reason}"), trace))
    pipe.send_bytes(message)
