"""Conversations of mini-swe-agent: one shell command per reply, in a code block, and its output.

The templates are Jinja. A reply without exactly one code block is not shown again; an error message
takes its place.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from envsuite.errors import UsageError
from harness.prompting.grammars import Parsed
from harness.prompting.words import Words
from harness.types import Message, Turn

_BLOCK = re.compile(r"```mswea_bash_command\s*\n(.*?)\n```", re.DOTALL)
_SUBMIT = re.compile(r"echo\s+([\"']?)COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\1(\s|&|;|$)")
_RESULT = re.compile(r"exit code (-?\d+), in [^\n]*\n(.*)", re.DOTALL)
_SILENT = "(no output)"
"""shown by the environment for a command without output"""


def parse(text: str, commands: Sequence[str], default: str) -> Parsed:
    """Takes the code block, if there is exactly one. Each command runs in a new shell.

    The command that mini-swe-agent reads as a submission becomes `submit`.
    """
    blocks = _blocks(text)
    if len(blocks) != 1:
        return Parsed((), note=f"Expected exactly 1 action, found {len(blocks)}.")
    thought = text[: text.find("```mswea_bash_command")].strip()
    if _SUBMIT.match(blocks[0]):
        return Parsed(("submit",), thought)
    return Parsed((f"bash -c {shlex.quote(blocks[0])}",), thought)


def messages(texts: Words, task: str, turns: Sequence[Turn], observation: str) -> list[Message]:
    """Returns the conversation before the next command. Raises UsageError if jinja2 is missing."""
    chat: list[Message] = [
        {"role": "system", "content": _render(texts["system"])},
        {"role": "user", "content": _render(texts["instance"], task=task)},
    ]
    after = [*(turn.observation for turn in turns[1:]), observation]
    for turn, result in zip(turns, after, strict=False):  # before the first turn nothing has answered
        if turn.commands:
            chat.append({"role": "assistant", "content": turn.reply.text})
            chat.append({"role": "user", "content": _render(texts["observation"], output=command_output(result))})
        else:
            blocks = _blocks(turn.reply.text)
            error = f"Expected exactly 1 action, found {len(blocks)}."
            content = _render(texts["format_error"], error=error, actions=blocks, finish_reason="stop")
            chat.append({"role": "user", "content": content})
    return chat


def _blocks(text: str) -> list[str]:
    return [block.strip() for block in _BLOCK.findall(text)]


def command_output(observation: str) -> dict[str, Any]:
    """Returns the variables of a command's result, from the environment's observation."""
    result = _RESULT.match(observation)
    code, text = (int(result[1]), result[2]) if result else (1, observation)
    return {"output": "" if text == _SILENT else text, "returncode": code, "exception_info": ""}


def _render(template: str | Mapping[str, str], **variables: Any) -> str:
    assert isinstance(template, str)
    return str(_compiled(template).render(**variables))


@lru_cache(maxsize=64)
def _compiled(template: str) -> Any:
    try:
        from jinja2 import StrictUndefined
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise UsageError("The protocol mini-swe-agent needs jinja2: pip install 'envsuite[report]'.") from None
    return ImmutableSandboxedEnvironment(undefined=StrictUndefined).from_string(template)
