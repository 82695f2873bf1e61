"""Environments that fail in every way that a rollout must survive."""

from __future__ import annotations

import ctypes
import os
import sys
import time

from envsuite import Knob, Outcome, Task, register
from examples.hilo import HiLo

FAILURES = (
    "exception",
    "system-exit",
    "os-exit",
    "nan",
    "nan-progression",
    "infinity",
    "segfault",
    "hang",
    "observation",
    "metric",
)


class Breaking(HiLo):
    """HiLo that fails at the first guess of every third seed."""

    knobs = (*HiLo.knobs, Knob("how", "exception", "kind of failure", choices=FAILURES))

    def _reset(self, seed: int) -> str:
        self.fails = seed % 3 == 0
        return super()._reset(seed)

    def _act(self, command: str) -> Outcome:
        how = self.settings.how if self.fails else ""
        if how == "exception":
            raise RuntimeError("the engine broke")
        if how == "system-exit":
            sys.exit(0)
        if how == "os-exit":
            os._exit(0)
        if how == "segfault":
            ctypes.string_at(0)
        if how == "hang":
            time.sleep(600)
        outcome = super()._act(command)
        if how == "observation":
            return outcome._replace(text=5)
        if how == "metric":
            return outcome._replace(done=True)
        if how in ("nan", "infinity"):
            return Outcome(outcome.text, reward=float(how))
        if how == "nan-progression":
            return Outcome(outcome.text, progression=float("nan"))
        return outcome

    def metrics(self) -> dict[str, float]:
        return {"guesses": "many"} if self.fails and self.settings.how == "metric" else {}


register(Task(id="Breaking-v0", entry_point="tests.harness.broken_envs:Breaking", summary="fails on purpose"))
