"""Dialogues of the drivers that keep a zygote."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envsuite.errors import UsageError
from envsuite.sandbox.protocol import Dialogue, Fate, Limits, Result


class ZygoteDialogue(Dialogue):
    """A dialogue in a zygote, which serves nothing else meanwhile."""

    def __init__(self, run_job: Callable[[Mapping[str, object], bytes, Limits], Result]) -> None:
        self._run_job = run_job
        self._open = True

    def ask(self, payload: bytes, limits: Limits) -> Result:
        if not self._open:
            raise UsageError("This dialogue has ended: start another one.")
        self._open = False
        result = self._run_job({"kind": "turn"}, payload, limits)
        self._open = result.fate is Fate.PAUSED
        return result

    def close(self) -> None:
        if self._open:
            self._open = False
            self._run_job({"kind": "end"}, b"", Limits())
