"""Tool calls: the formats in which models and servers write them, and the messages that show them.

Models in this process write calls as text. `read_text` knows three formats:

    Hermes, Qwen    <tool_call>{"name": ..., "arguments": {...}}</tool_call>, once per call
    Llama 3         the reply is {"name": ..., "parameters": {...}}, or several of them
    Mistral         [TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...]

Servers return calls apart from the text, in OpenAI's format (`read_message`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from envsuite.escaping import sendable
from envsuite.reading import parse_json
from envsuite.tools import BadArguments, Tool
from harness.reasoning import end_of_reasoning
from harness.types import Message, ToolCall

MOST_CALLS = 128
"""Calls of one reply; further ones are not read."""
NOT_EXECUTED = "Not executed: only the first call of a reply is executed."
_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_MARKERS = ("<|python_tag|>", "[TOOL_CALLS]")
_SEPARATORS = " \t\r\n;,"
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")

NameAndArguments = tuple[str, str]


# ---- from what a model wrote to calls ------------------------------------------------------------------------------


def read_text(text: str) -> tuple[str, list[NameAndArguments]]:
    """Returns the text of a reply without its calls, and their names and arguments.

    Calls that are quoted in the reasoning do not count. A call that is no JSON has the name "".
    """
    start = end_of_reasoning(text)
    answer = text[start:]
    if "<tool_call>" in answer:
        calls = [_call(match) for match in _TAGGED.findall(answer)]
        return text[:start] + _TAGGED.sub("", answer).strip(), calls[:MOST_CALLS]
    body = answer.strip()
    marked = body.startswith(_MARKERS)
    for marker in _MARKERS:
        body = body.removeprefix(marker).strip()
    values = _calls_alone(body)
    if values:
        return text[:start], values[:MOST_CALLS]
    return (text[:start], [("", body)]) if marked else (text, [])


def _call(text: str) -> NameAndArguments:
    """Returns the name and arguments in the JSON of a call."""
    try:
        return _name_and_arguments(parse_json(text.strip()))
    except (ValueError, TypeError, RecursionError):
        return "", text.strip()


def _name_and_arguments(value: Any) -> NameAndArguments:
    """Returns the name and arguments of a call. Raises TypeError if the value is not one."""
    value = value.get("function", value) if isinstance(value, dict) else value
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise TypeError("a call has a name")
    arguments = value.get("arguments", value.get("parameters"))
    if arguments is None:
        arguments = {}
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return sendable(value["name"]), sendable(text)


def _calls_alone(body: str) -> list[NameAndArguments]:
    """Returns the calls of a text that is a list of calls, [] for other texts; reads no further than MOST_CALLS."""
    decoder, calls = json.JSONDecoder(), list[NameAndArguments]()
    position = 0
    try:
        while position < len(body) and len(calls) < MOST_CALLS:
            _, end = decoder.raw_decode(body, position)
            value = parse_json(body[position:end])
            for item in value if isinstance(value, list) else [value]:
                if not isinstance(item, dict) or not item.keys() & {"arguments", "parameters"}:
                    return []
                calls.append(_name_and_arguments(item))
            position = end + len(body[end:]) - len(body[end:].lstrip(_SEPARATORS))
    except (ValueError, TypeError, RecursionError):
        return []
    return calls


def read_message(message: Message) -> tuple[ToolCall, ...]:
    """Returns the calls of a server's message. Raises TypeError, KeyError or AttributeError if it has no valid form."""
    calls = []
    for call in (message.get("tool_calls") or ())[:MOST_CALLS]:
        name, arguments = call["function"]["name"], call["function"].get("arguments")
        if not isinstance(name, str):
            raise TypeError("the name of a tool is a text")
        text = arguments if isinstance(arguments, str) else json.dumps({} if arguments is None else arguments)
        calls.append(ToolCall(str(call.get("id") or ""), name, text))
    return tuple(calls)


