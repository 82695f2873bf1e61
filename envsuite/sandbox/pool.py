"""Pools of warm sandboxes, shared by all users of the same Spec and driver in one process (`Lease`)."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from envsuite.errors import UsageError
from envsuite.sandbox import drivers
from envsuite.sandbox.protocol import Limits, Result, Session, Spec


class Pool:
    """Up to `size` sandboxes of one Spec, opened on demand. A call waits until one is free."""

    def __init__(self, spec: Spec, driver: str, size: int) -> None:
        self.spec, self.driver, self.size = spec, driver, max(1, size)
        self._sessions: list[Session] = []
        self._idle: list[Session] = []
        self._change = threading.Condition()
        self._closed = False

    def call(self, payload: bytes, limits: Limits | None = None) -> Result:
        """Runs the Spec's program on `payload` in a free sandbox. Raises EngineFailure."""
        session = self.take()
        try:
            return session.call(payload, limits)
        finally:
            self.give_back(session)

    def give_back(self, session: Session) -> None:
        with self._change:
            self._idle.append(session)
            self._change.notify()

    def take(self) -> Session:
        """Returns a free sandbox, which nobody else gets until `give_back`."""
        with self._change:
            while True:
                if self._closed:
                    raise UsageError("This pool of sandboxes is closed: open a new one.")
                if self._idle:
                    return self._idle.pop()
                if len(self._sessions) < self.size:
                    session = drivers.open(self.spec, self.driver)
                    self._sessions.append(session)
                    return session
                self._change.wait()

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify_all()
        for session in self._sessions:
            session.close()


@dataclass
class _SharedPool:
    pool: Pool
    holders: int = 0


_pools: dict[tuple[int, Spec, str, int], _SharedPool] = {}
_lock = threading.Lock()


class Lease:
    """A share in this process's pool for (`spec`, `driver`, `size`). The pool closes with its last lease.

    `size`: sandboxes at most; 0 for one per processor.
    """

    def __init__(self, spec: Spec, driver: str, size: int = 0) -> None:
        self._key = (os.getpid(), spec, drivers.choose(driver), size)
        with _lock:
            pool = Pool(spec, self._key[2], size or len(os.sched_getaffinity(0)))
            shared = _pools.setdefault(self._key, _SharedPool(pool))
            shared.holders += 1
        self._open = True
        self.pool = shared.pool
        self.driver = self._key[2]

    def close(self) -> None:
        with _lock:
            if not self._open:
                return
            self._open = False
            shared = _pools.get(self._key)
            if shared is None or os.getpid() != self._key[0]:
                return
            shared.holders -= 1
            if shared.holders:
                return
            del _pools[self._key]
        shared.pool.close()
