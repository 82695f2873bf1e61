"""OpenEnv server for any task, and its client, so that environment and trainer can run on different machines.

app("BabyAI-goto-v0")            FastAPI application: /reset /step /state /schema /metadata /health /ws
Client("http://host:8000")       client of the server; TRL, SkyRL, verifiers and NeMo Gym can connect, too
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
    """Command of the player."""

    command: str = Field(description="one command, spelled as the instructions say")


class GameObservation(Observation):
    """Answer of the environment: its text and the fields of `info`."""

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


class GameServer(Environment[Command, GameObservation, State]):
    """Environment of one session."""

    def __init__(self, task: Task, reward_mode: RewardMode | str, knobs: dict[str, Any]) -> None:
        super().__init__()
        self._task = task
        self._env = registry.build(task, reward_mode, **knobs)
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> GameObservation:
        """Starts the game `seed`; the option `attempt` distinguishes repeated attempts at it."""
        text, info = self._env.reset(seed=seed, options={"attempt": int(options.get("attempt", 0))})
        self._state = State(episode_id=episode_id or f"{self._task.id}-{self._env.episode_seed}", step_count=0)
        fields = {"instructions": self._env.instructions, "objective": self._env.objective}
        return self._observation(text, info, reward=None, **fields)

    def step(self, action: Command, timeout_s: float | None = None, **options: Any) -> GameObservation:
        """Executes one command."""
        text, reward, terminated, truncated, info = self._env.step(action.command)
        self._state.step_count += 1
        return self._observation(text, info, reward=float(reward), done=terminated or truncated, truncated=truncated)

    @property
    def state(self) -> State:
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(
            name=self._task.id, description=self._task.summary or self._task.id, version=envsuite.__version__
        )

    def close(self) -> None:
        self._env.close()

    def _observation(self, text: str, info: dict[str, Any], **fields: Any) -> GameObservation:
        reason = info["stop_reason"]
        copied = ("success", "is_action_valid", "progression", "admissible_commands")
        return GameObservation(
            text=text, stop_reason=str(reason) if reason else None, **{name: info[name] for name in copied}, **fields
        )


class _SingleSessionServer(GameServer):
    """Serves one session at a time, for engines that cannot share a process."""


class _ConcurrentServer(GameServer):
    """Serves concurrent sessions."""

    SUPPORTS_CONCURRENT_SESSIONS = True


def app(task: str, reward_mode: RewardMode | str = RewardMode.SPARSE, max_sessions: int = 16, **knobs: Any) -> FastAPI:
    """Returns the server of one task, with one environment per session.

    Engines that cannot share a process serve one session at a time. Raises the errors of `envsuite.make` immediately.
    """
    (selected, *more) = registry.tasks(task)
    if more:
        raise UsageError(f"{task!r} matches {len(more) + 1} tasks: a server needs exactly one.")
    settings = registry.overrides(selected, knobs)
    cls = registry.env_class(selected)
    single_session = cls.needs_process(check_knobs(cls, {**selected.kwargs, **settings}))
    server = _SingleSessionServer if single_session else _ConcurrentServer
    server(selected, reward_mode, settings).close()
    return create_fastapi_app(
        lambda: server(selected, reward_mode, settings),
        Command,
        GameObservation,
        max_concurrent_envs=1 if single_session else max_sessions,
    )


class Client(EnvClient[Command, GameObservation, State]):
    """Client of a served task: `reset(seed=3)`, `step(Command(command="go forward"))`."""

    def _step_payload(self, action: Command) -> dict[str, Any]:
        return {"command": action.command}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[GameObservation]:
        fields = {"reward": payload.get("reward"), "done": payload.get("done", False)}
        observation = GameObservation(**{**payload["observation"], **fields})
        return StepResult(observation=observation, reward=observation.reward, done=observation.done)  # type: ignore[arg-type]

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)