def with_ids(calls: Iterable[ToolCall | NameAndArguments], turn: int) -> tuple[ToolCall, ...]:
    """Returns calls with an id each: their own, or one from the turn, where they have none or share it."""
    known: set[str] = set()
    result = []
    for number, call in enumerate(calls):
        identity = call.id if isinstance(call, ToolCall) else ""
        if not identity or identity in known:
            identity = f"t{turn:05}c{number:02}"  # Mistral's templates require nine letters and digits
        known.add(identity)
        result.append(ToolCall(identity, *call[-2:]))
    return tuple(result)


# ---- from a call to a command --------------------------------------------------------------------------------------


def command_of(call: ToolCall, tools: Sequence[Tool]) -> str:
    """Returns the command of a call. Raises BadArguments, whose message is for the model."""
    if not call.name:
        raise BadArguments("The tool call is not valid JSON.")
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None:
        names = ", ".join(tool.name for tool in tools)
        raise BadArguments(f"There is no tool {json.dumps(call.name)[:80]}: the tools are {names}.")
    arguments = _object(call.arguments)
    if arguments is None:
        raise BadArguments(f"The arguments of {call.name} are not a JSON object.")
    return tool.command_of(arguments)


def _object(arguments: str) -> dict[str, Any] | None:
    """Returns the arguments of a call, which may be empty; None if they are not a JSON object."""
    try:
        value = parse_json(arguments.strip() or "{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


# ---- from calls to messages ----------------------------------------------------------------------------------------


def assistant_message(text: str, calls: Sequence[ToolCall]) -> Message:
    """Returns the message of a reply, in OpenAI's format.

    Servers refuse messages with names or arguments that are not well formed. There a name gets other
    letters, and arguments that are not a JSON object become {"invalid": TEXT}.
    """
    if not calls:
        return {"role": "assistant", "content": text}
    return {
        "role": "assistant",
        "content": read_text(text)[0],
        "tool_calls": [
            {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
            for identity, (name, arguments) in ((call.id, well_formed(call[1:])) for call in calls)
        ],
    }


def well_formed(call: NameAndArguments) -> NameAndArguments:
    """Returns the name and arguments of a call as messages show them; see `assistant_message`."""
    name, arguments = call
    if _object(arguments) is None:
        arguments = json.dumps({"invalid": arguments}, ensure_ascii=False)
    return _NO_NAME.sub("_", name)[:64] or "invalid", arguments.strip() or "{}"


def result_messages(calls: Sequence[ToolCall], result: str) -> list[Message]:
    """Returns the messages that answer a reply: a user message, or one message for each of its calls, of which the
    first one was executed.
    """
    if not calls:
        return [{"role": "user", "content": result}]
    texts = [result] + [NOT_EXECUTED] * (len(calls) - 1)
    return [{"role": "tool", "tool_call_id": call.id, "content": text} for call, text in zip(calls, texts, strict=True)]


def as_text(message: Message) -> str:
    """Returns a message as a reader sees it: its text, and each of its calls on a line."""
    calls = [f"{name}({arguments})" for name, arguments in calls_of(message)]
    return "\n".join(filter(None, [message["content"], *calls]))


def whole_text(text: str, calls: Sequence[ToolCall]) -> str:
    """Returns a reply as one text, with the calls that a server returned apart from it, and without their ids."""
    if not calls or read_text(text)[1]:
        return text
    return as_text(assistant_message(text, calls))


def for_template(messages: Sequence[Message]) -> list[Message]:
    """Returns messages as chat templates read them: with arguments as objects, and without lone surrogates, which
    JSON's escapes can contain.
    """
    return [
        {**message, "tool_calls": [_with_object(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    ]


def _with_object(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = json.dumps(json.loads(function["arguments"]), ensure_ascii=False)
    return {**call, "function": {**function, "arguments": json.loads(sendable(arguments))}}


def calls_of(message: Message) -> list[NameAndArguments]:
    """Returns the names and arguments of the calls of a message."""
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    return [(function["name"], function["arguments"]) for function in functions]
