"""A policy in several Ray actors: replicas of a local model on the cluster's GPUs or CPUs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from envsuite.errors import EngineFailure, EnvsuiteError
from harness.cluster import connect
from harness.policies import make_policy
from harness.types import Policy, Prompt, Reply

KNOWN = 100_000
"""conversations whose home is remembered"""


class PolicyWorker:
    """The inside of an actor."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self._arguments = name, options
        self._policy: Policy | None = None

    def act(self, prompts: Sequence[Prompt]) -> list[Reply] | EnvsuiteError:
        """Errors of ours are handed over as values: Ray would dress them up."""
        try:
            if self._policy is None:
                name, options = self._arguments
                self._policy = make_policy(name, **options)
            return self._policy.act(prompts)
        except EnvsuiteError as error:
            return error


class RayPolicy:
    """`count` replicas of the policy `name`. A conversation stays with one of them, which has its prefix in memory.

    A new conversation goes to the replica with the least to do. One that dies is replaced and asked again: since what
    is sampled depends on the prompt's own seed, nobody can tell.
    """

    asks = ""

    def __init__(self, ray: Any, name: str, count: int, options: dict[str, Any]) -> None:
        self.ray, self.name, self._arguments = ray, name, (name, options)
        self.deterministic = False
        gpus = 1.0 if ray.cluster_resources().get("GPU", 0.0) and options.get("device") != "cpu" else 0.0
        needs = {"CPU": 1.0, **({"GPU": gpus} if gpus else {})}
        connect.check_room(ray, count, needs, "policy replicas")
        self._class = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0)(PolicyWorker)
        self._replicas = [self._class.remote(*self._arguments) for _ in range(count)]
        self._homes: OrderedDict[str, int] = OrderedDict()

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        parts = self._share(prompts)
        replies: dict[int, Reply] = {}
        for attempt in range(3):
            refs = {
                number: self._replicas[number].act.remote([prompts[index] for index in indices])
                for number, indices in parts.items()
            }
            left: dict[int, list[int]] = {}
            for number, ref in refs.items():
                try:
                    answer = self.ray.get(ref)
                except self.ray.exceptions.RayActorError as error:
                    if attempt == 2:
                        raise EngineFailure(f"The policy's replica {number} died three times: {error}") from None
                    self._replicas[number] = self._class.remote(*self._arguments)
                    left[number] = parts[number]
                    continue
                if isinstance(answer, EnvsuiteError):
                    raise answer
                replies.update(zip(parts[number], answer, strict=True))
            parts = left
            if not parts:
                break
        return [replies[index] for index in range(len(prompts))]

    def _share(self, prompts: Sequence[Prompt]) -> dict[int, list[int]]:
        """Replica -> indices of the prompts it answers."""
        parts: dict[int, list[int]] = {number: [] for number in range(len(self._replicas))}
        strangers = []
        for index, prompt in enumerate(prompts):
            home = self._homes.get(prompt.key)
            if home is None:
                strangers.append(index)
            else:
                self._homes.move_to_end(prompt.key)
                parts[home].append(index)
        for index in strangers:
            number = min(parts, key=lambda one: len(parts[one]))
            parts[number].append(index)
            self._homes[prompts[index].key] = number
        while len(self._homes) > KNOWN:
            self._homes.popitem(last=False)
        return {number: indices for number, indices in parts.items() if indices}

    def close(self) -> None:
        for replica in self._replicas:
            self.ray.kill(replica)
