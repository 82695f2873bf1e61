"""Steps of a record: how a turn is stored, and how its reply is read again."""

from __future__ import annotations

from typing import Any

from harness import reasoning
from harness.types import ToolCall, Turn

Step = dict[str, Any]
REQUIRED: dict[str, type | tuple[type, ...]] = {
    "commands": list,
    "observation": str,
    "reward": (int, float),
    "fault": str,
}
"""Fields required in every step of a record, with their types."""
OPTIONAL: dict[str, type] = {"agent": int, "reply": str, "reasoning": str, "calls": list}
"""Fields of a step that may be missing: the agent that acted, if each has its own player; a reply that is more than the
command; its reasoning; its tool calls.
"""


def step(turn: Turn, observation: str) -> dict[str, Any]:
    """Returns the step of a turn that the environment answered with `observation`."""
    values: dict[str, Any] = {
        "commands": list(turn.commands),
        "observation": observation,
        "reward": turn.reward,
        "fault": turn.fault,
    }
    if turn.agent:
        values["agent"] = turn.agent
    text, calls = turn.reply.text, turn.reply.calls
    substitute = turn.fault not in ("", "invalid")  # a protocol played a reply that it did not understand
    if calls:
        values["calls"] = [call._asdict() for call in calls]
    if (pair := reasoning.split(text)) is not None:
        values["reasoning"], text = pair
    if substitute or calls or list(turn.commands) != [text]:  # bare commands of random and expert are stored once
        values["reply"] = text
    return values


def reply_text(step: Step) -> str:
    """Returns the reply of a stored step, with its reasoning."""
    return reasoning.joined(step.get("reasoning", ""), answer_text(step))


def answer_text(step: Step) -> str:
    """Returns the reply of a stored step without its reasoning."""
    text: str = step.get("reply", step["commands"][0] if step["commands"] else "")
    return text


def reply_calls(step: Step) -> tuple[ToolCall, ...]:
    """Returns the tool calls of a stored step."""
    return tuple(ToolCall(call["id"], call["name"], call["arguments"]) for call in step.get("calls", ()))
