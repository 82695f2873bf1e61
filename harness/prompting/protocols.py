"""Protocols: the prompt, parser and settings of a published set-up, as data.

Each file in `profiles/` is a protocol: a table of flags of `envsuite-eval` that it fixes, the
structure of its conversation, its parser, where its words come from, and a neutral wording of ours
that takes their place while the published words are not on this machine (`harness.prompting.words`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from envsuite.errors import DataError, UsageError, did_you_mean
from harness.prompting import words as published
from harness.prompting.grammars import Parsed
from harness.prompting.words import Words
from harness.types import Message, Turn

NEUTRAL = "neutral"
"""value of `Prompting.words` for our own wording; the published words have the first digits of their SHA-256"""


@dataclass(frozen=True)
class Conversation:
    """Structure of a conversation.

    Style `single`: one user message per turn, in which earlier turns are listed. Style `chat`: the
    instructions, then observations and replies in turn.
    """

    style: str
    first: str = ""
    """single: word for the first turn, with {current_observation} and {admissible_actions}"""
    later: str = ""
    """single: word for all other turns, which also has {task_description}, {action_history} and step numbers"""
    turn: str = ""
    """single: format of an earlier turn"""
    turn_separator: str = "\n"
    command: str = "{command}"
    """single: format of an admissible command"""
    command_separator: str = ", "
    omit: tuple[str, ...] = ()
    """single: admissible commands that are not listed"""
    role: str = "system"
    """chat: role of the instructions"""
    instructions: str = ""
    """chat: word for the instructions, with {mission} and {action_strings}"""
    actions: str = ""
    """chat: word for the table of actions"""
    action: str = "{action}: {description}"
    action_separator: str = ",\n"
    observation: str = "{observation}"
    """chat: format of an earlier observation"""
    current: str = "{observation}"
    """chat: format of the current observation"""
    closing: str = ""
    """chat: word that ends the current observation"""
    whole_turns: bool = True
    """chat: False counts the current observation as part of the history, so that its first message is a reply"""
    plan: str = ""
    """chat: format of a reply whose reasoning is kept; others are reduced to their command"""
    plans: int = 0
    """chat: number of latest replies whose reasoning is kept"""
    remove: tuple[str, ...] = ()
    """texts that are removed from observations"""
    objective: str = "as given"
    """"mission": without capital letter and full stop"""


@dataclass(frozen=True)
class Protocol:
    """A published set-up; see the module's docstring."""

    name: str
    summary: str
    source: str
    families: tuple[str, ...]
    flags: Mapping[str, Any]
    conversation: Conversation
    parser: str
    commands: tuple[str, ...]
    """commands that the parser accepts; empty: any"""
    default: str
    """command that is played for a reply that is not understood"""
    neutral: Words
    url: str
    files: Mapping[str, Mapping[str, str]]
    sha256: str

    @property
    def published_id(self) -> str:
        """Value of `Prompting.words` for the published words."""
        return self.sha256[:12]

    def fetch(self, local: Path | None = None) -> Path:
        """Stores the published words in the cache and returns their file. Raises DataError."""
        return published.fetch(self.name, self.url, self.files, self.sha256, local)

    def available(self) -> str:
        """Returns the value of `Prompting.words` for the best words on this machine."""
        return self.published_id if published.stored(self.name, self.sha256) is not None else NEUTRAL

    def messages(
        self,
        words: str,
        history: int,
        objective: str,
        turns: Sequence[Turn],
        observation: str,
        admissible: Sequence[str],
    ) -> list[Message]:
        """Returns the conversation that asks for the next command. Raises DataError if the words are missing."""
        texts = self.neutral if words == NEUTRAL else _published(self.name, self.sha256)
        build = _single if self.conversation.style == "single" else _chat
        return build(self.conversation, texts, history, objective, turns, observation, admissible)

    def parse(self, text: str) -> Parsed:
        """Returns the command that the protocol plays for a reply, which may be a substitute."""
        return PARSERS[self.parser](text, self.commands, self.default)


@cache
def _published(name: str, sha256: str) -> Words:
    """Returns the published words of a protocol, which are read once. Raises DataError if they are missing."""
    words = published.stored(name, sha256)
    if words is None:
        raise DataError(
            f"The words of the protocol {name} are not on this machine: run `envsuite-data get prompts/{name}`."
        )
    return words


def _single(
    form: Conversation,
    texts: Words,
    history: int,
    objective: str,
    turns: Sequence[Turn],
    observation: str,
    admissible: Sequence[str],
) -> list[Message]:
    listed = form.command_separator.join(
        form.command.format(command=command) for command in admissible if command not in form.omit
    )
    first = max(0, len(turns) - history)
    past = form.turn_separator.join(
        form.turn.format(step=number, observation=turn.observation, command=turn.commands[-1] if turn.commands else "")
        for number, turn in enumerate(turns[first:], first + 1)
    )
    slots = {
        "current_observation": observation,
        "admissible_actions": listed,
        "task_description": objective,
        "step_count": len(turns),
        "history_length": len(turns) - first,
        "action_history": past,
        "current_step": len(turns) + 1,
    }
    template = texts[form.later if turns and history else form.first]
    return [{"role": "user", "content": _filled(str(template), slots)}]


