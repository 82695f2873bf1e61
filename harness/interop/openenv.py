"""Any task behind OpenEnv's server, and a client of it: an environment on one machine, its trainer on another.

app("BabyAI-goto-v0")            a FastAPI application: /reset /step /state /schema /metadata /health /ws
Client("http://host:8000")       resets and steps it; TRL, SkyRL, verifiers and NeMo Gym speak to it likewise
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from pydantic import Field

import envsuite
from envsuite import registry
from envsuite.core import check_knobs
from envsuite.errors import UsageError
from envsuite.types import RewardMode, Task


class Command(Action):
    """What the player says."""

    command: str = Field(description="one command, spelled as the instructions say")


class Seen(Observation):
    """What an environment answers: its text, and what `info` holds."""

    text: str
    success: bool = False
    is_action_valid: bool = True
    truncated: bool = False
    progression: float = 0.0
    stop_reason: str | None = None
    admissible_commands: list[str] = Field(default_factory=list)
    instructions: str = ""
    """on reset"""
    objective: str = ""
    """on reset"""


class Served(Environment[Command, Seen, State]):
    """One session's environment."""

    def __init__(self, task: Task, reward_mode: RewardMode | str, knobs: dict[str, Any]) -> None:
        super().__init__()
        self._task = task
        self._env = registry.build(task, reward_mode, **knobs)
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Seen:
        """Starts the game `seed`; `attempt` among the options tells repeated tries at it apart."""
        text, info = self._env.reset(seed=seed, options={"attempt": int(options.get("attempt", 0))})
        self._state = State(episode_id=episode_id or f"{self._task.id}-{self._env.episode_seed}", step_count=0)
        told = {"instructions": self._env.instructions, "objective": self._env.objective}
        return self._seen(text, info, reward=None, **told)

    def step(self, action: Command, timeout_s: float | None = None, **options: Any) -> Seen:
        """Carries out one command."""
        text, reward, terminated, truncated, info = self._env.step(action.command)
        self._state.step_count += 1
        return self._seen(text, info, reward=float(reward), done=terminated or truncated, truncated=truncated)

    @property
    def state(self) -> State:
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(
            name=self._task.id, description=self._task.summary or self._task.id, version=envsuite.__version__
        )

    def close(self) -> None:
        self._env.close()

    def _seen(self, text: str, info: dict[str, Any], **told: Any) -> Seen:
        reason = info["stop_reason"]
        copied = ("success", "is_action_valid", "progression", "admissible_commands")
        return Seen(
            text=text, stop_reason=str(reason) if reason else None, **{name: info[name] for name in copied}, **told
        )


class _Alone(Served):
    """An engine that must not share a process with another of its kind: one session at a time."""


class _Beside(Served):
    SUPPORTS_CONCURRENT_SESSIONS = True


def app(task: str, reward_mode: RewardMode | str = RewardMode.SPARSE, max_sessions: int = 16, **knobs: Any) -> FastAPI:
    """The server of one task. Every session has an environment of its own; engines that must not share a process serve
    one session at a time. Raises what `envsuite.make` raises, at once.
    """
    (found, *others) = registry.tasks(task)
    if others:
        raise UsageError(f"{task!r} names {len(others) + 1} tasks: a server plays one.")
    settings = registry.overrides(found, knobs)
    cls = registry.env_class(found)
    alone = cls.needs_process(check_knobs(cls, {**found.kwargs, **settings}))
    kind = _Alone if alone else _Beside
    kind(found, reward_mode, settings).close()
    return create_fastapi_app(
        lambda: kind(found, reward_mode, settings), Command, Seen, max_concurrent_envs=1 if alone else max_sessions
    )


class Client(EnvClient[Command, Seen, State]):
    """Plays a served task: `reset(seed=3)`, `step(Command(command="go forward"))`."""

    def _step_payload(self, action: Command) -> dict[str, Any]:
        return {"command": action.command}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[Seen]:
        told = {"reward": payload.get("reward"), "done": payload.get("done", False)}
        seen = Seen(**{**payload["observation"], **told})
        return StepResult(observation=seen, reward=seen.reward, done=seen.done)  # type: ignore[arg-type]

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)
