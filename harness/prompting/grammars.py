"""Grammars: formats in which models write commands, and their parsers.

The default grammar is `<think>...</think><action>...</action>` (verl-agent, GiGPO).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from envsuite.errors import UsageError
from envsuite.tools import BadArguments, Tool
from harness.prompting.tool_calls import command_of
from harness.reasoning import separate
from harness.types import ToolCall


class Parsed(NamedTuple):
    """Content of a reply: commands and reasoning."""

    commands: tuple[str, ...]
    """empty if the reply contains no command"""
    thought: str = ""
    note: str = ""
    """message to the model if the reply contains no command"""
    substitute: bool = False
    """whether the commands are a protocol's substitute for a reply that it does not understand"""
    calls: tuple[ToolCall, ...] = ()
    """all tool calls of the reply; only the first one becomes a command"""


class Grammar(Protocol):
    """Format in which a model writes its command."""

    stop: tuple[str, ...]
    """strings that end a reply"""
    declares_tools: bool
    """whether the environment's tools are declared to the model, and their calls are commands"""

    def describe(self, thinking: bool) -> str:
        """Returns the format's instructions for the system message."""
        ...

    def parse(self, text: str) -> Parsed:
        """Extracts commands and reasoning from a reply."""
        ...

    def spell(self, command: str, thought: str) -> str:
        """Writes a reply with `command`, as used in history and demonstrations."""
        ...


class _Text:
    """Base class of grammars in which a reply is text alone."""

    stop: tuple[str, ...] = ()
    declares_tools = False


_ACTION = re.compile(r"<action>(.*?)(?:</action>|\Z)", re.DOTALL)


class ActionTags(_Text):
    """`<think>...</think><action>...</action>`; the last action counts, even if its closing tag is
    cut off.
    """

    stop: tuple[str, ...] = ("</action>",)

    def describe(self, thinking: bool) -> str:
        if thinking:
            return (
                "Each turn, first reason about what to do between <think> and </think>, "
                "then give exactly one command between <action> and </action>."
            )
        return "Each turn, answer with exactly one command between <action> and </action>, and nothing else."

    def parse(self, text: str) -> Parsed:
        thought, answer = separate(text)  # a command quoted while reasoning is not the command
        commands = [command.strip() for command in _ACTION.findall(answer)]
        commands = [command for command in commands if command]
        if not commands:
            return Parsed((), thought, "Your reply held no command between <action> and </action>.")
        return Parsed((commands[-1],), thought)

    def spell(self, command: str, thought: str) -> str:
        return (f"<think>{thought}</think>" if thought else "") + f"<action>{command}</action>"


class BareLine(_Text):
    """The last non-empty line outside <think> blocks is the command."""

    def describe(self, thinking: bool) -> str:
        if thinking:
            return "Each turn, you may reason first; the last line of your answer must be the command alone."
        return "Each turn, answer with the command alone, on one line."

    def parse(self, text: str) -> Parsed:
        thought, answer = separate(text)
        lines = [line.strip() for line in answer.splitlines() if line.strip()]
        if not lines:
            return Parsed((), thought, "Your reply held no command.")
        return Parsed((lines[-1].removeprefix(">").strip(),), thought or "\n".join(lines[:-1]))

    def spell(self, command: str, thought: str) -> str:
        return f"{thought}\n{command}" if thought else command


class ManyActions(ActionTags):
    """Several `<action>...</action>` per reply, executed in order until the episode ends (RAGEN,
    AgentGym).
    """

    most = 5
    """maximum number of commands per reply"""
    stop: tuple[str, ...] = ()

    def describe(self, thinking: bool) -> str:
        first = "first reason between <think> and </think>, then " if thinking else ""
        return (
            f"Each turn, {first}give one to {self.most} commands, each between its own <action> and </action>; "
            "they are carried out in order."
        )

    def parse(self, text: str) -> Parsed:
        parsed = super().parse(text)
        commands = [command.strip() for command in _ACTION.findall(separate(text)[1])]
        return parsed._replace(commands=tuple([command for command in commands if command][: self.most]))


class ReAct(_Text):
    """`Thought: ...` and `Action: ...` lines (Yao et al., 2023); text after the first action is
    ignored.
    """

    stop: tuple[str, ...] = ("\nObservation",)

    _line = re.compile(r"^\s*(?:act(?:ion)?)\s*\d*\s*:[ \t]*(.*)$", re.IGNORECASE | re.MULTILINE)
    _thought = re.compile(r"^\s*(?:thought|think)\s*\d*\s*:[ \t]*(.*)$", re.IGNORECASE | re.MULTILINE)

    def describe(self, thinking: bool) -> str:
        form = "Thought: your reasoning\nAction: one command" if thinking else "Action: one command"
        return f"Each turn, answer in this form, and stop after the action:\n{form}"

    def parse(self, text: str) -> Parsed:
        # The first action counts: models that continue invent observations and act on them.
        command = next((match.strip() for match in self._line.findall(text) if match.strip()), "")
        thought = "\n".join(line.strip() for line in self._thought.findall(text))
        if not command:
            return Parsed((), thought, "Your reply held no line 'Action: ...'.")
        return Parsed((command,), thought)

    def spell(self, command: str, thought: str) -> str:
        return (f"Thought: {thought}\n" if thought else "") + f"Action: {command}"


