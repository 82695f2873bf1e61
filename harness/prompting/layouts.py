"""Layouts of published conversations: how instructions, earlier turns and an observation become messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from envsuite.errors import UsageError
from harness.prompting import shell_layout
from harness.prompting.messages import COMPLETION
from harness.prompting.words import Words
from harness.types import Message, Turn


class EpisodeView(NamedTuple):
    """Everything that a prompt can show of an episode."""

    objective: str
    turns: Sequence[Turn]
    observation: str
    admissible: Sequence[str]
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Conversation:
    """Structure of a conversation.

    Style `single`: one user message per turn, in which earlier turns are listed. Style `chat`: the
    instructions, then observations and replies in turn. Style `completion`: plain text without
    roles, which the model continues. Style `shell`: commands and their output
    (`harness.prompting.shell_layout`).
    """

    style: str
    first: str = ""
    """single: word for the first turn, with {current_observation} and {admissible_actions}"""
    later: str = ""
    """single: word for all other turns, which also has {task_description}, {action_history} and step numbers"""
    turn: str = ""
    """single, completion: format of an earlier turn"""
    turn_separator: str = "\n"
    command: str = "{command}"
    """single: format of an admissible command"""
    command_separator: str = ", "
    omit: tuple[str, ...] = ()
    """single: admissible commands that are not listed"""
    role: str = "system"
    """chat: role of the instructions"""
    instructions: str = ""
    """chat: word for the instructions, with {mission} and {action_strings}; "" for none"""
    actions: str = ""
    """chat: word for the table of actions"""
    action: str = "{action}: {description}"
    action_separator: str = ",\n"
    observation: str = "{observation}"
    """chat: format of an earlier observation; completion: format of the first one"""
    current: str = "{observation}"
    """chat: format of the current observation"""
    opening: str = ""
    """chat: word that the first observation is put into, with {task} and {interactions}"""
    closing: str = ""
    """chat: word that ends the current observation"""
    reply: str = "{command}"
    """chat: format of an earlier reply, with {command} and {reply}, its whole text"""
    whole_turns: bool = True
    """chat: False counts the current observation as part of the history, so that its first message is a reply"""
    plan: str = ""
    """chat: format of a reply whose reasoning is kept; others use `reply`"""
    plans: int = 0
    """chat: number of latest replies whose reasoning is kept"""
    remove: tuple[str, ...] = ()
    """texts that are removed from observations"""
    after_objective: bool = False
    """chat: shows of an observation only what follows the objective, if it repeats it"""
    objective: str = "as given"
    """"mission": without capital letter and full stop"""
    prefix: str = ""
    """completion: word before the first observation, with {0}, {1}, ... for `examples`"""
    examples: tuple[str, ...] = ()
    """completion: words of the examples, in whose names {variant} is the variant"""
    thought: str = ""
    """completion: start of a command that is a thought"""
    thought_answer: str = ""
    """completion: shown in place of the observation after a thought"""
    label: str = ""
    """label of an episode that selects its variant of the words"""
    variants: Mapping[str, str] = field(default_factory=dict)
    """variant of the words for each value of the label"""

    def messages(self, texts: Words, history: int, view: EpisodeView) -> list[Message]:
        """Returns the conversation that asks for the next command. `history` is a number of turns, -1 for all.

        Raises UsageError if the words have no variant for the episode.
        """
        return STYLES[self.style](self, texts, history, view)

    def variant(self, labels: Mapping[str, str]) -> str:
        """Returns the variant of the words for an episode. Raises UsageError."""
        value = labels.get(self.label, "")
        if value not in self.variants:
            raise UsageError(
                f"This protocol has no prompt for {self.label} {value!r}, only for {', '.join(self.variants)}."
            )
        return self.variants[value]


def _single(form: Conversation, texts: Words, history: int, view: EpisodeView) -> list[Message]:
    listed = form.command_separator.join(
        form.command.format(command=command) for command in view.admissible if command not in form.omit
    )
    turns = view.turns
    first = 0 if history < 0 else max(0, len(turns) - history)
    past = form.turn_separator.join(
        form.turn.format(step=number, observation=turn.observation, command=_command(turn))
        for number, turn in enumerate(turns[first:], first + 1)
    )
    slots = {
        "current_observation": view.observation,
        "admissible_actions": listed,
        "task_description": view.objective,
        "step_count": len(turns),
        "history_length": len(turns) - first,
        "action_history": past,
        "current_step": len(turns) + 1,
    }
    template = texts[form.later if turns and history else form.first]
    return [{"role": "user", "content": filled(str(template), slots)}]


def _chat(form: Conversation, texts: Words, history: int, view: EpisodeView) -> list[Message]:
    turns = view.turns
    events: list[Message] = []
    for number, turn in enumerate(turns):
        seen = form.observation.format(observation=_seen(form, turn.observation, view.objective))
        format_ = form.plan if form.plan and number >= len(turns) - form.plans else form.reply
        reply = format_.format(reply=turn.reply.text, command=_command(turn))
        events += {"role": "user", "content": seen}, {"role": "assistant", "content": reply}
    current = form.current.format(observation=_seen(form, view.observation, view.objective))
    events.append({"role": "user", "content": f"{current}\n\n{texts[form.closing]}" if form.closing else current})
    if form.opening:
        slots = {"task": view.objective, "interactions": events[0]["content"]}
        events[0] = {"role": "user", "content": filled(str(texts[form.opening]), slots)}
    if history >= 0:
        most = 2 * history + (1 if form.whole_turns else 0)
        events = events[-most:]
    if not form.instructions:
        return events
    return [{"role": form.role, "content": _instructions(form, texts, view)}, *events]


def _instructions(form: Conversation, texts: Words, view: EpisodeView) -> str:
    """Returns the filled instructions of a chat."""
    text = texts[form.instructions]
    if isinstance(text, Mapping):
        text = text[form.variant(view.labels)]
    slots = {"mission": view.objective}
    if form.objective == "mission":
        slots["mission"] = view.objective[:1].lower() + view.objective[1:].removesuffix(".")
    if form.actions:
        table = texts[form.actions]
        assert isinstance(table, Mapping)
        slots["action_strings"] = form.action_separator.join(
            form.action.format(action=action, description=description) for action, description in table.items()
        )
    return filled(text.strip(), slots)


def _completion(form: Conversation, texts: Words, history: int, view: EpisodeView) -> list[Message]:
    prefix = ""
    if form.prefix:
        variant = form.variant(view.labels)
        examples = {str(i): texts[name.format(variant=variant)] for i, name in enumerate(form.examples)}
        prefix = filled(str(texts[form.prefix]), examples)
    if not history:
        return [{"role": COMPLETION, "content": prefix + form.observation.format(observation=view.observation)}]
    observations = [*(turn.observation for turn in view.turns), view.observation]
    pieces = [prefix, form.observation.format(observation=observations[0])]
    for turn, after in zip(view.turns, observations[1:], strict=True):
        command = _command(turn)
        thinks = form.thought and command.startswith(form.thought)
        pieces.append(form.turn.format(command=command, observation=form.thought_answer if thinks else after))
    return [{"role": COMPLETION, "content": "".join(pieces)}]


def _shell(form: Conversation, texts: Words, history: int, view: EpisodeView) -> list[Message]:
    return shell_layout.messages(texts, view.objective, view.turns, view.observation)


STYLES: dict[str, Callable[[Conversation, Words, int, EpisodeView], list[Message]]] = {
    "single": _single,
    "chat": _chat,
    "completion": _completion,
    "shell": _shell,
}


def _command(turn: Turn) -> str:
    return turn.commands[-1] if turn.commands else ""


def _seen(form: Conversation, observation: str, objective: str) -> str:
    """Returns the part of an observation that a chat shows."""
    for text in form.remove:
        observation = observation.replace(text, "")
    if form.after_objective and objective:
        observation = observation.split(objective)[-1].strip()
    return observation


def filled(template: str, slots: Mapping[str, Any]) -> str:
    """Replaces the {slots} of a template in one pass, so that braces in their values stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda match: str(slots.get(match[1], match[0])), template)
