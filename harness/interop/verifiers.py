"""Any task as an environment of `verifiers` 0.4: a taskset of its games, and an engine that plays the user.

vf-eval envsuite-verifiers --env.taskset.game TextWorld-w2-o3-q4-v0 ...     its command line; prime-rl takes the same id
load_environment(resolve_env_config({"taskset": {"id": "envsuite-verifiers", "game": ...}}))                from Python

The model reads what `envsuite-eval` would show it with its whole history, and its replies are read as there. Contract:
`verifiers.v1`, whose plugins are top-level modules: `envsuite_verifiers` is this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import verifiers.v1 as vf
from pydantic import Field
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.errors import MODEL_TRANSPORT_ERROR_EXIT_CODE
from verifiers.v1.runtimes import ProgramResult, Runtime

from envsuite import registry
from envsuite.errors import EngineFailure, UsageError
from envsuite.types import knobs_json
from harness.evaluate import Execution, RunConfig, open_slots, resolve_split
from harness.prompting.prompting import Prompting
from harness.rollout.executors import StepResult
from harness.rollout.loop import EpisodeState
from harness.types import Episode, Reply


class GamesConfig(vf.TasksetConfig):
    """Which games are played."""

    game: str = ""
    """a task, as `envsuite-eval --env` takes it"""
    knobs: dict[str, Any] = Field(default_factory=dict)
    split: str = ""
    episodes: int | None = None
    """seeds, from the split's number `first` on; None: a whole panel, or 100"""
    first: int = 0
    reward_mode: str = "sparse"


class GameData(vf.TaskData):
    """One game."""

    game: str
    knobs: str
    seed: int


class Game(vf.Task[GameData]):
    """Its reward is what the environment pays: see `GamesEnv.run`."""


class Games(vf.Taskset[Game, GamesConfig]):
    """The games of one task. Raises what `envsuite.make` raises, at once."""

    def __init__(self, config: GamesConfig) -> None:
        super().__init__(config)
        if not config.game:
            raise UsageError("Name a task: --env.taskset.game BabyAI-goto-v0; `envsuite-envs` lists them all.")
        (found, *others) = registry.tasks(config.game)
        if others:
            raise UsageError(f"{config.game!r} names {len(others) + 1} tasks: a taskset plays one.")
        task, split = resolve_split(found, config.split)
        knobs = registry.overrides(task, config.knobs)
        registry.build(task, config.reward_mode, **knobs).close()
        self.run = RunConfig(
            task, "verifiers", knobs, split, config.episodes, seed=config.first, reward_mode=config.reward_mode
        )

    def load(self) -> Iterator[Game]:
        task, knobs = self.run.task.id, knobs_json(self.run.knobs)
        for seed in self.run.seeds:
            yield Game(GameData(name=f"{task}#{seed}", game=task, knobs=knobs, seed=seed), self.config.task)


class GamesEnvConfig(vf.EnvConfig):
    """How they are played."""

    # What runs there is one request a turn: see `Chat`.
    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    grammar: str = "action"
    """how a command is spelled: a name of `harness.prompting.prompting.GRAMMARS`"""
    thinking: bool = True
    admissible: bool = True
    """list what may be said at every turn"""
    wording: str = "plain"
    max_turns: int | None = None
    """replies after which an episode counts as cut off; None: the task's own cap alone"""


