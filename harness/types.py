"""Shared types of the harness: episodes, prompts, replies, policies, turns and trajectories."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from envsuite.tools import Tool
from envsuite.types import StopReason, Task, knobs_json

Message = dict[str, Any]
"""A chat message in OpenAI's format: {"role": "system" | "user" | "assistant" | "tool", "content": str, ...}
"""
ToolSchema = dict[str, Any]
"""A tool in OpenAI's function-tool schema"""


class ToolCall(NamedTuple):
    """A call of a tool as a model wrote it."""

    id: str
    name: str
    """may name no tool; "" if the call could not be read at all"""
    arguments: str
    """text that should be a JSON object"""


@dataclass(frozen=True)
class Episode:
    """One episode to play: its record key and the data needed to build its environment."""

    task: Task
    knobs: str
    """canonical JSON of the settings that differ from the task's defaults"""
    seed: int
    attempt: int = 0

    @property
    def key(self) -> tuple[str, str, int, int]:
        """(task id, knobs, seed, attempt)."""
        return self.task.id, self.knobs, self.seed, self.attempt

    def turn_seed(self, turn: int) -> int:
        """Returns a 63-bit random seed for `turn`, which depends only on the episode and the turn."""
        text = f"{self.task.id}\0{self.knobs}\0{self.seed}\0{self.attempt}\0{turn}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def episode(task: Task, seed: int, attempt: int = 0, **knobs: Any) -> Episode:
    """Builds an Episode from plain values; check `knobs` first with `registry.overrides`."""
    return Episode(task, knobs_json(knobs), seed, attempt)


class Prompt(NamedTuple):
    """One request to a policy."""

    messages: Sequence[Message]
    admissible: Sequence[str] = ()
    seed: int = 0
    """random seed of this turn"""
    key: str = ""
    """identifies the conversation: equal for all turns of an episode, used to cache prefixes"""
    advice: str | None = None
    """command of the environment's expert or random player, if the policy has an `advice_kind`"""
    turn: int = 0
    """number of earlier turns in this conversation"""
    episode: Episode | None = None
    """the episode played, for policies that replay records"""
    tools: Sequence[ToolSchema] = ()
    """tools to declare"""
    agent: int = 0
    """number, from 1, of the agent that acts; 0 if one player acts for all"""


@dataclass(slots=True)
class Reply:
    """A policy's answer: its text, and the sampled tokens if the policy knows them."""

    text: str
    """what the model wrote, with reasoning between <think> and </think>"""
    prompt_ids: Sequence[int] = ()
    ids: Sequence[int] = ()
    """sampled tokens, including an end-of-turn token if one was sampled"""
    logprobs: Sequence[float] = ()
    """of `ids`: log-softmax over the full vocabulary at the sampling temperature; over the tokens of
    `extra["allowed"]` if a policy sets it"""
    finish_reason: str = "stop"
    """stop | length | context; with `error`: silent (no answer) | refused (by the server)"""
    dropped_turns: int = 0
    """turns removed from the prompt to make it fit the context"""
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    """part of `output_tokens` that is reasoning, if the server reports it"""
    cost: float = 0.0
    """USD, if known"""
    estimated: tuple[int, int, float] | None = None
    """input tokens, output tokens and cost estimated from the texts, if the server sends no usage
    """
    calls: tuple[ToolCall, ...] = ()
    """tool calls that a server returned apart from the text, or that the prompt's grammar found in it"""
    commands: tuple[str, ...] | None = None
    """set by policies that choose commands directly; otherwise commands are parsed from `text`"""
    error: str = ""
    """why the policy could not answer (a server is down): the episode is broken, not failed"""
    extra: dict[str, Any] = field(default_factory=dict)


class Policy(Protocol):
    """A player: answers a batch of prompts.

    `advice_kind` names the advice that the environment adds to each prompt: "" for none, "random",
    "expert" or "expert:KIND"; a team has one name for each agent, joined by "+" (`advice_of`). A policy
    with advice receives no messages. `deterministic` is True if equal prompts always get byte-identical
    replies.
    """

    name: str
    advice_kind: str
    deterministic: bool

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        """Returns one reply per prompt, in order."""
        ...

    def close(self) -> None:
        """Releases memory, connections and processes."""
        ...


