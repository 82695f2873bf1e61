"""A policy in several Ray actors: replicas of a local model on the cluster's GPUs or CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envsuite.errors import EngineFailure, EnvsuiteError, UsageError
from harness.cluster import connect
from harness.policies import make_policy
from harness.policies.affinity import ServerAffinity
from harness.types import Policy, Prompt, Reply

TIMES = 3
"""so often a replica may die of one batch"""


class PolicyWorker:
    """The inside of an actor."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self._arguments = name, options
        self._policy: Policy | None = None

    def versions(self) -> dict[str, str]:
        return connect.versions()

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

    A new conversation goes to the replica with the least to do. One that dies is replaced where the cluster has room,
    else its conversations move in with another, and what it was asked is asked again: since what is sampled depends on the
    prompt's own seed, nobody can tell.
    """

    advice_kind = ""

    STARTING = connect.SETTING_UP
    """seconds for a replica to get its place on a node and start; the model is read later"""
    SILENT = 3600.0
    """seconds for a batch, the reading of the model included"""

    def __init__(self, ray: Any, name: str, count: int, options: dict[str, Any]) -> None:
        self.ray, self.name, self._arguments = ray, name, (name, options)
        self.deterministic = False
        gpus = 1.0 if ray.cluster_resources().get("GPU", 0.0) and options.get("device") != "cpu" else 0.0
        needs = {"CPU": 1.0, **({"GPU": gpus} if gpus else {})}
        connect.check_room(ray, count, needs, "policy replicas")
        self._class = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0)(PolicyWorker)
        self._replicas = [self._class.remote(*self._arguments) for _ in range(count)]
        self._homes = ServerAffinity()
        born = [replica.versions.remote() for replica in self._replicas]
        try:
            self._wait(born, self.STARTING)
            for ref in born:
                connect.check_actor(ray, ref, "policy replica")
        except ray.exceptions.RayError as error:
            self.close()
            raise UsageError(f"A replica of {name} did not start: {connect.last_line(error)}") from None
        except EnvsuiteError:
            self.close()
            raise

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        parts: dict[int, list[int]] = {}
        homes = self._homes.share([prompt.key for prompt in prompts], range(len(self._replicas)))
        for index, number in enumerate(homes):
            parts.setdefault(number, []).append(index)
        replies: dict[int, Reply] = {}
        for attempt in range(TIMES):
            refs = {
                number: self._replicas[number].act.remote([prompts[index] for index in indices])
                for number, indices in parts.items()
            }
            self._wait(list(refs.values()), self.SILENT)
            parts = {
                number: indices for number, indices in parts.items() if not self._take(refs[number], indices, replies)
            }
            if not parts:
                break
            if attempt == TIMES - 1:
                raise EngineFailure(
                    f"A replica of {self.name} died {TIMES} times of the same prompts: see Ray's logs on its node (out of "
                    "memory?). What has ended is kept: --resume goes on."
                )
            self._replace(set(parts))
        return [replies[index] for index in range(len(prompts))]

    def _take(self, ref: Any, indices: list[int], replies: dict[int, Reply]) -> bool:
        """Whether the replica answered; an answer that its node took with it is none."""
        try:
            answer = self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as error:
            raise EngineFailure(f"A replica of {self.name}: {connect.last_line(error)}") from None
        except self.ray.exceptions.RayError:
            return False
        if isinstance(answer, EnvsuiteError):
            raise answer
        replies.update(zip(indices, answer, strict=True))
        return True

    def _wait(self, refs: list[Any], seconds: float) -> None:
        """Until all are answered or dead. Raises UsageError."""
        late = self.ray.wait(refs, num_returns=len(refs), timeout=seconds)[1]
        if late:
            raise UsageError(
                f"{len(late)} of {len(refs)} replicas of {self.name} did not answer within {seconds:.0f} s: see `ray status`. "
                "What has ended is kept: --resume goes on."
            )

    def _replace(self, numbers: set[int]) -> None:
        """New replicas in their places, or, where there is no room for one, another that lives. Raises UsageError."""
        for number in numbers:
            self.ray.kill(self._replicas[number])
            self._replicas[number] = self._class.remote(*self._arguments)
        born = [replica.versions.remote() for replica in self._replicas]
        ready = set(self.ray.wait(born, num_returns=len(born), timeout=self.STARTING)[0])
        living = [one for one, ref in zip(self._replicas, born, strict=True) if ref in ready and self._lives(ref)]
        if not living:
            raise UsageError(
                f"No replica of {self.name} lives, and the cluster had no room for another within {self.STARTING:.0f} s: see "
                "`ray status`, start its nodes again, and go on with --resume. What has ended is kept."
            )
        for number, replica in enumerate(self._replicas):
            if replica not in living:
                self.ray.kill(replica)
                self._replicas[number] = living[number % len(living)]

    def _lives(self, born: Any) -> bool:
        try:
            connect.check_actor(self.ray, born, "policy replica")
        except self.ray.exceptions.RayError:
            return False
        return True

    def close(self) -> None:
        for replica in self._replicas:
            self.ray.kill(replica)
