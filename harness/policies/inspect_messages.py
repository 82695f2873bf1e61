"""Messages, tools and tool calls in inspect_ai's types."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from envsuite.escaping import sendable
from harness.prompting.tool_calls import for_template
from harness.types import Message, ToolCall


def chat_messages(messages: Sequence[Message]) -> list[Any]:
    """Converts messages in OpenAI's format to inspect's."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageTool, ChatMessageUser
    from inspect_ai.tool import ToolCall as InspectCall

    converted: list[Any] = []
    names: dict[str, str] = {}
    for message in messages:
        role, content = message["role"], message.get("content") or ""
        if role == "system":
            converted.append(ChatMessageSystem(content=content))
        elif role == "assistant":
            calls = [
                InspectCall(call["id"], call["function"]["name"], call["function"]["arguments"])
                for call in for_template([message])[0].get("tool_calls") or ()
            ]
            names |= {call.id: call.function for call in calls}
            converted.append(ChatMessageAssistant(content=content, tool_calls=calls or None))
        elif role == "tool":
            identity = message["tool_call_id"]
            converted.append(ChatMessageTool(content=content, tool_call_id=identity, function=names.get(identity)))
        else:
            converted.append(ChatMessageUser(content=content))
    return converted


def tool_infos(tools: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Converts tools in OpenAI's schema to inspect's."""
    from inspect_ai.tool import ToolInfo, ToolParams

    functions = [tool["function"] for tool in tools]
    return [
        ToolInfo(
            name=function["name"],
            description=function.get("description", ""),
            parameters=ToolParams(**function["parameters"]),
        )
        for function in functions
    ]


def calls_in(message: Any) -> list[ToolCall]:
    """Returns the tool calls of inspect's message; for arguments that it could not read, its error quotes them."""
    return [
        ToolCall(
            sendable(call.id),
            sendable(call.function),
            sendable(call.parse_error or json.dumps(call.arguments, ensure_ascii=False)),
        )
        for call in message.tool_calls or ()
    ]


def reasoning_of(message: Any) -> str:
    """Returns the reasoning of inspect's message; '' if it has none, or only an encrypted one."""
    if isinstance(message.content, str):
        return ""
    parts = [part for part in message.content if part.type == "reasoning"]
    texts = [(part.summary if part.redacted else part.reasoning or part.summary) or "" for part in parts]
    return "\n".join(text for text in texts if text)