class GamesEnv(vf.Env[GamesEnvConfig]):
    """Plays a game as the user of the model's conversation."""

    def __init__(self, config: GamesEnvConfig) -> None:
        # A conversation only grows: what was listed stays, and nothing said is forgotten.
        shown = "all" if config.admissible else "none"
        self._prompting = Prompting(config.grammar, config.thinking, admissible=shown, wording=config.wording)
        super().__init__(config)
        assert isinstance(self.taskset, Games)
        self._run = self.taskset.run
        self._idle: list[_Engine] = []

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Its trace's reward is the undiscounted return. An engine that breaks raises: no reward, and a retry if asked."""
        data = task.data
        assert isinstance(data, GameData)
        engine = self._idle.pop() if self._idle else _Engine(self._run)
        try:
            trace = await self._play(Episode(self._run.task, data.knobs, data.seed), engine, task, agents.agent)
        except BaseException:
            engine.close()  # it may be in the middle of a turn
            raise
        self._idle.append(engine)
        trace.info["envsuite"] = {"game": data.game, "knobs": data.knobs, "seed": data.seed}

    async def _play(self, episode: Episode, engine: _Engine, task: vf.Task, agent: vf.Agent) -> vf.Trace:
        state = EpisodeState.begin(episode, await engine.start(episode))
        system = state.prompt(self._prompting).messages[0]["content"]
        if task.data.system_prompt:
            system = f"{task.data.system_prompt}\n\n{system}"
        async with agent.interaction(task.with_data(system_prompt=system)) as interaction:
            while state.run.stop_reason is None:
                asked = state.prompt(self._prompting).messages[-1]["content"]
                segment = await interaction.turn(asked)
                if segment.terminated:  # the agent's own limits, or its failure: the trace says which
                    break
                state.reply = Reply(segment.last_reply)
                state.parsed = self._prompting.parse(state.reply.text)
                answered = await engine.step(state.parsed.commands, len(state.run.turns))
                state.take(answered, self.config.max_turns)
        run, trace = state.run, interaction.trace
        if not trace.ok:  # broken, not failed: no reward is better than a wrong one
            return trace
        trace.record_reward("return", run.total_reward)
        for name, value in {"success": run.success, "progression": run.progression, **run.metrics}.items():
            trace.record_metric(name, float(value))
        trace.record_metric("invalid", float(sum(bool(turn.fault) for turn in run.turns)))
        trace.info["stop_reason"] = str(run.stop_reason) if run.stop_reason else None
        return trace

    async def stop(self) -> None:
        while self._idle:
            self._idle.pop().close()


class _Engine:
    """One environment, in a process of its own where it needs one, and the thread that waits for it."""

    def __init__(self, config: RunConfig) -> None:
        self._slots = open_slots(config, Execution(max_concurrent=1), 1, "")
        self._thread = ThreadPoolExecutor(1, "envsuite")

    async def start(self, episode: Episode) -> StepResult:
        return await self._ask(self._slots.start, episode)

    async def step(self, commands: tuple[str, ...], turn: int) -> StepResult:
        return await self._ask(self._slots.step, commands, turn)

    async def _ask(self, ask: Any, *what: Any) -> StepResult:
        def answer() -> StepResult:
            ask(0, *what)
            ((_, shown),) = self._slots.poll()
            return shown

        shown = await asyncio.get_running_loop().run_in_executor(self._thread, answer)
        if shown.fatal:
            raise shown.fatal
        if shown.error:
            raise EngineFailure(shown.error)
        return shown

    def close(self) -> None:
        """After what it is doing now."""
        self._thread.submit(self._slots.close)
        self._thread.shutdown(wait=False)


class ChatConfig(vf.HarnessConfig):
    """Nothing to set."""


class Chat(vf.Harness[ChatConfig]):
    """What answers a turn where no other harness is named: one chat completion of the whole conversation.

    The bundled `null` does the same in a program of its own, which it installs first and starts again every turn.
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
        said: list[Any] = [{"role": "system", "content": system}] if system else []
        said += [{"role": "user", "content": prompt}] if isinstance(prompt, str) else map(message_to_wire, prompt or [])
        try:
            http = openai.DefaultAsyncHttpxClient(
                verify=endpoint.startswith("https:")
            )  # certificates take 50 ms to read
            async with openai.AsyncOpenAI(base_url=endpoint, api_key=secret, timeout=None, http_client=http) as client:
                await client.chat.completions.create(model=ctx.model, messages=said)
        except openai.APIConnectionError as error:
            return ProgramResult(MODEL_TRANSPORT_ERROR_EXIT_CODE, "", str(error))
        except openai.OpenAIError as error:
            return ProgramResult(1, "", f"{type(error).__name__}: {error}")
        return ProgramResult(0, "", "")  # the reply is in the trace, which the endpoint keeps
