"""What a model reads, and how a command is found in what it writes.

The default grammar is `<think>...</think><action>...</action>` (verl-agent, GiGPO). A conversation is: one system message
(rules, objective, format), then for each remembered turn what was seen and what was said, then what is seen now.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from envsuite.errors import UsageError, did_you_mean
from harness.prompting.rewording import WORDINGS
from harness.types import Message, Turn

Tool = dict[str, Any]  # OpenAI's function-tool schema


class Parsed(NamedTuple):
    """What was found in a reply."""

    commands: tuple[str, ...]  # empty: none was found
    thought: str = ""
    note: str = ""  # said to the model where no command was found


class Grammar(Protocol):
    """How a model is asked to spell its command."""

    stop: tuple[str, ...]
    """strings after which nothing more of the reply is needed"""

    def describe(self, thinking: bool) -> str: ...

    def parse(self, text: str) -> Parsed: ...

    def spell(self, command: str, thought: str) -> str:
        """The reply that says `command`, as history shows it and demonstrations teach it."""
        ...

    def tools(self, admissible: Sequence[str]) -> list[Tool]:
        """The tools to declare to servers and templates that know tools; [] for a grammar of plain text."""
        ...


class _Text:
    """A grammar of plain text declares no tools."""

    stop: tuple[str, ...] = ()

    def tools(self, admissible: Sequence[str]) -> list[Tool]:
        return []


_ACTION = re.compile(r"<action>(.*?)(?:</action>|\Z)", re.DOTALL)
_THINK = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)


class ActionTags(_Text):
    """`<think>...</think><action>...</action>`; the last action counts, and one cut off before its closing tag too."""

    stop: tuple[str, ...] = ("</action>",)

    def describe(self, thinking: bool) -> str:
        if thinking:
            return (
                "Each turn, first reason about what to do between <think> and </think>, "
                "then give exactly one command between <action> and </action>."
            )
        return "Each turn, answer with exactly one command between <action> and </action>, and nothing else."

    def parse(self, text: str) -> Parsed:
        thought = "\n".join(part.strip() for part in _THINK.findall(text))
        # A command quoted while reasoning is not the command.
        found = [part.strip() for part in _ACTION.findall(_THINK.sub("", text))]
        found = [command for command in found if command]
        if not found:
            return Parsed((), thought, "Your reply held no command between <action> and </action>.")
        return Parsed((found[-1],), thought)

    def spell(self, command: str, thought: str) -> str:
        return (f"<think>{thought}</think>" if thought else "") + f"<action>{command}</action>"


class BareLine(_Text):
    """The reply's last non-empty line, outside any <think> block, is the command."""

    def describe(self, thinking: bool) -> str:
        if thinking:
            return "Each turn, you may reason first; the last line of your answer must be the command alone."
        return "Each turn, answer with the command alone, on one line."

    def parse(self, text: str) -> Parsed:
        thought = "\n".join(part.strip() for part in _THINK.findall(text))
        lines = [line.strip() for line in _THINK.sub("", text).splitlines() if line.strip()]
        if not lines:
            return Parsed((), thought, "Your reply held no command.")
        return Parsed((lines[-1].removeprefix(">").strip(),), thought or "\n".join(lines[:-1]))

    def spell(self, command: str, thought: str) -> str:
        return f"{thought}\n{command}" if thought else command


class ManyActions(ActionTags):
    """Several `<action>...</action>` in one reply, carried out in order until the episode ends (RAGEN, AgentGym)."""

    most = 5
    stop: tuple[str, ...] = ()

    def describe(self, thinking: bool) -> str:
        first = "first reason between <think> and </think>, then " if thinking else ""
        return (
            f"Each turn, {first}give one to {self.most} commands, each between its own <action> and </action>; "
            "they are carried out in order."
        )

    def parse(self, text: str) -> Parsed:
        one = super().parse(text)
        found = [part.strip() for part in _ACTION.findall(_THINK.sub("", text))]
        return one._replace(commands=tuple([command for command in found if command][: self.most]))


