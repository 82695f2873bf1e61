"""The managed servers of this process. A command that plays many tables starts each server once.

`SERVERS.acquire` starts a server, or returns a running server with the same command. The last `release` stops
it, unless the block of `SERVERS.held` is still open: then it stops at the end of the block.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from envsuite.cache import cache_dir
from harness.servers.process import Say, ServerCommand, ServerProcess, started


class ServerPool:
    """Running servers by command, with the number of policies that use each."""

    def __init__(self) -> None:
        self._servers: dict[ServerCommand, ServerProcess] = {}
        self._users: dict[ServerCommand, int] = {}
        self._holders = 0
        self._lock = threading.RLock()

    def acquire(self, command: ServerCommand, say: Say = lambda line: None) -> ServerProcess:
        """Returns the running server of a command, and starts it if necessary. Raises DataError."""
        with self._lock:
            server = self._servers.get(command)
            if server is not None and server.ended:
                server.stop()
                server = None
            if server is None:
                server = self._servers[command] = started(command, _log(command), say)
            self._users[command] = self._users.get(command, 0) + 1
            return server

    def release(self, command: ServerCommand) -> None:
        """Ends the use of a server by one policy."""
        with self._lock:
            self._users[command] -= 1
            self._stop_unused()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps servers without users until the end of the block."""
        with self._lock:
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                self._stop_unused()

    def _stop_unused(self) -> None:
        for command in [command for command, users in self._users.items() if not users and not self._holders]:
            server = self._servers.pop(command)
            del self._users[command]
            crashed = server.ended
            server.stop()
            if not crashed:
                server.log.unlink(missing_ok=True)


def _log(command: ServerCommand) -> Path:
    """Returns a new log file; logs of servers that failed stay there."""
    folder = cache_dir("servers") / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    name = "".join(letter if letter.isalnum() else "-" for letter in command.name.lower())[:40]
    return folder / f"{stamp}-{name}-{os.getpid()}-{time.monotonic_ns() % 10**6}.log"


SERVERS = ServerPool()
