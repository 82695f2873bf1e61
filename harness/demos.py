"""Demonstrations: an expert's episodes as conversations for supervised fine-tuning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from harness.prompting.grammars import GRAMMARS
from harness.prompting.prompting import Past, Prompting
from harness.types import Message, Reply, Trajectory, Turn


def conversations(run: Trajectory, prompting: Prompting) -> list[list[Message]]:
    """Converts an episode to chats whose replies use the grammar that evaluation parses.

    The messages come from `prompting.messages`, so that a model learns from the prompts it will
    see. With complete history there is one chat per episode; with a limited history there is one
    chat per turn, which ends with its reply.
    """
    grammar = GRAMMARS[prompting.grammar]
    turns = [
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
    chats = []
    past = Past()
    for index in range(len(turns)) if prompting.history >= 0 else [len(turns) - 1]:
        last = turns[index]
        messages = prompting.messages(
            run.instructions, run.objective, turns[:index], last.observation, last.admissible, past, run.labels
        )
        chats.append([*messages, {"role": "assistant", "content": last.reply.text}])
    return chats


def demonstrations(runs: Iterable[Trajectory], prompting: Prompting) -> Iterator[dict[str, Any]]:
    """Yields JSON objects for the solved episodes: `messages` in OpenAI's format and the episode's
    key.

    With complete history there is one object per episode. With a limited history there is one per
    turn, and only its last message is a training target.
    """
    for run in runs:
        if run.success and run.turns:
            task, knobs, seed, attempt = run.episode.key
            for messages in conversations(run, prompting):
                yield {
                    "messages": messages,
                    "task": task,
                    "knobs": knobs,
                    "seed": seed,
                    "attempt": attempt,
                    "num_turns": len(run.turns),
                    "labels": run.labels,
                }