class ReAct(_Text):
    """`Thought: ...` and `Action: ...` lines (Yao et al., 2023); what the model invents after its action is cut."""

    stop: tuple[str, ...] = ("\nObservation",)

    _line = re.compile(r"^\s*(?:act(?:ion)?)\s*\d*\s*:[ \t]*(.*)$", re.IGNORECASE | re.MULTILINE)
    _thought = re.compile(r"^\s*(?:thought|think)\s*\d*\s*:[ \t]*(.*)$", re.IGNORECASE | re.MULTILINE)

    def describe(self, thinking: bool) -> str:
        form = "Thought: your reasoning\nAction: one command" if thinking else "Action: one command"
        return f"Each turn, answer in this form, and stop after the action:\n{form}"

    def parse(self, text: str) -> Parsed:
        # The first action: a model that goes on dreams its own observations and acts on them.
        found = next((match.strip() for match in self._line.findall(text) if match.strip()), "")
        thought = "\n".join(part.strip() for part in self._thought.findall(text))
        if not found:
            return Parsed((), thought, "Your reply held no line 'Action: ...'.")
        return Parsed((found,), thought)

    def spell(self, command: str, thought: str) -> str:
        return (f"Thought: {thought}\n" if thought else "") + f"Action: {command}"


class ToolCall:
    """One call of the tool `act(command)`, as JSON: bare, fenced, or in `<tool_call>` tags (Hermes, Qwen)."""

    stop: tuple[str, ...] = ("</tool_call>",)

    def describe(self, thinking: bool) -> str:
        first = "You may reason first. Then " if thinking else ""
        return f"Each turn, {first}call one tool, as JSON in these tags and nothing after them:\n" + self.spell(
            "your command", ""
        )

    def tools(self, admissible: Sequence[str]) -> list[Tool]:
        return [_tool("act", "Carry out one command.", "command", "the command, exactly as the rules spell it")]

    def parse(self, text: str) -> Parsed:
        outside = _THINK.sub("", text)
        thought = "\n".join(part.strip() for part in _THINK.findall(text))
        calls = [call for call in _json_objects(outside) if self.command(call)]
        if not calls:
            return Parsed((), thought, "Your reply held no tool call that could be read.")
        return Parsed((self.command(calls[0]),), thought)

    def command(self, call: dict[str, Any]) -> str:
        """The command a JSON object asks for; '' where it asks for none."""
        call = call.get("function", call) if isinstance(call.get("function"), dict) else call
        arguments = call.get("arguments", call.get("parameters", call))
        if isinstance(arguments, str):
            arguments = next(iter(_json_objects(arguments)), {})
        command = arguments.get("command", arguments.get("action", "")) if isinstance(arguments, dict) else ""
        return command.strip() if isinstance(command, str) else ""

    def spell(self, command: str, thought: str) -> str:
        call = json.dumps({"name": "act", "arguments": {"command": command}}, ensure_ascii=False)
        return (f"<think>{thought}</think>" if thought else "") + f"<tool_call>{call}</tool_call>"


class VerbCalls(ToolCall):
    """One tool per verb: `go(rest="to fridge 1")` is the command `go to fridge 1`. Verbs come from what is admissible."""

    def tools(self, admissible: Sequence[str]) -> list[Tool]:
        verbs = dict.fromkeys(command.split()[0] for command in admissible if command.split())
        return [
            _tool(verb, f"The command '{verb}'.", "rest", "what follows the verb; empty where nothing does")
            for verb in verbs
            if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", verb)
        ]

    def command(self, call: dict[str, Any]) -> str:
        call = call.get("function", call) if isinstance(call.get("function"), dict) else call
        name, arguments = call.get("name"), call.get("arguments", call.get("parameters", {}))
        if isinstance(arguments, str):
            arguments = next(iter(_json_objects(arguments)), {})
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return ""
        if name == "act":
            return super().command(call)
        rest = arguments.get("rest", "")
        return f"{name} {rest}".strip() if isinstance(rest, str) else ""

    def spell(self, command: str, thought: str) -> str:
        verb, _, rest = command.partition(" ")
        call = json.dumps({"name": verb, "arguments": {"rest": rest}}, ensure_ascii=False)
        return (f"<think>{thought}</think>" if thought else "") + f"<tool_call>{call}</tool_call>"


