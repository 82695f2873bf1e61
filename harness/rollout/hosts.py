"""Environment hosts: build, reset and step environments, and turn their failures into results.

`EnvHost` is one slot's environment. `EnvHosts` holds the environments of a worker, which is a
process or a Ray actor.
"""

from __future__ import annotations

import contextlib
import json
import math
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from envsuite import registry
from envsuite.core import TextEnv
from envsuite.errors import DataError, EngineFailure, EnvsuiteError, MissingExtra, UsageError, did_you_mean
from envsuite.tools import Tool
from envsuite.types import DEFAULT_SHAPING, Shaping
from harness.types import Episode, advice_of

Step = tuple[str, float, bool, bool, dict[str, Any]]
"""Result of `TextEnv.step`."""
Request = tuple[Any, ...]
"""("start", slot, Episode) or ("step", slot, commands, turn)"""


class Terminated(BaseException):
    """Raised in a worker that receives SIGTERM."""


NOT_A_FAILURE = (KeyboardInterrupt, GeneratorExit, Terminated)
"""Exceptions that end the process's work; every other exception of an environment breaks its
episode.
"""


@dataclass(slots=True)
class StepResult:
    """An environment's answer to a reset or a turn."""

    observation: str
    info: dict[str, Any]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    advice: str | None = None
    done_commands: int = 0
    """number of the turn's commands that were executed"""
    instructions: str = ""
    """after a reset"""
    objective: str = ""
    """after a reset"""
    tools: Sequence[Tool] = ()
    """after a reset"""
    error: str = ""
    """the environment broke; all other fields are meaningless then"""
    lost: str = ""
    """with `error`: the worker died, and this environment is the "suspect" or a "bystander" """
    fatal: EnvsuiteError | None = field(default=None)
    """no episode of this kind can be played: the run must stop"""


def lost(why: str, suspect: bool) -> StepResult:
    """Returns the result of an environment whose worker died."""
    return StepResult("", {}, error=f"{EngineFailure.__name__}: {why}", lost="suspect" if suspect else "bystander")


def check_expert(env: type[TextEnv], advice_kind: str) -> None:
    """Raises UsageError if `advice_kind` is an expert or a blind player that the environment class does not have."""
    for kind in advice_kind.split("+"):
        _check_kind(env, kind)


def _check_kind(env: type[TextEnv], advice_kind: str) -> None:
    if advice_kind == "blind" and env.blind_script is TextEnv.blind_script:
        raise UsageError("The task has no blind player, because no script is natural: choose another policy.")
    name, _, kind = advice_kind.partition(":")
    if name != "expert" or kind in env.experts:
        return
    known = ["expert" if not expert else f"expert:{expert}" for expert in env.experts]
    if not known:
        raise UsageError("The task has no expert: choose another policy.")
    raise UsageError(
        f"The task has no expert {advice_kind!r}: it has {', '.join(known)}.{did_you_mean(advice_kind, known)}"
    )


