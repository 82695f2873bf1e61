"""Demonstrations: an expert's episodes as conversations for supervised fine-tuning."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from envsuite.errors import UsageError
from envsuite.tools import Tool, call_of
from harness.prompting.grammars import GRAMMARS
from harness.prompting.prompting import Prompting
from harness.prompting.tool_calls import assistant_message, with_ids
from harness.reasoning import joined
from harness.types import Message, Reply, Trajectory, Turn


def conversations(run: Trajectory, prompting: Prompting) -> list[list[Message]]:
    """Converts an episode to chats whose replies use the grammar that evaluation parses.

    The messages come from `prompting.messages`, so that a model learns from the prompts it will
    see. With complete history there is one chat per episode, or per agent with its own player; with a limited
    history there is one chat per turn, which ends with its reply.
    """
    turns = [
        Turn(
            observation=turn.observation,
            reply=_reply(number, turn, run.tools, prompting),
            commands=turn.commands,
            reward=turn.reward,
            info=turn.info,
            thought=turn.thought,
            admissible=turn.admissible,
            agent=turn.agent,
        )
        for number, turn in enumerate(run.turns)
    ]
    chats = []
    ends = (
        range(len(turns))
        if prompting.history >= 0
        else {turn.agent: index for index, turn in enumerate(turns)}.values()
    )
    for index in ends:
        last = turns[index]
        messages = prompting.messages(
            run.instructions,
            run.objective,
            turns[:index],
            last.observation,
            last.admissible,
            run.labels,
            last.agent,
        )
        chats.append([*messages, assistant_message(last.reply.text, last.reply.calls)])
    return chats


def _reply(number: int, turn: Turn, tools: Sequence[Tool], prompting: Prompting) -> Reply:
    """Returns the reply that a model should give in an expert's turn. Raises UsageError without a tool for it."""
    if not turn.commands:
        return turn.reply
    command = turn.commands[-1]
    if not prompting.declares_tools:
        return Reply(GRAMMARS[prompting.grammar].spell(command, turn.thought))
    call = call_of(tools, command)
    if call is None:
        raise UsageError(f"No tool gives the expert's command {command!r}: choose another --action-grammar.")
    name, arguments = call
    calls = with_ids([(name, json.dumps(arguments, ensure_ascii=False))], number)
    return Reply(joined(turn.thought, ""), calls=calls)


def demonstrations(runs: Iterable[Trajectory], prompting: Prompting) -> Iterator[dict[str, Any]]:
    """Yields JSON objects for the solved episodes: `messages` in OpenAI's format and the episode's
    key.

    With complete history there is one object per episode and agent. With a limited history there is one per
    turn, and only its last message is a training target.
    """
    for run in runs:
        if run.success and run.turns:
            task, knobs, seed, attempt = run.episode.key
            for messages in conversations(run, prompting):
                yield {
                    "messages": messages,
                    **({"tools": prompting.tools(run.tools)} if prompting.declares_tools else {}),
                    "task": task,
                    "knobs": knobs,
                    "seed": seed,
                    "attempt": attempt,
                    "num_turns": len(run.turns),
                    "labels": run.labels,
                }
