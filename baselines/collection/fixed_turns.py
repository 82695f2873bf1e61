"""Batches of a fixed number of turns, for episodes of any length (Verlog's fixed-turn batching).

Each stream plays one episode after another, and an update takes the next turns of each stream. An
episode that is unfinished at the end of a batch bootstraps from its observation there and continues
in the next batch. Environments answer equal commands equally, so that an episode is continued by
replaying its earlier replies without asking the model again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envsuite import registry
from envsuite.types import StopReason
from harness.types import Episode, Policy, Prompt, Reply, ToolCall, Trajectory
from harness.waiting import Forwarding

Key = tuple[str, str, int, int]
TurnLimit = Callable[[Episode], int]
Play = Callable[[Sequence[Episode], Policy, TurnLimit], list[Trajectory]]

REPLY_FIELDS = ("text", "prompt_ids", "ids", "logprobs", "finish_reason", "dropped_turns", "commands")
"""Fields of a reply that a checkpoint stores."""


@dataclass
class EpisodeStream:
    """The state of a stream between two batches."""

    started: int = 0
    """Episodes begun so far."""
    episode: Episode | None = None
    """The unfinished episode."""
    replies: list[Reply] = field(default_factory=list)
    """Its replies so far."""

    def state(self) -> dict[str, Any]:
        """Returns the stream as plain data for a checkpoint."""
        episode = self.episode
        key = None if episode is None else [episode.task.id, episode.knobs, episode.seed, episode.attempt]
        replies = []
        for reply in self.replies:
            fields = {name: getattr(reply, name) for name in REPLY_FIELDS}
            for name in ("prompt_ids", "ids", "logprobs"):
                fields[name] = list(fields[name])
            fields["commands"] = None if reply.commands is None else list(reply.commands)
            fields["calls"] = list(map(list, reply.calls))
            replies.append(fields)
        return {"started": self.started, "episode": key, "replies": replies}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> EpisodeStream:
        """Restores what `state` returned."""
        episode = None
        if state["episode"] is not None:
            task, knobs, seed, attempt = state["episode"]
            episode = Episode(registry.TASKS[task], knobs, seed, attempt)
        replies = []
        for fields in state["replies"]:
            commands = fields["commands"]
            values = {
                "commands": None if commands is None else tuple(commands),
                "calls": tuple(ToolCall(*call) for call in fields.get("calls", ())),
            }
            replies.append(Reply(**{**fields, **values}))
        return cls(state["started"], episode, replies)


class ReplayingPolicy(Forwarding):
    """Repeats the replies of unfinished episodes, and asks `policy` for everything after them."""

    def __init__(self, policy: Policy, replies: Mapping[Key, Sequence[Reply]]) -> None:
        self.policy, self.replies = policy, replies
        self.name, self.advice_kind, self.deterministic = policy.name, policy.advice_kind, policy.deterministic

    def known(self, prompt: Prompt) -> Reply | None:
        replies = self.replies[prompt.episode.key] if prompt.episode else ()
        return replies[prompt.turn] if prompt.turn < len(replies) else None

    def close(self) -> None:
        self.policy.close()


def collect(
    streams: Sequence[EpisodeStream],
    turns: int,
    max_turns: int,
    next_episode: Callable[[int, int], Episode],
    play: Play,
    policy: Policy,
) -> list[tuple[Trajectory, int]]:
    """Plays the next `turns` turns of every stream; returns each episode with the number of its
    first new turn.

    `max_turns` ends an episode (0: only the environment does); `next_episode(stream, k)` is a
    stream's k-th episode.
    """
    left = [turns] * len(streams)
    collected: list[tuple[Trajectory, int]] = []
    while any(left):
        active: dict[Key, int] = {}
        for number, stream in enumerate(streams):
            if not left[number]:
                continue
            if stream.episode is None:
                stream.episode, stream.replies = next_episode(number, stream.started), []
                stream.started += 1
            active[stream.episode.key] = number
        ends = {key: len(streams[number].replies) + left[number] for key, number in active.items()}
        replies = {key: streams[number].replies for key, number in active.items()}

        def turn_limit(episode: Episode, ends: dict[Key, int] = ends) -> int:
            return min(ends[episode.key], max_turns or ends[episode.key])

        episodes = [episode for number in active.values() if (episode := streams[number].episode)]
        for run in play(episodes, ReplayingPolicy(policy, replies), turn_limit):
            number = active[run.episode.key]
            stream = streams[number]
            new = len(run.turns) - len(stream.replies)
            collected.append((run, len(stream.replies)))
            left[number] -= max(1, new)  # an episode that breaks at once must not be retried for ever
            if unfinished(run, max_turns):
                stream.replies = [turn.reply for turn in run.turns]
                left[number] = 0
            else:
                stream.episode, stream.replies = None, []
    return collected


def unfinished(run: Trajectory, max_turns: int) -> bool:
    """Returns True if only the end of a batch cut the episode."""
    if run.broken or run.terminated or not run.turns or run.turns[-1].info["stop_reason"] is not None:
        return False
    return run.stop_reason is StopReason.MAX_TURNS and not (max_turns and len(run.turns) >= max_turns)


def turns_from(run: Trajectory, first: int) -> Trajectory:
    """Returns the episode from its turn `first` on."""
    part = copy.copy(run)
    part.turns = run.turns[first:]
    return part
