"""Slots that are the seats of one vector environment: a turn of all episodes is one call, in this process."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envsuite import registry
from envsuite.core import TextEnv
from envsuite.types import Task
from harness.rollout.executors import EnvHost, StepResult, lost
from harness.types import Episode


def seated(task: Task, settings: dict[str, Any]) -> bool:
    """Whether a task has a vector environment whose games can sit out a turn, and its engine may share a process."""
    if not task.vector_entry_point or registry.env_class(task).needs_process(settings):
        return False
    return bool(getattr(registry.load(task.vector_entry_point), "takes_none", False))


class VectorExecutor:
    """`count` seats of a task's own vector environment (`Task.vector_entry_point`).

    Seats are reset one by one and step together; one whose slot was not asked sits out. Should a step raise, nobody
    knows in whose game: all that took part are played again from their start, and from then on seats step one by one, so
    that only the one that breaks is broken.
    """

    def __init__(
        self,
        count: int,
        task: Task,
        knobs: str,
        reward_mode: str = "sparse",
        advice_kind: str = "",
        shaping_gamma: float = 0.99,
    ) -> None:
        """`knobs`: as in `Episode`. Every episode must be of this task and these knobs."""
        self.count = count
        self._made_of = task, reward_mode, shaping_gamma, json.loads(knobs)
        self._envs: SyncVectorEnv | None = None
        self._seats = [_Seat(self, number, reward_mode, advice_kind, shaping_gamma) for number in range(count)]
        self._answers: list[tuple[int, StepResult]] = []
        self._asked: dict[int, tuple[tuple[str, ...], int]] = {}
        self._together = True

    @property
    def envs(self) -> SyncVectorEnv:
        """Made when first asked for, so that what is wrong with the task is said where episodes start."""
        if self._envs is None:
            task, reward_mode, gamma, knobs = self._made_of
            self._envs = registry.make_vec(
                task, self.count, reward_mode, shaping_gamma=gamma, autoreset_mode=AutoresetMode.DISABLED, **knobs
            )
        return self._envs

    def start(self, slot: int, episode: Episode) -> None:
        self._answers.append((slot, self._seats[slot].start(episode)))

    def step(self, slot: int, commands: tuple[str, ...], turn: int) -> None:
        self._asked[slot] = commands, turn

    def poll(self, wait: bool = True) -> list[tuple[int, StepResult]]:
        answers, self._answers = self._answers, []
        asked, self._asked = self._asked, {}
        if asked and self._together:
            answers += self._play(asked)
        elif asked:
            for slot, turn in asked.items():
                answers += self._play({slot: turn})
        return answers

    def _play(self, asked: dict[int, tuple[tuple[str, ...], int]]) -> list[tuple[int, StepResult]]:
        """A turn of some seats; where they have several commands, one after another."""
        answers = []
        try:
            turns = {slot: self._seats[slot].turn(*what) for slot, what in asked.items()}
            said = {slot: next(turn) for slot, turn in turns.items()}
            while said:
                commands: Any = [said.get(slot) for slot in range(self.count)]
                texts, rewards, terminated, truncated, infos = self.envs.step(commands)
                for slot in list(said):
                    over = bool(terminated[slot]), bool(truncated[slot])
                    try:
                        said[slot] = turns[slot].send((texts[slot], float(rewards[slot]), *over, info_of(infos, slot)))
                    except StopIteration as done:
                        del said[slot]
                        answers.append((slot, done.value))
            return answers
        except Exception as error:
            if len(asked) == 1:
                return [(slot, self._seats[slot].broke(error)) for slot in asked]
            self._together = False
            return [(slot, lost(f"{type(error).__name__}: {error}", suspect=True)) for slot in asked]

    def close(self) -> None:
        if self._envs is not None:
            self._envs.close()
            self._envs = None


class _Seat(EnvHost):
    """A slot whose environment belongs to a vector environment."""

    def __init__(self, slots: VectorExecutor, number: int, *config: Any) -> None:
        super().__init__(*config)
        self._slots, self._number = slots, number

    def _build(self, episode: Episode) -> TextEnv:
        env = self._slots.envs.envs[self._number]
        assert isinstance(env, TextEnv)
        return env

    def _reset(self, env: TextEnv, episode: Episode) -> tuple[str, dict[str, Any]]:
        envs, number = self._slots.envs, self._number
        seeds: list[int | None] = [None] * envs.num_envs
        seeds[number] = episode.seed
        mask = np.arange(envs.num_envs) == number
        texts, infos = envs.reset(seed=seeds, options={"reset_mask": mask, "attempt": episode.attempt})
        return str(texts[number]), info_of(infos, number)

    def close(self) -> None:
        self.env, self.built = None, ("", "")  # the vector environment closes it


def info_of(infos: dict[str, Any], number: int) -> dict[str, Any]:
    """The `info` of one environment out of what a vector environment gives."""
    found = {}
    for key, column in infos.items():
        if f"_{key}" in infos and infos[f"_{key}"][number]:
            value = info_of(column, number) if isinstance(column, dict) else column[number]
            found[key] = value.item() if isinstance(value, np.generic) else value
    return found
