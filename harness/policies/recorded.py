"""Says again what a results file says was said."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Sequence
from pathlib import Path

from envsuite.errors import DataError, UsageError
from harness import records
from harness.types import Prompt, Reply


def canonical(file: str) -> str:
    """`replay:` and the first digits of the file's SHA-256: the same on every machine, wherever the file lies."""
    try:
        return f"replay:{hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]}"
    except OSError as error:
        raise DataError(f"Cannot read {file}: {error.strerror}.") from error


class ReplayPolicy:
    """Plays the stored replies of `file`, or of some of its records, turn by turn; `idle` where they end earlier.

    A record whose `stop_reason` is one of `stops` is played to its last reply, and the game ends there.
    """

    advice_kind, deterministic = "", True

    def __init__(self, file: str, found: Sequence[records.Record] | None = None, stops: Container[str] = ()) -> None:
        self.name = canonical(file)
        found = records.read_results(Path(file)) if found is None else found
        self._steps = {records.key_of(record): record["steps"] for record in found}
        self._stopped = {records.key_of(record) for record in found if record["stop_reason"] in stops}

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        return [self._reply(prompt) for prompt in prompts]

    def _reply(self, prompt: Prompt) -> Reply:
        assert prompt.episode is not None
        steps = self._steps.get(prompt.episode.key)
        if steps is None:
            task, _, seed, attempt = prompt.episode.key
            raise UsageError(
                f"{self.name} holds no episode of {task} with seed {seed}, attempt {attempt} and these knobs: "
                "replay the very tasks and seeds that were recorded."
            )
        if prompt.turn >= len(steps):
            return Reply("", commands=(), finish_reason="context" if prompt.episode.key in self._stopped else "stop")
        step = steps[prompt.turn]
        return Reply(records.reply_text(step), commands=tuple(step["commands"]))

    def close(self) -> None:
        pass