class EnvHost:
    """The environment of one slot."""

    def __init__(self, reward_mode: str, advice_kind: str, shaping: Shaping = DEFAULT_SHAPING) -> None:
        self.reward_mode, self.advice_kind, self.shaping = reward_mode, advice_kind, shaping
        self.env: TextEnv | None = None
        self.built = ("", "")
        self._episode: Episode
        self._agent = 0  # who acts next, as in `Prompt`

    def start(self, episode: Episode) -> StepResult:
        """Resets the environment to an episode, and builds it first if the task or its knobs
        changed.
        """
        try:
            self._episode = episode
            if self.built != (episode.task.id, episode.knobs):
                self.close()
                self.env = self._build(episode)
                self.built = episode.task.id, episode.knobs
            assert self.env is not None
            text, info = self.env.reset(seed=episode.seed, options={"attempt": episode.attempt})
            _check(text, info)
            self._agent = info.get("agent", 0)
            return StepResult(
                text,
                info,
                advice=self._advice(0, info),
                instructions=self.env.instructions,
                objective=info.get("objective", ""),
                tools=tuple(self.env.tools),
            )
        except (UsageError, MissingExtra) as error:  # affects every episode
            return StepResult("", {}, fatal=error)
        except DataError as error:  # if nothing could be built, every episode; otherwise only this game
            return self.broke(error) if self.env else StepResult("", {}, fatal=error)
        except NOT_A_FAILURE:
            raise
        except BaseException as error:  # also SystemExit
            return self.broke(error)

    def _build(self, episode: Episode) -> TextEnv:
        if episode.task.id not in registry.TASKS:  # registered only in the parent process
            registry.register(episode.task)
        return registry.build(episode.task, self.reward_mode, **self.shaping.keywords(), **json.loads(episode.knobs))

    def step(self, commands: tuple[str, ...], turn: int) -> StepResult:
        """Plays one turn."""
        env = self.env
        if env is None:
            return StepResult("", {}, error="the environment was lost with its worker", lost="bystander")
        try:
            return self._turn(env, commands, turn)
        except NOT_A_FAILURE:
            raise
        except BaseException as error:  # also SystemExit
            return self.broke(error)

    def _turn(self, env: TextEnv, commands: tuple[str, ...], turn: int) -> StepResult:
        """Executes the commands of a turn, until one ends the episode or lets another agent act.

        Raises EngineFailure for values that no record can hold.
        """
        first, *following = commands or ("",)
        text, total, terminated, truncated, info = _checked(env.step(first))
        done = 1
        for command in following:
            if terminated or truncated or info.get("agent", 0) != self._agent:
                break
            valid = info["is_action_valid"]
            next_text, reward, terminated, truncated, info = _checked(env.step(command))
            info["is_action_valid"] = bool(valid and info["is_action_valid"])
            text, total, done = f"{text}\n{next_text}", total + reward, done + 1
        self._agent = info.get("agent", 0)
        advice = None if terminated or truncated else self._advice(turn + 1, info)
        return StepResult(text, info, total, terminated, truncated, advice, done)

    def _advice(self, turn: int, info: dict[str, Any]) -> str | None:
        """Returns the command that the expert or random player chooses at `turn`, which begins with
        `info`.
        """
        assert self.env is not None
        advice_kind = advice_of(self.advice_kind, info.get("agent", 0))
        if advice_kind == "random":
            return self.env.random_command(np.random.default_rng(self._episode.turn_seed(turn)))
        if advice_kind == "blind":
            return self.env.blind()
        if advice_kind.startswith("expert"):
            return self.env.expert(advice_kind.partition(":")[2])
        return None

    def broke(self, error: BaseException) -> StepResult:
        """Returns the result of a failure, and closes the engine: the next episode gets a new one."""
        self.close()
        details = "" if isinstance(error, EnvsuiteError) else "\n" + "".join(traceback.format_exception(error)[-3:])
        return StepResult("", {}, error=f"{type(error).__name__}: {error}{details}")

    def close(self) -> None:
        """Closes the environment; ignores its errors."""
        if self.env is not None:
            with contextlib.suppress(Exception, SystemExit):
                self.env.close()
        self.env, self.built = None, ("", "")


def _checked(step: Step) -> Step:
    """Returns the result of `TextEnv.step` with the reward as a float. Raises EngineFailure for values that no
    record can hold.
    """
    text, reward, terminated, truncated, info = step
    _check(text, info)
    value = float(reward)
    if not math.isfinite(value):
        raise EngineFailure(f"the environment's reward is {value}, not a finite number")
    return text, value, terminated, truncated, info


def _check(text: str, info: Mapping[str, Any]) -> None:
    """Raises EngineFailure for an observation or an `info` that prompts and records cannot hold: otherwise one
    environment would end the whole run.
    """
    if not isinstance(text, str):
        raise EngineFailure(f"the environment's observation is of type {type(text).__name__}, not a string")
    commands = info["admissible_commands"]
    if not all(issubclass(kind, str) for kind in set(map(type, commands))):
        raise EngineFailure("an admissible command of the environment is not a string")
    for name, value in info.get("metrics", {}).items():
        if not isinstance(value, (int, float)):
            raise EngineFailure(f"the environment's metric {name} is {value!r}, not a number"[:200])
    if "artifacts" in info:
        try:
            json.dumps(info["artifacts"])
        except (TypeError, ValueError) as error:
            raise EngineFailure(f"the environment's artifacts are not JSON: {error}") from error


class EnvHosts:
    """The environments of a worker, created on first use."""

    def __init__(self, config: tuple[str, str, Shaping]) -> None:
        """`config` has the arguments of `EnvHost`."""
        self._config = config
        self._by_slot: dict[int, EnvHost] = {}

    def answer(self, request: Request) -> tuple[int, StepResult]:
        """Executes a request; returns its slot and the result."""
        kind, slot, *arguments = request
        if slot not in self._by_slot:
            self._by_slot[slot] = EnvHost(*self._config)
        host = self._by_slot[slot]
        return slot, host.start(*arguments) if kind == "start" else host.step(*arguments)

    def close(self) -> None:
        for host in self._by_slot.values():
            host.close()