def advice_of(advice_kind: str, agent: int) -> str:
    """Returns the advice for one agent from a policy's `advice_kind`; "" if it gets none."""
    kinds = advice_kind.split("+")
    return kinds[agent - 1] if len(kinds) > 1 else advice_kind


@runtime_checkable
class IgnoresAdvice(Protocol):
    """Optional capability of a policy with an `advice_kind`: it receives messages and never sees the advice, which is
    stored in `Turn.advice`.
    """

    ignores_advice: bool


@runtime_checkable
class WatchesWeights(Protocol):
    """Optional capability of a policy: it notices when a server's weights change during a run."""

    def keep_weights(self, path: Path) -> None:
        """Compares the weights with the fingerprint in `path`, and writes that file if it does not
        exist.
        """
        ...

    def served_weights(self) -> Any:
        """Returns the present weights' fingerprint, None if they are not watched or cannot be told apart.

        Raises OSError if no server answers.
        """
        ...


@runtime_checkable
class HashesWeights(Protocol):
    """Optional capability of a policy: it knows a hash of its weights, equal on every machine."""

    def weights_hash(self) -> str:
        """Returns the hash; '' if it is not known, for example before a server's first answer."""
        ...


@runtime_checkable
class ReportsRetries(Protocol):
    """Optional capability of a policy: it names the requests that wait for their next try."""

    def retrying(self) -> list[tuple[str, float]]:
        """Returns the reason and the monotonic time of the next try of each such request. Any
        thread may call this.
        """
        ...


@runtime_checkable
class DescribesConnection(Protocol):
    """Optional capability of a policy: it describes its servers and their changes to requests."""

    def connection(self) -> dict[str, Any]:
        """Returns entries of config.json: `request_fields`, which servers changed, and `server`, if this
        process started it; {} if there is nothing to say.
        """
        ...


@dataclass(slots=True)
class Turn:
    """One exchange between a policy and an environment."""

    observation: str
    """text that the policy saw before it replied"""
    reply: Reply
    commands: tuple[str, ...]
    """executed commands in order; empty if the reply contained none"""
    reward: float
    info: dict[str, Any]
    """the environment's info after the last command"""
    thought: str = ""
    fault: str = ""
    """"" | "format": no command in the reply | "invalid": the environment refused it | "length":
    reply cut off | "thinking": reply cut off before its reasoning ended
    """
    note: str = ""
    """message of the harness about the reply, shown with the next observation"""
    admissible: Sequence[str] = ()
    """commands that were admissible before the reply"""
    agent: int = 0
    """the agent that acted, as in `Prompt`"""
    advice: str | None = None
    """the environment's advice before the reply, if the policy has an `advice_kind`"""


class HashChain(NamedTuple):
    """Hashes that bind the replies of an episode to their prompts (`harness.hash_chain`)."""

    weights: str
    """hash of the model's weights; '' if it is not known"""
    prompts: Sequence[str]
    """one hash per turn"""
    links: Sequence[str]
    """one hash per turn, which covers all turns up to it"""


@dataclass
class Trajectory:
    """A played episode. Attempts at the same task, knobs and seed form a group."""

    episode: Episode
    instructions: str = ""
    objective: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    tools: Sequence[Tool] = ()
    """the environment's tools"""
    turns: list[Turn] = field(default_factory=list)
    final_observation: str = ""
    terminated: bool = False
    truncated: bool = False
    success: bool = False
    progression: float = 0.0
    stop_reason: StopReason | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    artifacts: dict[str, Any] = field(default_factory=dict)
    """work products of the episode that the environment hands over at its end, such as a patch"""
    chain: HashChain | None = None
    error: str = ""
    """what broke, if `stop_reason` is BROKEN"""
    seconds: float = 0.0

    @property
    def total_reward(self) -> float:
        """Sum of the turns' rewards."""
        return sum(turn.reward for turn in self.turns)

    @property
    def broken(self) -> bool:
        """True if the infrastructure failed; such an episode has no score."""
        return self.stop_reason is StopReason.BROKEN
