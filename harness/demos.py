"""Demonstrations: what the expert would have written, as conversations to fine-tune on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from harness.prompting import GRAMMARS, Prompting
from harness.types import Message, Reply, Trajectory, Turn


def conversation(run: Trajectory, prompting: Prompting) -> list[Message]:
    """The whole episode as one chat, every reply spelled in the grammar that evaluation will parse.

    The messages are those of `prompting.messages` at the last turn, so that what is learned is what will be asked;
    with a history of n turns only the last n are in it.
    """
    grammar = GRAMMARS[prompting.grammar]
    spelled = [
        Turn(
            observation=turn.observation,
            reply=Reply(grammar.spell(turn.commands[-1], turn.thought) if turn.commands else turn.reply.text),
            commands=turn.commands,
            reward=turn.reward,
            info=turn.info,
            thought=turn.thought,
            admissible=turn.admissible,
        )
        for turn in run.turns
    ]
    last = spelled[-1]
    asked = prompting.messages(run.instructions, run.objective, spelled[:-1], last.observation, last.admissible)
    return [*asked, {"role": "assistant", "content": last.reply.text}]


def demonstrations(runs: Iterable[Trajectory], prompting: Prompting) -> Iterator[dict[str, Any]]:
    """One JSON object per solved episode: `messages` in OpenAI's spelling, and where they came from."""
    for run in runs:
        if run.success and run.turns:
            task, knobs, seed, attempt = run.episode.key
            yield {
                "messages": conversation(run, prompting),
                "task": task,
                "knobs": knobs,
                "seed": seed,
                "attempt": attempt,
                "num_turns": len(run.turns),
                "labels": run.labels,
            }
