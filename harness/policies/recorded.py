"""A policy that repeats the replies of a results file."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Sequence
from pathlib import Path

from envsuite.errors import DataError, UsageError
from harness import records
from harness.policies.advised import AdvisedPolicy
from harness.steps import reply_calls, reply_text
from harness.types import Prompt, Reply, advice_of


def canonical(file: str) -> str:
    """Returns `replay:` with the start of the file's SHA-256, a name that does not depend on the
    file's path.
    """
    if not file:
        raise UsageError("replay: needs a file, as in replay:runs/.../results.jsonl")
    try:
        return f"replay:{hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]}"
    except OSError as error:
        raise DataError(f"Cannot read {file}: {error.strerror}.") from error


class ReplayPolicy:
    """Repeats the stored replies of `file`, or of the given records, turn by turn; idle after a
    record's last reply.

    A record whose `stop_reason` is in `stops` ends its episode after its last reply. `advised` names the agents that
    do not repeat replies but play anew, by their advice, in the form of `Policy.advice_kind`.
    """

    deterministic = True

    def __init__(
        self,
        file: str,
        episodes: Sequence[records.Record] | None = None,
        stops: Container[str] = (),
        advised: str = "",
    ) -> None:
        self.name, self.advice_kind = canonical(file), advised
        episodes = records.read_results(Path(file)) if episodes is None else episodes
        self._steps = {records.key_of(record): record["steps"] for record in episodes}
        self._stopped = {records.key_of(record) for record in episodes if record["stop_reason"] in stops}

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        return [self._reply(prompt) for prompt in prompts]

    def _reply(self, prompt: Prompt) -> Reply:
        assert prompt.episode is not None
        steps = self._steps.get(prompt.episode.key)
        if steps is None:
            task, _, seed, attempt = prompt.episode.key
            raise UsageError(
                f"{self.name} has no episode of {task} with seed {seed}, attempt {attempt} and these knobs: "
                "replay the same tasks and seeds that were recorded."
            )
        if kind := advice_of(self.advice_kind, prompt.agent):
            return AdvisedPolicy(kind).act([prompt])[0]
        if prompt.agent:
            steps = [step for step in steps if step.get("agent") == prompt.agent]
        if prompt.turn >= len(steps):
            return Reply("", commands=(), finish_reason="context" if prompt.episode.key in self._stopped else "stop")
        step = steps[prompt.turn]
        return Reply(reply_text(step), calls=reply_calls(step), commands=tuple(step["commands"]))

    def close(self) -> None:
        pass
