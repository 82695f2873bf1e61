"""Demonstrations: what the expert would have written, as conversations to fine-tune on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from harness.prompting.prompting import GRAMMARS, Past, Prompting
from harness.types import Message, Reply, Trajectory, Turn


def conversations(run: Trajectory, prompting: Prompting) -> list[list[Message]]:
    """The episode as chats, every reply spelled in the grammar that evaluation will parse.

    The messages are those of `prompting.messages`, so that what is learned is what will be asked: one chat of the whole
    episode where all turns are remembered, and with a window of history one chat per turn, whose last reply is the
    turn's.
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
    chats, past = [], Past()
    for place in range(len(spelled)) if prompting.history >= 0 else [len(spelled) - 1]:
        last = spelled[place]
        told = run.instructions, run.objective, spelled[:place], last.observation, last.admissible
        asked = prompting.messages(*told, past)
        chats.append([*asked, {"role": "assistant", "content": last.reply.text}])
    return chats


def demonstrations(runs: Iterable[Trajectory], prompting: Prompting) -> Iterator[dict[str, Any]]:
    """JSON objects of solved episodes: `messages` in OpenAI's spelling, and where they came from.

    One per episode; with a window of history one per turn, of which the last message alone is to be learned.
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
