"""The client of the TextWorld engine, which runs in a worker process that can be killed.

A Z-machine that hangs in C code reacts to no signal and does not release Python's lock, so it
cannot share our process. `Interpreter` is this side of the pipe and `worker` the other one. This
module does not import textworld.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any, NamedTuple

from envsuite import errors
from envsuite.cache import cache_dir
from envsuite.envs.textworld.engine.pipe import Pipe
from envsuite.envs.textworld.games import GameSpec
from envsuite.errors import EngineFailure, EnvsuiteError

STEP_SECONDS = 20.0
"""Time limit of a command; it takes milliseconds, or about a second on an overloaded machine."""
START_SECONDS = 120.0
"""Time limit for the start of a worker, which imports textworld."""


UNKNOWN = -1
"""Plan length that means: the distance to the goal could not be computed."""


WON, LOST = "*** The End ***", "*** You lost! ***"
"""Banners of generated games."""


STARTING_REQUESTS = ("make", "make_logic", "open", "load", "plan_logic")
"""Requests that do not need a loaded game and therefore may start a new worker."""


class Frame(NamedTuple):
    """The state of a game after a command.

    Fields are None if unknown: a game without a .json file reveals little.
    """

    feedback: str
    room: str | None = None
    inventory: str | None = None
    score: int | None = None
    moves: int | None = None
    """number of commands so far that had an effect or looked at something"""
    won: bool = False
    lost: bool = False
    commands: list[str] | None = None
    """all admissible commands, sorted"""


class Opening(NamedTuple):
    """A game that has just been started."""

    frame: Frame
    objective: str
    max_score: int | None


class Interpreter:
    """A worker process, started on the first request and restarted after it was lost."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Pipe | None = None
        self._release: weakref.finalize[..., Any] | None = None
        self._owner = 0  # id of the process that started it; a fork needs its own worker

    @property
    def running(self) -> bool:
        return self._process is not None and self._owner == os.getpid() and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None if there is none."""
        return self._process.pid if self._process is not None else None

    def ask(self, request: str, *arguments: Any, timeout: float = STEP_SECONDS) -> Any:
        """Sends a request to the worker and returns its answer.

        Raises the worker's error, or EngineFailure if it died or was killed after `timeout`
        seconds.
        """
        if request in STARTING_REQUESTS:
            if not self.running:
                self.close()
                self._start()
        elif self._pipe is None or self._owner != os.getpid():
            self.close()
            raise EngineFailure(f"The process of the TextWorld engine died before {request!r}.")
        games = "".join(f" {spec.name}" for spec in arguments if isinstance(spec, GameSpec))
        return self._answer(f"{request!r}{games}", timeout, request, *arguments)

    def _answer(self, request_name: str, timeout: float, *request: Any) -> Any:
        """Sends `request`, if any, and returns the worker's next message."""
        assert self._pipe is not None
        try:
            if request:
                with contextlib.suppress(OSError):  # reading below detects a dead worker
                    self._pipe.send(request)
            answer, *values = self._pipe.receive(timeout)
        except TimeoutError:
            self.close()
            raise EngineFailure(
                f"TextWorld did not answer {request_name} within {timeout:.0f} s and was killed: use another game."
            ) from None
        except (EOFError, OSError):
            self.close()
            raise EngineFailure(f"The process of the TextWorld engine died at {request_name}.") from None
        except BaseException:  # Ctrl-C: a partial request or a late answer would corrupt the next one
            self.close()
            raise
        if answer == "raise":
            kind, message = values
            if kind == "ModuleNotFoundError":
                raise ModuleNotFoundError(message, name=message.partition("'")[2].rstrip("'"))
            raise _error(kind)(message)
        return Frame._make(values) if answer == "frame" else values[0]

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        # The worker gets an empty working folder, because textworld reads `textworld_data` and Z-machines write there,
        # and its own home folder, because parallel compilers would share the index in `~/Inform`. Both are inside one
        # temporary folder, which is removed even if the worker is killed.
        folder = tempfile.mkdtemp(prefix="envsuite-textworld-")
        home, work = os.path.join(folder, "home"), os.path.join(folder, "work")
        os.mkdir(home)
        os.mkdir(work)
        paths = os.pathsep.join(map(os.path.abspath, filter(None, ["." if "" in sys.path else "", *sys.path])))
        # The cache folder is still the user's.
        cache = str(cache_dir().absolute())
        environment = {**os.environ, "PYTHONPATH": paths, "HOME": home, "TMPDIR": folder, "ENVSUITE_CACHE": cache}
        command = [sys.executable, "-m", "envsuite.envs.textworld.engine.worker"]
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(os.getpid()), folder],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # a hanging interpreter prints 40 MB/s
                stderr=subprocess.DEVNULL,
                cwd=work,
                env=environment,
                start_new_session=True,  # allows killing it together with its compilers
            )
        self._owner = os.getpid()
        self._pipe = Pipe(ours.detach())
        self._release = weakref.finalize(self, _release, self._owner, self._process, self._pipe, folder)
        self._answer("its start", START_SECONDS)

    def kill(self) -> None:
        """Kills the worker from another thread; the waiting thread gets EngineFailure."""
        if self.running and (pid := self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends the worker; the next `ask` starts another one."""
        if self._release is not None:
            self._release()
        self._process = self._pipe = self._release = None


_generators: dict[Path, list[Interpreter]] = {}
"""Idle workers by the cache folder, into which a worker writes for as long as it lives."""


def generate_logic(spec: GameSpec, timeout: float) -> str:
    """Generates a game into the cache without compiling it, and returns the path of its .json file.

    The worker is one that the environments of this process share, so that many of them need no process each.
    """
    idle = _generators.setdefault(cache_dir().absolute(), [])
    try:
        worker = idle.pop()
    except IndexError:
        worker = Interpreter()
    try:
        path: str = worker.ask("make_logic", spec, timeout=timeout)
    finally:
        idle.append(worker)
    return path


def _error(kind: str) -> type[EnvsuiteError]:
    if kind == "CannotGenerate":
        from envsuite.envs.textworld.generator import CannotGenerate

        return CannotGenerate
    return getattr(errors, kind, EngineFailure)


def _release(owner: int, process: subprocess.Popen[bytes], pipe: Pipe, folder: str) -> None:
    pipe.close()
    if owner != os.getpid():
        return
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the worker leads its own process group
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)
