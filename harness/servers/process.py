"""A server process: started on a free port, watched until it answers, stopped with everything it started."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from envsuite.errors import DataError
from envsuite.escaping import one_line
from harness.servers import guard

Say = Callable[[str], None]
SILENCE = 600.0
"""Seconds without output after which a server that starts counts as hanging; downloads of weights write output."""
EVERY = 10.0
"""Seconds between lines about a server that starts."""
PORTS = 3
"""Ports that are tried, because another process may take a free port before the server does."""
PORT_TAKEN = ("address already in use", "couldn't bind")
"""What vLLM and llama.cpp write, in lower case, if another process has their port."""
TAIL = 12
"""Lines of the log that are shown when a server fails."""
MOST_LINE, MOST_PROGRESS = 300, 120
"""Characters of a line of the log that are shown, after a failure and before the first answer."""


@dataclass(frozen=True)
class ServerCommand:
    """Command that starts a server, without its port."""

    name: str
    """program and version, for messages and config.json"""
    words: tuple[str, ...]
    """the command; `--port NUMBER` is appended"""
    model: str
    """name of the model in requests"""
    environment: tuple[tuple[str, str], ...] = ()


class ServerProcess:
    """A running server, at `url`. A guard process ends it if this process dies, however that happens."""

    def __init__(self, command: ServerCommand, log: Path, port: int | None = None) -> None:
        """Starts the server; `wait` returns when it answers. The output is appended to `log`."""
        self.command, self.log = command, log
        log.touch()
        self.port = free_port() if port is None else port
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.began = time.monotonic()
        words = [sys.executable, "-I", guard.__file__, str(log), *command.words, "--port", str(self.port)]
        self._guard = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **dict(command.environment)},
        )

    @property
    def pid(self) -> int:
        """Id of the guard process, whose child is the server."""
        return self._guard.pid

    @property
    def ended(self) -> bool:
        """True if the server is not running any more."""
        return self._guard.poll() is not None

    def wait(self, say: Say = lambda line: None) -> float:
        """Waits until the server answers; returns the seconds since its start. Raises DataError.

        `say` receives a line now and then.
        """
        next_line, size, changed = EVERY, -1, time.monotonic()
        while True:
            if self.ended:
                raise self.failure("ended before it answered")
            if self._healthy() and not self.ended:
                return time.monotonic() - self.began
            seconds = time.monotonic() - self.began
            if self.log.stat().st_size != size:
                size, changed = self.log.stat().st_size, time.monotonic()
            if time.monotonic() - changed > SILENCE:
                raise self.failure(f"has not answered, and has written nothing for {SILENCE:.0f} s")
            if seconds >= next_line:
                say(f"{self.command.name} starts: {seconds:.0f} s, {self.last_line()[:MOST_PROGRESS]}")
                next_line += EVERY
            time.sleep(0.1)

    def _healthy(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy
        try:
            with opener.open(f"http://127.0.0.1:{self.port}/health", timeout=5.0) as answer:
                return bool(answer.status == 200)
        except (OSError, http.client.HTTPException):
            return False

    def last_line(self) -> str:
        """Returns the last line of the server's output."""
        return (self.tail() or ["no output"])[-1]

    def tail(self) -> list[str]:
        """Returns the last lines of the server's output."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 20_000))
            lines = file.read().decode("utf-8", "replace").splitlines()
        return [one_line(line)[:MOST_LINE] for line in lines if line.strip()][-TAIL:]

    def failure(self, event: str) -> DataError:
        """Returns the error for a server that failed, with the last line of its output."""
        return DataError(f"{self.command.name} {event}: {self.last_line()} (its whole output: {self.log})")

    def crash(self) -> None:
        """Kills the server and all of its children at once, as a crash of the machine would."""
        for pid in descendants(self._guard.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        """Stops the server and everything that it started. May be called again."""
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # closed before, or the guard has ended
            self._guard.stdin.write(b"\n")  # forked processes may hold copies of the pipe
            self._guard.stdin.close()
        try:
            self._guard.wait(3 * guard.GRACE)
        except subprocess.TimeoutExpired:
            self._guard.kill()  # the kernel then kills the server
            self._guard.wait()


def free_port() -> int:
    """Returns a port of the loopback device that no process uses now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def descendants(pid: int) -> list[int]:
    """Returns the ids of a process's children and their children; [] on systems without /proc."""
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [process for child in children for process in (child, *descendants(child))]


def started(command: ServerCommand, log: Path, say: Say = lambda line: None) -> ServerProcess:
    """Starts a server and waits until it answers. Raises DataError after `say` has had the end of its output."""
    attempt = 1
    while True:
        log.write_bytes(b"")
        server = ServerProcess(command, log)
        try:
            seconds = server.wait(say)
        except DataError:
            server.stop()
            output = log.read_text(errors="replace").lower()
            if attempt < PORTS and any(words in output for words in PORT_TAKEN):
                attempt += 1
                continue
            for line in server.tail():
                say(f"  | {line}")
            raise
        except BaseException:
            server.stop()
            raise
        say(f"{command.name} answers after {seconds:.1f} s")
        return server
