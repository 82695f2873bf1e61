"""A team: one policy for each agent of a game."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.types import DescribesConnection, HashesWeights, Policy, Prompt, Reply, ReportsRetries, WatchesWeights
from harness.waiting import act, asynchronous, wait


class TeamPolicy:
    """Sends each prompt to the policy of the agent that acts. Two agents may share a policy, but no conversation."""

    def __init__(self, name: str, members: Sequence[Policy]) -> None:
        """`members` are the agents' policies, in order."""
        self.name, self._members = name, list(members)
        advice = [policy.advice_kind for policy in members]
        self.advice_kind = "+".join(advice) if any(advice) else ""
        self.deterministic = all(policy.deterministic for policy in members)
        self._different = list({id(policy): policy for policy in members}.values())
        self._players = {id(policy): asynchronous(policy) for policy in self._different}

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        return act(self, prompts)

    def submit(self, ticket: int, prompt: Prompt) -> None:
        self._players[id(self._members[prompt.agent - 1])].submit(ticket, prompt)

    def collect(self, timeout: float | None = 0.0) -> list[tuple[int, Reply]]:
        answers = [answer for player in self._players.values() for answer in player.collect(0.0)]
        if answers or timeout == 0.0 or not (sources := self.sources()):
            return answers
        wait(sources, timeout)
        return [answer for player in self._players.values() for answer in player.collect(0.0)]

    def cancel(self) -> None:
        for player in self._players.values():
            player.cancel()

    def sources(self) -> Sequence[Any]:
        return [source for player in self._players.values() for source in player.sources()]

    def keep_weights(self, path: Path) -> None:
        """Watches the weights of every member on a server, with a file for each."""
        for number, policy in enumerate(self._different, 1):
            if isinstance(policy, WatchesWeights):
                policy.keep_weights(path.with_stem(f"{path.stem}-{number}"))

    def served_weights(self) -> None:
        """Returns None: the weights of several servers have no common fingerprint."""
        return None

    def connection(self) -> dict[str, Any]:
        """Returns each entry of config.json as the members' own entries by their names."""
        entries: dict[str, Any] = {}
        for policy in self._different:
            for name, entry in (policy.connection() if isinstance(policy, DescribesConnection) else {}).items():
                entries.setdefault(name, {})[policy.name] = entry
        return entries

    def retrying(self) -> list[tuple[str, float]]:
        """Returns the retries of all members."""
        waiting = [policy.retrying() for policy in self._different if isinstance(policy, ReportsRetries)]
        return [retry for member in waiting for retry in member]

    def weights_hash(self) -> str:
        """Returns the hashes of the members' weights, "" for members without; "" if no member has one."""
        hashes = [policy.weights_hash() if isinstance(policy, HashesWeights) else "" for policy in self._members]
        return "+".join(hashes) if any(hashes) else ""

    def close(self) -> None:
        for policy in self._different:
            policy.close()
