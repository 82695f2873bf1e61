"""The nouns of the harness: what crosses between policies, the rollout, evaluation and the trainers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from envsuite.types import StopReason, Task, knobs_json

Message = dict[str, Any]  # {"role": "system" | "user" | "assistant", "content": str, ...}, OpenAI's spelling


@dataclass(frozen=True)
class Episode:
    """One episode to be played: the record key, and what is needed to build its environment."""

    task: Task
    knobs: str  # canonical JSON of the settings that differ from the task's
    seed: int
    attempt: int = 0

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.task.id, self.knobs, self.seed, self.attempt

    def dice(self, turn: int) -> int:
        """A 63-bit seed for what is drawn at `turn`: addressed, so that batch and worker count change nothing."""
        return self.all_dice((turn,))[0]

    def all_dice(self, turns: Iterable[int]) -> list[int]:
        """The same for many turns, what they share hashed once."""
        start = hashlib.sha256(f"{self.task.id}\0{self.knobs}\0{self.seed}\0{self.attempt}\0".encode())
        found = []
        for turn in turns:
            one = start.copy()
            one.update(b"%d" % turn)
            found.append(int.from_bytes(one.digest()[:8], "big") >> 1)
        return found


def episode(task: Task, seed: int, attempt: int = 0, **knobs: Any) -> Episode:
    """An Episode from plain values; `knobs` must be checked already (`registry.overrides`)."""
    return Episode(task, knobs_json(knobs), seed, attempt)


class Prompt(NamedTuple):
    """What a policy is asked."""

    messages: Sequence[Message]
    admissible: Sequence[str] = ()
    seed: int = 0  # for this turn's dice
    key: str = ""  # the same for all turns of an episode: whose prefix may be cached
    advice: str | None = None  # what the environment's expert or random player says, where the policy asked for it
    turn: int = 0
    episode: Episode | None = None  # for policies that replay
    tools: Sequence[dict[str, Any]] = ()  # declared to servers and templates that know tools


@dataclass(slots=True)
class Reply:
    """What a policy says: the text, and the very tokens it sampled where it knows them."""

    text: str
    prompt_ids: Sequence[int] = ()
    ids: Sequence[int] = ()  # sampled tokens, an end-of-turn token included where it was sampled
    logprobs: Sequence[float] = ()  # of `ids`, full-vocabulary log-softmax at the sampling temperature
    finish_reason: str = "stop"  # "stop" | "length" | "context"
    dropped_turns: int = 0  # turns left out of the prompt because the context was full
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0  # USD, where known
    commands: tuple[str, ...] | None = None  # set by policies that choose commands themselves; else found in `text`
    error: str = ""  # the policy could not answer (a server died): the episode is broken, not failed
    extra: dict[str, Any] = field(default_factory=dict)


class Policy(Protocol):
    """Anything that answers a batch of prompts.

    `advice_kind` names what the environment is to advise: "" nothing, "random", "expert", or "expert:KIND"; a policy that asks
    is given the advice and no messages.
    `deterministic` is True where the same prompts always get the same replies, to the byte.
    """

    name: str
    advice_kind: str
    deterministic: bool

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Turn:
    """One exchange: what was shown, what was said, and what came of it."""

    observation: str
    """what the policy saw before it replied"""
    reply: Reply
    commands: tuple[str, ...]
    """what was done, in order; empty where no command was found in the reply"""
    reward: float
    info: dict[str, Any]
    """of the last command"""
    thought: str = ""
    fault: str = ""
    """"" | "format": no command found | "invalid": the environment could not do it | "length": cut off"""
    note: str = ""
    """what the harness, not the environment, says about the reply; shown with the next observation"""
    admissible: Sequence[str] = ()
    """what could have been said"""


@dataclass
class Trajectory:
    """One episode as played. Attempts at the same task, knobs and seed form a group."""

    episode: Episode
    instructions: str = ""
    objective: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    final_observation: str = ""
    terminated: bool = False
    truncated: bool = False
    success: bool = False
    progression: float = 0.0
    stop_reason: StopReason | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    error: str = ""  # what broke, where stop_reason is BROKEN
    seconds: float = 0.0

    @property
    def total_reward(self) -> float:
        return sum(turn.reward for turn in self.turns)

    @property
    def broken(self) -> bool:
        return self.stop_reason is StopReason.BROKEN
