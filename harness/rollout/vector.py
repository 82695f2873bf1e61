"""Executor for vector environments: one call steps all episodes that have a command, in this
process.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envsuite import registry
from envsuite.core import TextEnv
from envsuite.types import DEFAULT_SHAPING, Shaping, Task
from harness.rollout.hosts import NOT_A_FAILURE, EnvHost, StepResult, lost
from harness.types import Episode


def has_vector_env(task: Task, settings: dict[str, Any]) -> bool:
    """Returns True if a task has a vector environment whose games can skip a step, and its engine
    may share a process.
    """
    if not task.vector_entry_point or registry.env_class(task).needs_process(settings):
        return False
    return bool(getattr(registry.load(task.vector_entry_point), "takes_none", False))


class VectorExecutor:
    """An executor that steps all episodes through the task's vector environment
    (`Task.vector_entry_point`).

    Games are reset one by one and step together; a game without a command skips the step. If a step
    raises, the failing game is unknown: all participating episodes are played again, and from then
    on games step one by one, so that only the failing episode breaks.
    """

    def __init__(
        self,
        count: int,
        task: Task,
        knobs: str,
        reward_mode: str = "sparse",
        advice_kind: str = "",
        shaping: Shaping = DEFAULT_SHAPING,
    ) -> None:
        """`knobs` is the JSON of `Episode.knobs`. Every episode must have this task and these
        knobs.
        """
        self.count = count
        self._arguments = task, reward_mode, shaping, json.loads(knobs)
        self._envs: SyncVectorEnv | None = None
        self._hosts = [_VectorHost(self, number, reward_mode, advice_kind, shaping) for number in range(count)]
        self._answers: list[tuple[int, StepResult]] = []
        self._requests: dict[int, tuple[tuple[str, ...], int]] = {}
        self._together = True

    @property
    def envs(self) -> SyncVectorEnv:
        """The vector environment, created on first use, so that its errors appear when an episode
        starts.
        """
        if self._envs is None:
            task, reward_mode, shaping, knobs = self._arguments
            self._envs = registry.make_vec(
                task, self.count, reward_mode, **shaping.keywords(), autoreset_mode=AutoresetMode.DISABLED, **knobs
            )
        return self._envs

    def start(self, slot: int, episode: Episode) -> None:
        self._answers.append((slot, self._hosts[slot].start(episode)))

    def step(self, slot: int, commands: tuple[str, ...], turn: int) -> None:
        self._requests[slot] = commands, turn

    def poll(self, wait: bool = True) -> list[tuple[int, StepResult]]:
        answers, self._answers = self._answers, []
        requests, self._requests = self._requests, {}
        if requests and self._together:
            answers += self._play(requests)
        elif requests:
            for slot, turn in requests.items():
                answers += self._play({slot: turn})
        return answers

    def sources(self) -> Sequence[Any]:
        return ()

    def deadline(self) -> float | None:
        return None

    def _play(self, requests: dict[int, tuple[tuple[str, ...], int]]) -> list[tuple[int, StepResult]]:
        """Plays one turn in some games; a turn with several commands takes several steps."""
        answers = []
        try:
            turns = {slot: self._hosts[slot].turn(*request) for slot, request in requests.items()}
            pending = {slot: next(turn) for slot, turn in turns.items()}
            while pending:
                commands: Any = [pending.get(slot) for slot in range(self.count)]
                texts, rewards, terminated, truncated, infos = self.envs.step(commands)
                for slot in list(pending):
                    ends = bool(terminated[slot]), bool(truncated[slot])
                    step = texts[slot], float(rewards[slot]), *ends, info_of(infos, slot)
                    try:
                        pending[slot] = turns[slot].send(step)
                    except StopIteration as done:
                        del pending[slot]
                        answers.append((slot, done.value))
            return answers
        except NOT_A_FAILURE:
            raise
        except BaseException as error:  # also SystemExit
            if len(requests) == 1:
                return [(slot, self._hosts[slot].broke(error)) for slot in requests]
            self._together = False
            return [(slot, lost(f"{type(error).__name__}: {error}", suspect=True)) for slot in requests]

    def cancel(self) -> None:
        self._answers, self._requests = [], {}

    def close(self) -> None:
        if self._envs is not None:
            self._envs.close()
            self._envs = None


class _VectorHost(EnvHost):
    """A slot whose environment is part of a vector environment."""

    def __init__(self, executor: VectorExecutor, number: int, *config: Any) -> None:
        super().__init__(*config)
        self._executor, self._number = executor, number

    def _build(self, episode: Episode) -> TextEnv:
        env = self._executor.envs.envs[self._number]
        assert isinstance(env, TextEnv)
        return env

    def _reset(self, env: TextEnv, episode: Episode) -> tuple[str, dict[str, Any]]:
        envs, number = self._executor.envs, self._number
        seeds: list[int | None] = [None] * envs.num_envs
        seeds[number] = episode.seed
        mask = np.arange(envs.num_envs) == number
        texts, infos = envs.reset(seed=seeds, options={"reset_mask": mask, "attempt": episode.attempt})
        return str(texts[number]), info_of(infos, number)

    def close(self) -> None:
        self.env, self.built = None, ("", "")  # the vector environment closes it


def info_of(infos: dict[str, Any], number: int) -> dict[str, Any]:
    """Returns the `info` of one environment from the infos of a vector environment."""
    info = {}
    for key, column in infos.items():
        if f"_{key}" in infos and infos[f"_{key}"][number]:
            value = info_of(column, number) if isinstance(column, dict) else column[number]
            info[key] = value.item() if isinstance(value, np.generic) else value
    return info