def _tool(name: str, description: str, argument: str, meaning: str) -> Tool:
    schema = {
        "type": "object",
        "properties": {argument: {"type": "string", "description": meaning}},
        "required": [argument],
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def _json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Every JSON object that starts in `text`, outermost and in order; what is no JSON is passed over."""
    decoder, start = json.JSONDecoder(), text.find("{")
    while start >= 0:
        try:
            found, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
            continue
        if isinstance(found, dict):
            yield found
        start = text.find("{", end)


GRAMMARS: dict[str, Grammar] = {
    "action": ActionTags(),
    "actions": ManyActions(),
    "bare": BareLine(),
    "react": ReAct(),
    "tool": ToolCall(),
    "tools": VerbCalls(),
}
ADMISSIBLE = ("none", "latest", "all")


@dataclass
class Past:
    """An episode's earlier turns as messages, two for each: what was seen and what was said."""

    whole: list[Message] = field(default_factory=list)
    """replies as they were"""
    short: list[Message] = field(default_factory=list)
    """replies without their reasoning"""


@dataclass(frozen=True)
class Prompting:
    """Everything about the prompt that changes the number: all of it is part of a run's identity."""

    grammar: str = "action"
    thinking: bool = True
    history: int = -1
    """remembered turns; -1: all"""
    history_reasoning: bool | int = True
    """remembered replies keep their reasoning; False leaves the command alone, a number so many of the latest whole"""
    admissible: str = "latest"
    """where admissible commands are listed: none | latest turn only | all turns"""
    wording: str = "plain"
    """a name of `harness.prompting.rewording.WORDINGS`: the same game in other words"""

    def __post_init__(self) -> None:
        if self.grammar not in GRAMMARS:
            hint = did_you_mean(self.grammar, GRAMMARS)
            raise UsageError(f"Unknown action grammar {self.grammar!r}: choose {', '.join(GRAMMARS)}.{hint}")
        if self.admissible not in ADMISSIBLE:
            raise UsageError(f"Admissible commands are shown {'|'.join(ADMISSIBLE)}, not {self.admissible!r}.")
        if self.wording not in WORDINGS:
            hint = did_you_mean(self.wording, WORDINGS)
            raise UsageError(f"Unknown wording {self.wording!r}: choose {', '.join(WORDINGS)}.{hint}")
        if self.history < -1:
            raise UsageError(f"History is a number of turns, or -1 for all of them, not {self.history}.")

    def messages(
        self,
        instructions: str,
        objective: str,
        turns: Sequence[Turn],
        observation: str,
        admissible: Sequence[str],
        past: Past | None = None,
    ) -> list[Message]:
        """The conversation that asks for the next command.

        `past` keeps an episode's earlier turns from one call to the next: without it a long episode costs time in the
        square of its turns.
        """
        past = Past() if past is None else past
        grammar = GRAMMARS[self.grammar]
        reword = self.reword
        told = [instructions.strip(), f"Objective: {objective}" if objective else ""]
        rules = [*map(reword, told), grammar.describe(self.thinking)]
        for place in range(len(past.whole) // 2, len(turns)):
            turn, note = turns[place], turns[place - 1].note if place else ""
            listed = self.listed(turn.admissible) if self.admissible == "all" else ()
            seen: Message = {"role": "user", "content": _seen(reword(turn.observation), note, listed)}
            past.whole += seen, {"role": "assistant", "content": turn.reply.text}
            past.short += seen, {"role": "assistant", "content": self._command(turn)}
        first = 0 if self.history < 0 else max(0, len(turns) - self.history)
        whole = first if self.history_reasoning is True else max(first, len(turns) - self.history_reasoning)
        messages: list[Message] = [{"role": "system", "content": "\n\n".join(part for part in rules if part)}]
        messages += past.short[2 * first : 2 * whole]
        messages += past.whole[2 * whole :]
        listed = () if self.admissible == "none" else self.listed(admissible)
        note = turns[-1].note if turns else ""
        messages.append({"role": "user", "content": _seen(reword(observation), note, listed)})
        return messages

    def parse(self, text: str) -> Parsed:
        """What a reply says, its commands in the environment's own words."""
        found = GRAMMARS[self.grammar].parse(text)
        return found._replace(commands=self.listed(found.commands))

    def tools(self, admissible: Sequence[str]) -> list[Tool]:
        return GRAMMARS[self.grammar].tools(self.listed(admissible))

    @property
    def reword(self) -> Callable[[str], str]:
        """From the environment's words to the model's, and back."""
        return WORDINGS[self.wording]

    def listed(self, commands: Sequence[str]) -> tuple[str, ...]:
        """Commands reworded."""
        return tuple(map(self.reword, commands))

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings that end a reply. None while thinking: a command quoted in a thought must not end it."""
        return () if self.thinking else GRAMMARS[self.grammar].stop

    def _command(self, turn: Turn) -> str:
        """A reply without its reasoning."""
        if not turn.commands:
            return turn.reply.text
        return GRAMMARS[self.grammar].spell(self.reword(turn.commands[-1]), "")


def _seen(observation: str, note: str, admissible: Sequence[str]) -> str:
    parts = [note, observation]
    if admissible:
        parts.append("Admissible commands: " + ", ".join(admissible))
    return "\n".join(part for part in parts if part)
