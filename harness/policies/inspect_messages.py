"""Messages, tools and tool calls in inspect_ai's types.

Providers sign the reasoning of their models, and some refuse a tool call that comes back without it.
`ProviderMessages` therefore keeps the messages of an episode as inspect returned them.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from envsuite.escaping import sendable
from harness.prompting.tool_calls import assistant_message, for_template, with_ids
from harness.reasoning import closed, joined
from harness.types import Message, Prompt, Reply, ToolCall

CAPACITY = 4096
"""Number of conversations whose messages are kept; the least recently used ones are dropped."""


class ProviderMessages:
    """Messages of a model as its provider wrote them, by conversation.

    They hold what our format cannot: signatures of Anthropic's thinking, Gemini's thought signatures, and
    the reasoning items of OpenAI's Responses API.
    """

    def __init__(self) -> None:
        self._conversations: OrderedDict[str, list[tuple[Message, dict[str, Any]]]] = OrderedDict()

    def remember(self, prompt: Prompt, reply: Reply, message: dict[str, Any]) -> None:
        """Stores the message of a reply: inspect's, as JSON; {} if the reply differs from it."""
        if not prompt.key:
            return
        if not prompt.turn:
            self._conversations[prompt.key] = []
        expected = assistant_message(closed(reply.text), with_ids(reply.calls, prompt.turn))
        self._conversations.setdefault(prompt.key, []).append((expected, message))
        self._conversations.move_to_end(prompt.key)
        if len(self._conversations) > CAPACITY:
            self._conversations.popitem(last=False)

    def converted(self, prompt: Prompt, messages: Sequence[Message]) -> list[Any]:
        """Converts messages of a prompt to inspect's; replies that they show unchanged are the provider's messages.

        A reply with tool calls is the provider's message even if its reasoning is left out of `messages`.
        """
        from inspect_ai.model import ChatMessageAssistant

        replies = self._conversations.get(prompt.key, []) if prompt.turn else []
        indices = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
        converted = chat_messages(messages)
        for index, (expected, message) in zip(reversed(indices), reversed(replies), strict=False):
            if message and _shows(messages[index], expected):
                converted[index] = ChatMessageAssistant.model_validate(message)
        return converted


def _shows(message: Message, reply: Message) -> bool:
    """Returns True if a message is that of a reply, or has its tool calls."""
    return message == reply or bool(message.get("tool_calls") and message["tool_calls"] == reply.get("tool_calls"))


def as_json(message: Any, reply: Reply) -> dict[str, Any]:
    """Returns inspect's message as JSON for `ProviderMessages`; {} if the reply differs from it, for example because
    a secret is hidden in it.
    """
    if joined(reasoning_of(message), message.text) != reply.text or tuple(calls_in(message)) != reply.calls:
        return {}
    if [call.id for call in with_ids(reply.calls, 0)] != [call.id for call in message.tool_calls or ()]:
        return {}
    values: dict[str, Any] = message.model_dump(mode="json", exclude_none=True)
    return values


def chat_messages(messages: Sequence[Message]) -> list[Any]:
    """Converts messages in OpenAI's format to inspect's, one for one."""
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
    blocks = [block for block in message.content if block.type == "reasoning"]
    texts = [(block.summary if block.redacted else block.reasoning or block.summary) or "" for block in blocks]
    return "\n".join(text for text in texts if text)
