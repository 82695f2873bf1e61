"""Any task of envsuite as a task of inspect.

    inspect eval envsuite/play -T env=BabyAI-goto-v0 -T episodes=20 --model openai/gpt-4o-mini

A sample is a game and an epoch is an attempt at it. The model gets the prompts of `envsuite-eval`, also of a
published set-up (`-T protocol=balrog`), and its replies are parsed in the same way. If an environment breaks, its
sample has an error and no score.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser, GenerateConfig, ModelOutput
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import LimitExceededError

from envsuite.errors import UsageError
from envsuite.types import StopReason, knobs_json
from harness.evaluate import RunConfig
from harness.interop.chat_game import run_config
from harness.interop.engine import Engine
from harness.prompting import protocols
from harness.rollout.loop import EpisodeState
from harness.types import Episode, Message, Reply, Trajectory

ROLES: dict[str, Any] = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
SCORES = ("success", "reward", "progression")
LIMITS = {
    "message": StopReason.MAX_TURNS,
    "turn": StopReason.MAX_TURNS,
    "token": StopReason.MAX_TOKENS,
    "time": StopReason.TIMEOUT,
    "working": StopReason.TIMEOUT,
}
"""Our stop reasons for the limits of inspect; others, such as cost, are a budget."""
FINISHES = {"max_tokens": "length", "model_length": "context"}
"""Our finish reasons for the stop reasons of inspect; others are "stop"."""


@task(name="envsuite/play")
def play(
    env: str,
    episodes: int | None = None,
    split: str = "",
    seed: int = 0,
    reward: str = "sparse",
    max_turns: int | None = None,
    set: str | list[str] = "",
    protocol: str = "",
    history: int = -1,
    thinking: str = "on",
    admissible: str = "latest",
    action_grammar: str = "action",
) -> Task:
    """Plays games of one task. Its parameters are flags of `envsuite-eval`. Raises UsageError, BadKnob."""
    config = run_config(
        "inspect",
        env,
        set=set,
        split=split,
        episodes=episodes,
        seed=seed,
        reward=reward,
        max_turns=max_turns,
        protocol=protocol,
        history=history,
        thinking=thinking,
        admissible=admissible,
        action_grammar=action_grammar,
    )
    if config.prompting.declares_tools:
        raise UsageError("action_grammar=tools declares tools, which this task does not: use action_grammar=tool.")
    if protocol and protocols.load(protocol).conversation.style == "completion":
        raise UsageError(f"The protocol {protocol} is plain text without roles, and inspect sends conversations.")
    samples = [Sample(input=f"{config.task.id}, seed {seed}", id=seed) for seed in config.seeds]
    return Task(
        dataset=MemoryDataset(samples, name=config.task.id),
        solver=player(config),
        scorer=outcome(),
        config=_generation(config, protocol),
        metadata={"envsuite": config.identity()},
    )


def _generation(config: RunConfig, protocol: str) -> GenerateConfig:
    """Returns the sampling that a protocol fixes; otherwise it is left to inspect's options."""
    flags = protocols.load(protocol).flags if protocol else {}
    return GenerateConfig(
        temperature=flags.get("temperature"),
        max_tokens=flags.get("max_tokens"),
        stop_seqs=list(config.prompting.stop) or None,
    )


@solver
def player(config: RunConfig) -> Solver:
    """Plays one game per sample with the model that inspect evaluates."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        engine = Engine(config)
        episode = Episode(config.task, knobs_json(config.knobs), int(state.sample_id), state.epoch - 1)
        try:
            game = EpisodeState.begin(episode, await asyncio.to_thread(engine.start, episode))
            try:
                while game.run.stop_reason is None:
                    state.messages = _chat(game.prompt(config.prompting).messages)
                    state = await generate(state, tool_calls="none")
                    if game.answer(_reply(state.output), config.prompting, advised=False):
                        result = await asyncio.to_thread(engine.step, game.parsed.commands, len(game.run.turns))
                        game.take(result, config.max_turns)
            except (LimitExceededError, asyncio.CancelledError) as limit:  # inspect scores what was played
                kind = limit.type if isinstance(limit, LimitExceededError) else "time"
                game.run.truncated, game.run.stop_reason = True, LIMITS.get(kind, StopReason.BUDGET)
                raise
            finally:
                state.metadata["envsuite"] = _summary(game.run)
        finally:
            asyncio.get_running_loop().run_in_executor(None, engine.close)  # a cancelled step may still run
        state.completed = True
        return state

    return solve


@scorer(metrics={name: [mean(), stderr()] for name in SCORES})
def outcome() -> Scorer:
    """Returns success, reward and progression as the environment gives them."""

    async def score(state: TaskState, target: Target) -> Score:
        summary = state.metadata["envsuite"]
        return Score(value={name: float(summary[name]) for name in SCORES}, metadata=summary)

    return score


def _chat(messages: Sequence[Message]) -> list[Any]:
    return [ROLES[message["role"]](content=message["content"]) for message in messages]


def _reply(output: ModelOutput) -> Reply:
    """Returns the model's reply; its reasoning is written as models that think in text write it.

    A reply that does not fit the model's context ends the episode, as in `envsuite-eval`.
    """
    content = output.message.content
    text = content if isinstance(content, str) else "".join(map(_text_of, content))
    return Reply(text, finish_reason=FINISHES.get(output.stop_reason, "stop"))


def _text_of(content: Any) -> str:
    if content.type == "reasoning":
        return f"<think>{content.reasoning}</think>"
    return str(content.text) if content.type == "text" else ""


def _summary(run: Trajectory) -> dict[str, Any]:
    """Returns the outcome of an episode."""
    return {
        "success": run.success,
        "reward": run.total_reward,
        "progression": run.progression,
        "stop_reason": str(run.stop_reason) if run.stop_reason else None,
        "num_turns": len(run.turns),
        "faults": [turn.fault for turn in run.turns],
        "commands": [list(turn.commands) for turn in run.turns],
        "labels": run.labels,
        "metrics": run.metrics,
    }
