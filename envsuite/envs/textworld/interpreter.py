"""The engine in a process of its own, which can be killed: a Z-machine stuck in C hears no signal and keeps no lock free.

`Interpreter` is this side of the pipe, `worker` the other. Nothing of textworld is imported here.
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
from typing import Any, NamedTuple

from envsuite import errors
from envsuite.cache import cache_dir
from envsuite.envs.textworld.games import GameSpec
from envsuite.envs.textworld.pipe import Pipe
from envsuite.errors import EngineFailure, EnvsuiteError

STEP_SECONDS = 20.0
"""what a command may take; it takes milliseconds, on a machine far too busy perhaps a second"""
START_SECONDS = 120.0
"""what may pass until a new worker answers: it has to import textworld"""


UNKNOWN = -1
"""what the worker's `plan` says where it cannot tell how far the end is"""


WON, LOST = "*** The End ***", "*** You lost! ***"
"""the banners of generated games"""


STARTING = ("make", "open")
"""requests that need no game on the table, and so are worth a new worker"""


class Frame(NamedTuple):
    """What the engine shows after a command. None where it does not know: a game without its .json tells little."""

    feedback: str
    room: str | None = None
    inventory: str | None = None
    score: int | None = None
    moves: int | None = None
    """commands so far that did something, or looked at something"""
    won: bool = False
    lost: bool = False
    commands: list[str] | None = None
    """admissible commands, sorted, all of them"""


class Opening(NamedTuple):
    """A game just started."""

    frame: Frame
    objective: str
    max_score: int | None


class Interpreter:
    """A worker process, started when first asked, and again after it was lost."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Pipe | None = None
        self._release: weakref.finalize[..., Any] | None = None
        self._owner = 0  # the process that started it; a fork of that one needs its own

    @property
    def running(self) -> bool:
        return self._process is not None and self._owner == os.getpid() and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The worker's process id, None where there is none."""
        return self._process.pid if self._process is not None else None

    def ask(self, request: str, *arguments: Any, timeout: float = STEP_SECONDS) -> Any:
        """The worker's answer. Raises what it raised, or EngineFailure if it died or was killed for its silence."""
        if request in STARTING:
            if not self.running:
                self.close()
                self._start()
        elif self._pipe is None or self._owner != os.getpid():
            self.close()
            raise EngineFailure(f"The process of the TextWorld engine died before {request!r}.")
        named = "".join(f" {spec.name}" for spec in arguments if isinstance(spec, GameSpec))
        return self._answer(f"{request!r}{named}", timeout, request, *arguments)

    def _answer(self, what: str, timeout: float, *request: Any) -> Any:
        """What the worker says to `request`, or unasked where that is empty."""
        assert self._pipe is not None
        try:
            if request:
                with contextlib.suppress(OSError):  # a dead worker is noticed in reading
                    self._pipe.send(request)
            answer, *rest = self._pipe.receive(timeout)
        except TimeoutError:
            self.close()
            raise EngineFailure(
                f"TextWorld gave no answer to {what} within {timeout:.0f} s and was killed: take another game."
            ) from None
        except (EOFError, OSError):
            self.close()
            raise EngineFailure(f"The process of the TextWorld engine died at {what}.") from None
        except BaseException:  # Ctrl-C: half a request, or an answer that came later, would be taken for the next one's
            self.close()
            raise
        if answer == "raise":
            kind, message = rest
            if kind == "ModuleNotFoundError":
                raise ModuleNotFoundError(message, name=message.partition("'")[2].rstrip("'"))
            raise _error(kind)(message)
        return Frame._make(rest) if answer == "frame" else rest[0]

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        # An empty working folder: textworld reads `textworld_data` in the present one, Z-machines write there. A home of
        # its own: the compiler keeps an index in `~/Inform`, which parallel workers would write at once. What it leaves
        # behind when it is killed lies in there too.
        folder = tempfile.mkdtemp(prefix="envsuite-textworld-")
        home, work = os.path.join(folder, "home"), os.path.join(folder, "work")
        os.mkdir(home)
        os.mkdir(work)
        paths = os.pathsep.join(map(os.path.abspath, filter(None, ["." if "" in sys.path else "", *sys.path])))
        # The cache is the user's all the same, wherever that is seen from here.
        cache = str(cache_dir().absolute())
        environment = {**os.environ, "PYTHONPATH": paths, "HOME": home, "TMPDIR": folder, "ENVSUITE_CACHE": cache}
        command = [sys.executable, "-m", "envsuite.envs.textworld.worker"]
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(os.getpid()), folder],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # a stuck interpreter prints 40 MB/s
                stderr=subprocess.DEVNULL,
                cwd=work,
                env=environment,
                start_new_session=True,  # so that it can be killed together with the compilers it has started
            )
        self._owner = os.getpid()
        self._pipe = Pipe(ours.detach())
        self._release = weakref.finalize(self, _release, self._owner, self._process, self._pipe, folder)
        self._answer("its start", START_SECONDS)

    def kill(self) -> None:
        """Ends the worker from another thread: the one that waits for its answer gets EngineFailure, and has to close."""
        if self.running and (pid := self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends the worker; `ask` starts another."""
        if self._release is not None:
            self._release()
        self._process = self._pipe = self._release = None


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
            os.killpg(process.pid, signal.SIGKILL)  # its group is its own: it leads a session
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)