def _chat(
    form: Conversation,
    texts: Words,
    history: int,
    objective: str,
    turns: Sequence[Turn],
    observation: str,
    admissible: Sequence[str],
) -> list[Message]:
    table = texts[form.actions]
    assert isinstance(table, Mapping)
    actions = form.action_separator.join(
        form.action.format(action=action, description=description) for action, description in table.items()
    )
    mission = objective[:1].lower() + objective[1:].removesuffix(".") if form.objective == "mission" else objective
    instructions = _filled(str(texts[form.instructions]), {"mission": mission, "action_strings": actions})
    events: list[Message] = []
    for number, turn in enumerate(turns):
        events.append({"role": "user", "content": form.observation.format(observation=_seen(form, turn.observation))})
        if form.plan and number >= len(turns) - form.plans:
            events.append({"role": "assistant", "content": form.plan.format(reply=turn.reply.text)})
        else:
            events.append({"role": "assistant", "content": turn.commands[-1] if turn.commands else ""})
    current = form.current.format(observation=_seen(form, observation))
    events.append({"role": "user", "content": f"{current}\n\n{texts[form.closing]}"})
    most = 2 * history + (1 if form.whole_turns else 0)
    return [{"role": form.role, "content": instructions}, *events[-most:]]


def _seen(form: Conversation, observation: str) -> str:
    for text in form.remove:
        observation = observation.replace(text, "")
    return observation


def _filled(template: str, slots: Mapping[str, Any]) -> str:
    """Replaces the {slots} of a template in one pass, so that braces in their values stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda match: str(slots.get(match[1], match[0])), template)


def _parse_verl_agent(text: str, commands: Sequence[str], default: str) -> Parsed:
    """Takes the first <action>, in lower case; without one, the reply's last 30 characters.

    A reply without <think>, or with Chinese characters, counts as not understood but is played.
    """
    lower = text.lower()
    start, end = lower.find("<action>"), lower.find("</action>")
    if start < 0 or end < 0:
        return Parsed((lower[-30:],), substitute=True)
    command = lower[start + len("<action>") : end].strip()
    opened, closed = text.find("<think>"), text.find("</think>")
    thought = text[opened + len("<think>") : closed].strip() if 0 <= opened < closed else ""
    formatted = opened >= 0 and closed >= 0 and not re.search("[\u4e00-\u9fff]", text)
    return Parsed((command,), thought, substitute=not (formatted and command))


def _parse_balrog(text: str, commands: Sequence[str], default: str) -> Parsed:
    """Takes the whole reply, reduced to letters, white space and colons, if it is one of the commands."""
    command = re.sub(r"[^a-zA-Z\s:]", "", text.strip())
    understood = command in commands
    return Parsed((command if understood else default,), substitute=not understood)


_SPELLINGS = {
    "turnleft": "turn left",
    "turnright": "turn right",
    "go left": "turn left",
    "go right": "turn right",
    "goforward": "go forward",
    "pickup": "pick up",
}


def _parse_verlog(text: str, commands: Sequence[str], default: str) -> Parsed:
    """Takes what follows the last "ACTION:" (or "action:", or "Action"), with common spellings corrected."""
    command, thought = text, ""
    for marker in ("ACTION:", "action:", "Action"):
        if marker in text:
            thought, _, command = text.rpartition(marker)
            break
    command = command.strip().lower().replace("_", " ")
    command = _SPELLINGS.get(command, command)
    understood = command in commands
    return Parsed((command if understood else default,), thought.strip(), substitute=not understood)


PARSERS: dict[str, Callable[[str, Sequence[str], str], Parsed]] = {
    "verl-agent": _parse_verl_agent,
    "balrog": _parse_balrog,
    "verlog": _parse_verlog,
}


def names() -> list[str]:
    """Returns the names of all protocols."""
    folder = resources.files("harness.prompting").joinpath("profiles")
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


@cache
def load(name: str) -> Protocol:
    """Returns a protocol by name. Raises UsageError."""
    if name not in names():
        raise UsageError(f"Unknown protocol {name!r}: {', '.join(names())}.{did_you_mean(name, names())}")
    folder = resources.files("harness.prompting").joinpath("profiles")
    table = tomllib.loads(folder.joinpath(f"{name}.toml").read_text("utf-8"))
    form: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in table["conversation"].items()
    }
    reply = table["reply"]
    return Protocol(
        name=name,
        summary=table["summary"],
        source=table["source"],
        families=tuple(table["families"]),
        flags=table["flags"],
        conversation=Conversation(**form),
        parser=reply["parser"],
        commands=tuple(reply.get("commands", ())),
        default=reply.get("default", ""),
        neutral=table["neutral"],
        url=table["words"]["url"],
        files=table["words"]["files"],
        sha256=table["words"]["sha256"],
    )