class FencedCommand(_Text):
    """A thought, then one block ```bash ... ``` with a shell command (SWE-agent, mini-swe-agent).

    A fence inside a here-document belongs to its text. A reply with no block, several blocks or an
    unfinished one has no command.
    """

    _opening = re.compile(r"```(?:bash|sh|shell)[ \t]*")
    _document = re.compile(r"(?<!<)<<(-?)[ \t]*(['\"]?)([A-Za-z_]\w*)\2")

    def describe(self, thinking: bool) -> str:
        first = "reason briefly about what to do, then give" if thinking else "give"
        return (
            f"Each turn, {first} exactly one command in one code block, and nothing after it. "
            "The command may have several lines:\n```bash\nyour command\n```"
        )

    def parse(self, text: str) -> Parsed:
        reasoning, answer = separate(text)
        blocks, before = self._blocks(answer.split("\n"))
        thought = f"{reasoning}\n{before}".strip()
        if len(blocks) != 1 or not blocks[0]:
            return Parsed((), thought, f"Your reply held {len(blocks)} code blocks ```bash; write exactly one.")
        return Parsed((blocks[0],), thought)

    def _blocks(self, lines: Sequence[str]) -> tuple[list[str], str]:
        """Returns the finished blocks, and the text before the first one."""
        blocks: list[str] = []
        before: list[str] = []
        number = 0
        while number < len(lines):
            if not self._opening.fullmatch(lines[number].rstrip("\r")):
                before += [] if blocks else [lines[number]]
                number += 1
                continue
            end = self._end(lines, number + 1)
            if end is None:
                break
            blocks.append("\n".join(lines[number + 1 : end]).strip())
            number = end + 1
        return blocks, "\n".join(before).strip()

    def _end(self, lines: Sequence[str], start: int) -> int | None:
        """Returns the line of the fence that closes a block; None if there is none."""
        documents: list[tuple[str, bool]] = []
        fences = []
        for number in range(start, len(lines)):
            line = lines[number].rstrip("\r")
            if line.rstrip() == "```":
                fences.append(number)
                if not documents:
                    return number
            elif documents:
                word, indented = documents[0]
                if (line.lstrip("\t") if indented else line) == word:
                    documents.pop(0)
            else:
                documents = [(match[3], bool(match[1])) for match in self._document.finditer(line)]
        return fences[0] if fences else None  # what looked like a here-document never ended

    def spell(self, command: str, thought: str) -> str:
        return (f"{thought}\n\n" if thought else "") + f"```bash\n{command}\n```"


class JsonCommand(_Text):
    """One call of the tool `act(command)` as JSON: bare, fenced, or in `<tool_call>` tags (Hermes,
    Qwen).
    """

    stop: tuple[str, ...] = ("</tool_call>",)

    def describe(self, thinking: bool) -> str:
        first = "You may reason first. Then " if thinking else ""
        return f"Each turn, {first}call one tool, as JSON in these tags and nothing after them:\n" + self.spell(
            "your command", ""
        )

    def parse(self, text: str) -> Parsed:
        thought, answer = separate(text)
        calls = [call for call in _json_objects(answer) if self.command(call)]
        if not calls:
            return Parsed((), thought, "Your reply held no tool call that could be read.")
        return Parsed((self.command(calls[0]),), thought)

    def command(self, call: dict[str, Any]) -> str:
        """Returns the command of a tool call, or '' if the JSON object contains none."""
        call = call.get("function", call) if isinstance(call.get("function"), dict) else call
        arguments = call.get("arguments", call.get("parameters", call))
        if isinstance(arguments, str):
            arguments = next(iter(_json_objects(arguments)), {})
        command = arguments.get("command", arguments.get("action", "")) if isinstance(arguments, dict) else ""
        return command.strip() if isinstance(command, str) else ""

    def spell(self, command: str, thought: str) -> str:
        call = json.dumps({"name": "act", "arguments": {"command": command}}, ensure_ascii=False)
        return (f"<think>{thought}</think>" if thought else "") + f"<tool_call>{call}</tool_call>"


class NativeCalls:
    """Calls of the environment's tools, which servers and chat templates support themselves."""

    stop: tuple[str, ...] = ()
    declares_tools = True

    def describe(self, thinking: bool) -> str:
        first = "you may reason first, then " if thinking else ""
        return f"Each turn, {first}call exactly one of the tools. They carry out the commands."

    def parse(self, text: str) -> Parsed:
        return Parsed((), separate(text)[0], "Your reply called no tool.")

    def spell(self, command: str, thought: str) -> str:
        raise UsageError("Grammar 'tools' has no text for a command: choose another --action-grammar.")

    def parse_calls(self, text: str, calls: tuple[ToolCall, ...], tools: Sequence[Tool]) -> Parsed:
        """Extracts the command from the calls of a reply, which are only empty if it has none."""
        parsed = self.parse(text)
        if not calls:
            return parsed
        try:
            return Parsed((command_of(calls[0], tools),), parsed.thought, calls=calls)
        except BadArguments as error:
            return Parsed((), parsed.thought, str(error), calls=calls)


def _json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yields the outermost JSON objects in `text`, in order, and skips all other text."""
    decoder, start = json.JSONDecoder(), text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
            continue
        if isinstance(value, dict):
            yield value
        start = text.find("{", end)


GRAMMARS: dict[str, Grammar] = {
    "action": ActionTags(),
    "actions": ManyActions(),
    "bare": BareLine(),
    "react": ReAct(),
    "bash": FencedCommand(),
    "tool": JsonCommand(),
    "tools": NativeCalls(),
}
OBJECTIVE_ONCE = ("bash", "tools")
"""Grammars whose prompts do not show a first observation that is the objective, which the system message states."""
BEGIN = "Begin."
"""shown in place of such an observation"""
