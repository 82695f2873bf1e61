"""Worker processes of `ProcessExecutor`: the parent's side, and the loop that runs in the worker."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import queue
import signal
import socket
import threading
import time
from collections import deque
from multiprocessing import connection
from typing import Any

from envsuite.types import Shaping
from harness.rollout.hosts import EnvHosts, Request, StepResult, Terminated

GRACE = 2.0
"""Seconds that a worker has to end by itself before it is interrupted."""
CLEANUP = 60.0
"""Seconds that a worker has to release what its environments hold; several containers take time on
a loaded machine.
"""


class Worker:
    """A worker process as seen by the executor.

    A thread writes the requests: a worker that does not read fills the pipe, which blocks this
    thread and not the rollout.
    """

    def __init__(self, config: tuple[str, str, Shaping]) -> None:
        context: Any = multiprocessing.get_context("spawn")  # forks of a process with threads deadlock
        self.pipe, worker_end = context.Pipe()
        self.pending: deque[tuple[int, float]] = deque()
        """slot and time of the requests without an answer, in order"""
        self.dropped = 0
        """number of pending requests, the first ones, whose answers are dropped"""
        self.ready = False
        self._last = time.monotonic()
        self.process = context.Process(target=_serve, args=(worker_end, config, os.getpid()), daemon=True)
        self.process.start()
        worker_end.close()
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="envsuite-worker-requests", daemon=True)
        self._writer.start()

    @property
    def busy_since(self) -> float:
        """Time at which it began with the first pending request."""
        return max(self._last, self.pending[0][1]) if self.pending else time.monotonic()

    def send(self, request: Request) -> None:
        """Sends a request without waiting."""
        self.pending.append((request[1], time.monotonic()))
        self._outgoing.put(pickle.dumps(request))

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # the executor notices a dead worker when it reads
            while (data := self._outgoing.get()) is not None:
                self.pipe.send_bytes(data)

    def answered(self, answer: tuple[int, StepResult] | None) -> bool:
        """Removes the answered request. Returns False if the answer is dropped.

        None is the first message of a worker, after its start.
        """
        self._last, self.ready = time.monotonic(), True
        if answer is None:
            return False
        self.pending.popleft()
        if self.dropped:
            self.dropped -= 1
            return False
        return True

    def ask_to_stop(self) -> None:
        """Ends the connection: the worker stops after its current request."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.pipe.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)  # also wakes a writer that waits for space

    def stop(self) -> None:
        """Ends the process: waits for GRACE seconds, then terminates it, and kills it if cleaning up
        takes longer than CLEANUP.
        """
        self.ask_to_stop()
        self.process.join(timeout=GRACE)
        if self.process.is_alive() and self.ready:
            self.process.terminate()
            self.process.join(timeout=CLEANUP)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(timeout=5)
        self._outgoing.put(None)
        self._writer.join(timeout=5)
        self.pipe.close()

    def ending(self) -> str:
        """Describes how the process ended: its exit code, or the signal that killed it."""
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"exit code {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:  # a signal without a name
            return f"signal {-code}"


def _terminate(number: int, frame: Any) -> None:
    """Handles SIGTERM: interrupts the worker's work once, so that it cleans up without further
    interruption.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


def _serve(pipe: connection.Connection, config: tuple[str, str, Shaping], parent: int) -> None:
    """Runs in a worker: answers requests until the pipe closes. The parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    hosts = EnvHosts(config)
    try:
        pipe.send(None)
        while True:
            if pipe.poll(5.0):
                pipe.send(hosts.answer(pipe.recv()))
            elif os.getppid() != parent:  # the parent was killed
                break
    except (EOFError, BrokenPipeError, ConnectionResetError, Terminated):
        pass
    finally:
        with contextlib.suppress(Terminated):  # cleaning up is not interrupted
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hosts.close()
