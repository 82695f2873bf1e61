"""Prompts for models, in our own format or that of a published protocol.

A conversation has a system message with rules, objective and format, an observation and a reply for
each remembered turn, and the current observation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from envsuite.errors import UsageError, did_you_mean
from envsuite.escaping import sendable
from envsuite.tools import Tool
from harness import reasoning
from harness.prompting import protocols
from harness.prompting.grammars import BEGIN, GRAMMARS, OBJECTIVE_ONCE, NativeCalls, Parsed
from harness.prompting.layouts import EpisodeView
from harness.prompting.rewording import WORDINGS, reworded
from harness.prompting.tool_calls import assistant_message, read_text, result_messages, with_ids
from harness.settings import setting
from harness.types import Message, ToolCall, ToolSchema, Turn

ADMISSIBLE = ("none", "latest", "all")


def _is_on(word: str | bool) -> bool:
    return word in ("on", True)


def _kept_reasoning(word: str | int) -> bool | int:
    """Reads --history-reasoning: True all, False none, or the number of latest replies. Raises UsageError."""
    if word in ("on", "off", True, False):
        return word in ("on", True)
    if not str(word).isdecimal():
        raise UsageError(f"--history-reasoning is on, off or a number of replies, not {word!r}.")
    return int(word)


@dataclass(frozen=True)
class Prompting:
    """Settings of the prompt. All of them can change a result and are part of a run's identity."""

    grammar: str = setting(
        "action", "how a reply gives its command; tools: native tool calls", "action_grammar", choices=list(GRAMMARS)
    )
    thinking: bool = setting(
        True, "off: ask for the command alone, without reasoning (default: on)", read=_is_on, choices=["on", "off"]
    )
    history: int = setting(-1, "remembered turns; -1 for all")
    history_reasoning: bool | int = setting(
        True,
        "keep the reasoning of earlier replies in the prompt; N: of the latest N only (default: on)",
        read=_kept_reasoning,
        metavar="on|off|N",
        type=str,
    )
    admissible: str = setting("latest", "messages that list the admissible commands", choices=ADMISSIBLE)
    wording: str = setting(
        "plain",
        "rewords observations and commands; the game stays the same",
        "prompt_wording",
        omitted=True,
        choices=list(WORDINGS),
    )
    protocol: str = setting(
        "",
        f"prompt, parser and settings of a published set-up: {', '.join(protocols.names())}",
        omitted=True,
        metavar="NAME",
    )
    words: str = ""
    """with a protocol: "neutral", or the first 12 digits of the SHA-256 of its published words"""

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
        if self.protocol:
            known = (protocols.NEUTRAL, protocols.load(self.protocol).published_id)
            if self.words not in known:
                raise UsageError(f"Words of the protocol {self.protocol} are {' or '.join(known)}, not {self.words!r}.")
            remembered = protocols.load(self.protocol).flags["history"]
            if self.wording != "plain" or self.history != remembered:
                raise UsageError(f"The protocol {self.protocol} fixes plain wording and a history of {remembered}.")
        elif self.words:
            raise UsageError(f"Words {self.words!r} need a protocol.")

    def messages(
        self,
        instructions: str,
        objective: str,
        turns: Sequence[Turn],
        observation: str,
        admissible: Sequence[str],
        labels: Mapping[str, str] | None = None,
        agent: int = 0,
    ) -> list[Message]:
        """Returns the conversation that asks for the next command.

        `labels` are the episode's labels, by which some protocols choose their words. The conversation of
        an `agent` has its own turns alone.
        """
        if agent:
            turns = [turn for turn in turns if turn.agent == agent]
        if self.protocol:
            view = EpisodeView(objective, turns, observation, admissible, labels or {})
            return protocols.load(self.protocol).messages(self.words, self.history, view)
        grammar = GRAMMARS[self.grammar]
        task = [instructions.strip(), f"Objective: {objective}" if objective else ""]
        rules = [*map(self.reword, task), grammar.describe(self.thinking)]
        first = 0 if self.history < 0 else max(0, len(turns) - self.history)
        complete = first if self.history_reasoning is True else max(first, len(turns) - self.history_reasoning)
        shown = [self._exchange(turns, index, objective, index >= complete) for index in range(first, len(turns))]
        listed = () if self.admissible == "none" else self.listed(admissible)
        before = turns[-1] if turns else None
        shown.append(self._seen(self._news(observation, before, objective), before, listed))
        if first and shown[0][0]["role"] == "tool":  # its call is not remembered
            question: Message = {"role": "user", "content": shown[0][0]["content"]}
            shown[0] = [question, *(message for message in shown[0] if message["role"] == "assistant")]
        messages: list[Message] = [{"role": "system", "content": "\n\n".join(filter(None, rules))}]
        for turn_messages in shown:
            messages += turn_messages
        return messages

    def _exchange(self, turns: Sequence[Turn], index: int, objective: str, complete: bool) -> list[Message]:
        """Returns the messages of an earlier turn: its observation, and its reply, `complete` or only the command."""
        turn, before = turns[index], turns[index - 1] if index else None
        listed = self.listed(turn.admissible) if self.admissible == "all" else ()
        seen = self._seen(self._news(turn.observation, before, objective), before, listed)
        return [*seen, self._reply(turn) if complete else self._short_reply(turn)]

    def _news(self, observation: str, before: Turn | None, objective: str) -> str:
        """Returns the observation, without a first one that the system message states already."""
        stated = self.grammar in OBJECTIVE_ONCE and before is None and observation == objective
        return BEGIN if stated else observation

    def _seen(self, observation: str, before: Turn | None, listed: Sequence[str]) -> list[Message]:
        """Returns the messages that show an observation: a user message, or the results of the tool calls in the
        turn before.
        """
        lines = [before.note if before else "", self.reword(observation)]
        if listed:
            lines.append("Admissible commands: " + ", ".join(listed))
        text = "\n".join(filter(None, lines))
        calls = before.reply.calls if before and self.declares_tools else ()
        return result_messages(calls, text)

    def _reply(self, turn: Turn) -> Message:
        return assistant_message(reasoning.closed(turn.reply.text), turn.reply.calls if self.declares_tools else ())

    def _short_reply(self, turn: Turn) -> Message:
        """Returns a reply without its reasoning."""
        if self.declares_tools and turn.reply.calls:
            return assistant_message("", turn.reply.calls)
        if not turn.commands:
            return {"role": "assistant", "content": reasoning.without(turn.reply.text)}
        command = self.reword(turn.commands[-1])
        return {"role": "assistant", "content": GRAMMARS[self.grammar].spell(command, "")}

    def parse(self, text: str, calls: Sequence[ToolCall] = (), tools: Sequence[Tool] = (), turn: int = 0) -> Parsed:
        """Parses a reply and translates its commands to the environment's words.

        `calls` are tool calls that a server returned apart from `text`; without them they are read from
        the text. `tools` are the environment's.
        """
        if self.protocol:
            return protocols.load(self.protocol).parse(text)
        grammar = GRAMMARS[self.grammar]
        if isinstance(grammar, NativeCalls):
            calls = with_ids(calls or read_text(text)[1], turn)
            parsed = grammar.parse_calls(text, calls, self._reworded(tools))
        else:
            parsed = grammar.parse(text)
        return parsed._replace(commands=self.listed(tuple(map(sendable, parsed.commands))))

    @property
    def declares_tools(self) -> bool:
        """True if the environment's tools are declared to the model, and their calls are commands."""
        return not self.protocol and GRAMMARS[self.grammar].declares_tools

    def tools(self, tools: Sequence[Tool]) -> list[ToolSchema]:
        """Returns the schemas of an environment's tools to declare to the model; [] for other grammars."""
        return [tool.schema() for tool in self._reworded(tools)] if self.declares_tools else []

    def _reworded(self, tools: Sequence[Tool]) -> list[Tool]:
        return list(tools) if self.wording == "plain" else [reworded(tool, self.reword) for tool in tools]

    @property
    def reword(self) -> Callable[[str], str]:
        """Function that translates the environment's words to the model's, and back."""
        return WORDINGS[self.wording]

    def listed(self, commands: Sequence[str]) -> tuple[str, ...]:
        """Returns the commands translated by `reword`."""
        return tuple(map(self.reword, commands))

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings that end a reply; empty with thinking, because a command quoted in a thought must
        not end the reply.
        """
        if self.protocol:
            return protocols.load(self.protocol).stop
        return () if self.thinking else GRAMMARS[self.grammar].stop
