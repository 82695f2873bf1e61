"""Prompts for models, in our own format or that of a published protocol.

A conversation has a system message with rules, objective and format, an observation and a reply for
each remembered turn, and the current observation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from envsuite.errors import UsageError, did_you_mean
from harness.prompting import protocols
from harness.prompting.grammars import GRAMMARS, OBJECTIVE_ONCE, Parsed, Tool
from harness.prompting.layouts import EpisodeView
from harness.prompting.rewording import WORDINGS
from harness.types import Message, Turn

ADMISSIBLE = ("none", "latest", "all")


@dataclass
class Past:
    """Earlier turns of an episode as messages: an observation and a reply per turn."""

    complete: list[Message] = field(default_factory=list)
    """with unchanged replies"""
    short: list[Message] = field(default_factory=list)
    """with replies reduced to their commands"""


@dataclass(frozen=True)
class Prompting:
    """Settings of the prompt. All of them can change a result and are part of a run's identity."""

    grammar: str = "action"
    thinking: bool = True
    history: int = -1
    """number of remembered turns; -1: all"""
    history_reasoning: bool | int = True
    """keeps the reasoning in remembered replies: True all, False none, or the number of latest
    replies
    """
    admissible: str = "latest"
    """lists admissible commands in no message (none), the latest message (latest) or all messages
    (all)
    """
    wording: str = "plain"
    """a name in `harness.prompting.rewording.WORDINGS`, which replaces words of the game"""
    protocol: str = ""
    """a name in `harness.prompting.protocols.names()`, whose conversation and parser replace ours"""
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
        past: Past | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[Message]:
        """Returns the conversation that asks for the next command.

        `labels` are the episode's labels, by which some protocols choose their words. `past` caches
        an episode's earlier turns between calls; without it the time grows with the square of the
        turns.
        """
        if self.protocol:
            view = EpisodeView(objective, turns, observation, admissible, labels or {})
            return protocols.load(self.protocol).messages(self.words, self.history, view)
        past = Past() if past is None else past
        grammar = GRAMMARS[self.grammar]
        reword = self.reword
        task = [instructions.strip(), self._objective(objective, turns[0].observation if turns else observation)]
        rules = [*map(reword, task), grammar.describe(self.thinking)]
        for index in range(len(past.complete) // 2, len(turns)):
            turn = turns[index]
            note = turns[index - 1].note if index else ""
            listed = self.listed(turn.admissible) if self.admissible == "all" else ()
            seen: Message = {"role": "user", "content": _seen(reword(turn.observation), note, listed)}
            past.complete += seen, {"role": "assistant", "content": turn.reply.text}
            past.short += seen, {"role": "assistant", "content": self._command(turn)}
        first = 0 if self.history < 0 else max(0, len(turns) - self.history)
        complete = first if self.history_reasoning is True else max(first, len(turns) - self.history_reasoning)
        messages: list[Message] = [{"role": "system", "content": "\n\n".join(part for part in rules if part)}]
        messages += past.short[2 * first : 2 * complete]
        messages += past.complete[2 * complete :]
        listed = () if self.admissible == "none" else self.listed(admissible)
        note = turns[-1].note if turns else ""
        messages.append({"role": "user", "content": _seen(reword(observation), note, listed)})
        return messages

    def _objective(self, objective: str, first_observation: str) -> str:
        """Returns the objective for the system message; '' if the conversation states it anyway."""
        stated = self.grammar in OBJECTIVE_ONCE and self.history < 0 and objective in first_observation
        return f"Objective: {objective}" if objective and not stated else ""

    def parse(self, text: str) -> Parsed:
        """Parses a reply and translates its commands to the environment's words."""
        if self.protocol:
            return protocols.load(self.protocol).parse(text)
        parsed = GRAMMARS[self.grammar].parse(text)
        return parsed._replace(commands=self.listed(parsed.commands))

    def tools(self, admissible: Sequence[str]) -> list[Tool]:
        """Returns the tools (function-calling schemas) to declare to the model; [] for text grammars."""
        return GRAMMARS[self.grammar].tools(self.listed(admissible))

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

    def _command(self, turn: Turn) -> str:
        """Returns a reply without its reasoning."""
        if not turn.commands:
            return turn.reply.text
        return GRAMMARS[self.grammar].spell(self.reword(turn.commands[-1]), "")


def _seen(observation: str, note: str, admissible: Sequence[str]) -> str:
    parts = [note, observation]
    if admissible:
        parts.append("Admissible commands: " + ", ".join(admissible))
    return "\n".join(part for part in parts if part)
