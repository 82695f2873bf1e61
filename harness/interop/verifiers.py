"""Adapter of any task to `verifiers` 0.4: a taskset of games, and an environment that plays the user.

From the command line (prime-rl accepts the same id) and from Python:

    vf-eval envsuite-verifiers --env.taskset.game TextWorld-w2-o3-q4-v0 ...
    load_environment(resolve_env_config({"taskset": {"id": "envsuite-verifiers", "game": ...}}))

The model gets the same prompts as in `envsuite-eval` with the complete history, and its replies are parsed in the same
way. `verifiers.v1` defines the interface; its plugins are top-level modules, here `envsuite_verifiers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import openai
import verifiers.v1 as vf
from pydantic import Field
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.errors import MODEL_TRANSPORT_ERROR_EXIT_CODE
from verifiers.v1.runtimes import ProgramResult, Runtime

from envsuite import registry
from envsuite.errors import UsageError
from envsuite.types import knobs_json
from harness.evaluate import RunConfig, resolve_split
from harness.interop.chat_game import ChatGame, check_one_player
from harness.prompting.prompting import Prompting
from harness.prompting.rewording import check_wording


class GamesConfig(vf.TasksetConfig):
    """Selection of the games."""

    game: str = ""
    """task, in the spelling of `envsuite-eval --env`"""
    knobs: dict[str, Any] = Field(default_factory=dict)
    split: str = ""
    episodes: int | None = None
    """number of seeds from number `first` of the split; None: a complete panel, or 100"""
    first: int = 0
    reward_mode: str = "sparse"


class GameData(vf.TaskData):
    """Data of one game."""

    game: str
    knobs: str
    seed: int


class Game(vf.Task[GameData]):
    """Game whose reward comes from the environment, see `GamesEnv.run`."""


class Games(vf.Taskset[Game, GamesConfig]):
    """Games of one task. Raises the errors of `envsuite.make` immediately."""

    def __init__(self, config: GamesConfig) -> None:
        super().__init__(config)
        if not config.game:
            raise UsageError("Name a task: --env.taskset.game BabyAI-goto-v0; `envsuite envs` lists them all.")
        (selected, *more) = registry.tasks(config.game)
        if more:
            raise UsageError(f"{config.game!r} matches {len(more) + 1} tasks: a taskset needs exactly one.")
        task, split = resolve_split(selected, config.split)
        knobs = registry.overrides(task, config.knobs)
        registry.build(task, config.reward_mode, **knobs).close()
        self.run = RunConfig(
            task, "verifiers", knobs, split, config.episodes, seed=config.first, reward_mode=config.reward_mode
        )
        check_one_player(self.run)

    def load(self) -> Iterator[Game]:
        task, knobs = self.run.task.id, knobs_json(self.run.knobs)
        for seed in self.run.seeds:
            yield Game(GameData(name=f"{task}#{seed}", game=task, knobs=knobs, seed=seed), self.config.task)


class GamesEnvConfig(vf.EnvConfig):
    """Settings of the rollout."""

    # The runtime makes one request per turn, see `Chat`.
    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    grammar: str = "action"
    """format of commands: a name in `harness.prompting.grammars.GRAMMARS`"""
    thinking: bool = True
    admissible: bool = True
    """list the admissible commands every turn"""
    wording: str = "plain"
    max_turns: int | None = None
    """turns after which an episode is truncated; None: only the limit of the task"""


class GamesEnv(vf.Env[GamesEnvConfig]):
    """Environment that plays the role of the user in the model's conversation."""

    def __init__(self, config: GamesEnvConfig) -> None:
        # A conversation only grows, so that listed commands and replies stay in the history.
        result = "all" if config.admissible else "none"
        prompting = Prompting(config.grammar, config.thinking, admissible=result, wording=config.wording)
        if prompting.declares_tools:
            raise UsageError("grammar = 'tools' declares tools, which this environment does not: use 'tool'.")
        super().__init__(config)
        assert isinstance(self.taskset, Games)
        self._run = replace(self.taskset.run, prompting=prompting, max_turns=config.max_turns)
        check_wording(config.wording, self._run.task)
        self._idle: list[ChatGame] = []

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Plays one game; the reward of the trace is the undiscounted return. Raises if the engine breaks."""
        data = task.data
        assert isinstance(data, GameData)
        game = self._idle.pop() if self._idle else ChatGame(self._run)
        try:
            trace = await self._play(game, task, data.seed, agents.agent)
        except BaseException:
            asyncio.get_running_loop().run_in_executor(None, game.close)  # it can be in the middle of a turn
            raise
        self._idle.append(game)
        trace.info["envsuite"] = {"game": data.game, "knobs": data.knobs, "seed": data.seed}

    async def _play(self, game: ChatGame, task: vf.Task, seed: int, agent: vf.Agent) -> vf.Trace:
        await asyncio.to_thread(game.begin, seed)
        system = game.messages[0]["content"]
        if task.data.system_prompt:
            system = f"{task.data.system_prompt}\n\n{system}"
        async with agent.interaction(task.with_data(system_prompt=system)) as interaction:
            while not game.done:
                segment = await interaction.turn(game.messages[-1]["content"])
                if segment.terminated:  # a limit or a failure of the agent, as stated in the trace
                    break
                await asyncio.to_thread(game.reply, segment.last_reply)
        run, trace = game.run, interaction.trace
        if not trace.ok:  # broken, not failed: no reward instead of a wrong one
            return trace
        trace.record_reward("return", run.total_reward)
        for name, value in game.metrics().items():
            trace.record_metric(name, value)
        trace.info["stop_reason"] = str(run.stop_reason) if run.stop_reason else None
        return trace

    async def stop(self) -> None:
        while self._idle:
            self._idle.pop().close()


class ChatConfig(vf.HarnessConfig):
    """Configuration without settings."""


class Chat(vf.Harness[ChatConfig]):
    """Default harness: answers each turn with one chat completion of the complete conversation.

    The `null` harness of verifiers does the same in a separate program, which it installs and restarts every turn.
    """

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
        tool_interception_url: str | None = None,
    ) -> ProgramResult:
        system, prompt = self.resolve_prompt(data)
        chat: list[Any] = [{"role": "system", "content": system}] if system else []
        chat += [{"role": "user", "content": prompt}] if isinstance(prompt, str) else map(message_to_wire, prompt or [])
        try:
            # Without TLS, skip loading the certificates, which takes 50 ms.
            http = openai.DefaultAsyncHttpxClient(verify=endpoint.startswith("https:"))
            async with openai.AsyncOpenAI(base_url=endpoint, api_key=secret, timeout=None, http_client=http) as client:
                await client.chat.completions.create(model=ctx.model, messages=chat)
        except openai.APIConnectionError as error:
            return ProgramResult(MODEL_TRANSPORT_ERROR_EXIT_CODE, "", str(error))
        except openai.OpenAIError as error:
            return ProgramResult(1, "", f"{type(error).__name__}: {error}")
        return ProgramResult(0, "", "")  # the endpoint has stored the reply in the trace
