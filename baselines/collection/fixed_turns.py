"""Batches of a fixed number of turns, for episodes of any length (Verlog's fixed-turn batching).

Every lane plays one episode after another, and an update takes the next so many turns of each. An episode that is not over
at the edge of a batch is cut there, bootstraps from what it sees, and goes on in the next batch. Environments answer the
same to the same commands: going on is beginning anew with the replies it has had, without asking the model for them again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from envsuite.types import StopReason
from harness.types import Episode, Policy, Prompt, Reply, Trajectory

Key = tuple[str, str, int, int]
Cap = Callable[[Episode], int]
Play = Callable[[Sequence[Episode], Policy, Cap], list[Trajectory]]


@dataclass
class Lane:
    """Where a lane stands between two batches."""

    begun: int = 0
    """episodes so far"""
    episode: Episode | None = None
    """the one that is not over"""
    said: list[Reply] = field(default_factory=list)
    """in it"""


class Again:
    """A policy that says what was said before, and asks another for what was not."""

    def __init__(self, policy: Policy, said: Mapping[Key, Sequence[Reply]]) -> None:
        self.policy, self.said = policy, said
        self.name, self.advice_kind, self.deterministic = policy.name, policy.advice_kind, policy.deterministic

    def act(self, prompts: Sequence[Prompt]) -> list[Reply]:
        found = [self._known(prompt) for prompt in prompts]
        new = iter(self.policy.act([prompt for prompt, reply in zip(prompts, found, strict=True) if reply is None]))
        return [next(new) if reply is None else reply for reply in found]

    def _known(self, prompt: Prompt) -> Reply | None:
        said = self.said[prompt.episode.key] if prompt.episode else ()
        return said[prompt.turn] if prompt.turn < len(said) else None

    def close(self) -> None:
        self.policy.close()


def collect(
    lanes: Sequence[Lane], turns: int, most: int, following: Callable[[int, int], Episode], play: Play, policy: Policy
) -> list[tuple[Trajectory, int]]:
    """The next `turns` turns of every lane: each episode with the number of its first turn that is new.

    `most` turns end an episode (0: the environment alone does); `following(lane, k)` is a lane's k-th episode.
    """
    left = [turns] * len(lanes)
    taken: list[tuple[Trajectory, int]] = []
    while any(left):
        going: dict[Key, int] = {}
        for number, lane in enumerate(lanes):
            if left[number]:
                if lane.episode is None:
                    lane.episode, lane.said = following(number, lane.begun), []
                    lane.begun += 1
                going[lane.episode.key] = number
        caps = {one: len(lanes[number].said) + left[number] for one, number in going.items()}
        said = {one: lanes[number].said for one, number in going.items()}
        cap: Cap = lambda one, caps=caps: min(caps[one.key], most or caps[one.key])  # type: ignore[misc]
        todo = [episode for number in going.values() if (episode := lanes[number].episode)]
        for run in play(todo, Again(policy, said), cap):
            number = going[run.episode.key]
            lane, new = lanes[number], len(run.turns) - len(lanes[number].said)
            taken.append((run, len(lane.said)))
            left[number] -= max(1, new)  # what breaks at once must not be tried for ever
            if unfinished(run, most):
                lane.said = [turn.reply for turn in run.turns]
                left[number] = 0
            else:
                lane.episode, lane.said = None, []
    return taken


def unfinished(run: Trajectory, most: int) -> bool:
    """Whether an episode was cut at the edge of a batch, and by nothing else."""
    if run.broken or run.terminated or not run.turns or run.turns[-1].info["stop_reason"] is not None:
        return False
    return run.stop_reason is StopReason.MAX_TURNS and not (most and len(run.turns) >= most)


def since(run: Trajectory, first: int) -> Trajectory:
    """An episode from its turn `first` on."""
    part = copy.copy(run)
    part.turns = run.turns[first:]
    return part
