"""The expert's next command in a prompt: what a teacher reads, and the student does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from harness.prompting.demos import demonstrations
from harness.prompting.prompting import Prompting
from harness.types import Message, Trajectory

LINE = "The expert's next command: {command}"


def with_advice(messages: Iterable[Message], command: str, prompting: Prompting) -> list[Message]:
    """Returns a prompt whose last message ends with the expert's command, in the words of the prompt."""
    *earlier, last = messages
    line = LINE.format(command=prompting.reword(command))
    return [*earlier, {**last, "content": f"{last['content']}\n{line}"}]


def advised_demonstrations(runs: Iterable[Trajectory], prompting: Prompting) -> Iterator[dict[str, Any]]:
    """Yields the demonstrations of the solved episodes, a turn each, with the expert's command in the prompt.

    They teach a model to follow the line that its teacher reads. `prompting.history` is limited.
    """
    for run in runs:
        for turn, line in zip(run.turns, demonstrations([run], prompting), strict=False):
            *prompt, reply = line["messages"]
            if turn.commands:
                yield {**line, "messages": [*with_advice(prompt, turn.commands[-1], prompting), reply]}
