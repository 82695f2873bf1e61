"""Tools: an environment's actions as functions that a model calls by name.

A `Tool` turns the arguments of a call into the command that the environment executes, and a command
back into arguments. `TextEnv.tools` lists the tools of an environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

_SLOT = re.compile(r"\{(\w+)\}")
_TYPES: dict[str, type] = {"string": str, "integer": int, "array": list}


class BadArguments(ValueError):
    """Arguments that a tool does not accept; the message is for the model."""


@dataclass(frozen=True)
class Tool:
    """A function that stands for commands of one form."""

    name: str
    description: str
    command: str = ""
    """format of the command, with {argument}"""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """meaning of each argument by name; all are texts and required"""

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments as a JSON schema."""
        properties = {name: {"type": "string", "description": text} for name, text in self.arguments.items()}
        return {"type": "object", "properties": properties, "required": list(properties)}

    def schema(self) -> dict[str, Any]:
        """Returns the tool in OpenAI's function-tool schema."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def command_of(self, arguments: Mapping[str, Any]) -> str:
        """Returns the command of a call. Raises BadArguments."""
        check_arguments(self.name, self.parameters, arguments)
        for name in self.arguments:
            if not arguments[name].strip():
                raise BadArguments(f"The argument {name} of {self.name} must not be empty.")
        return _SLOT.sub(lambda slot: str(arguments[slot[1]]), self.command)

    def arguments_of(self, command: str) -> dict[str, Any] | None:
        """Returns the arguments with which a call gives `command`; None if no arguments do."""
        match = _pattern(self.command).fullmatch(command)
        return match and dict(match.groupdict())


@lru_cache(maxsize=256)
def _pattern(command: str) -> re.Pattern[str]:
    """Returns a pattern that matches the commands of a format."""
    parts = _SLOT.split(command)
    words = [f"(?P<{part}>.+)" if number % 2 else re.escape(part) for number, part in enumerate(parts)]
    return re.compile("".join(words), re.DOTALL)


def check_arguments(name: str, parameters: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Raises BadArguments unless `arguments` fit the JSON schema `parameters` of the tool `name`."""
    properties = parameters["properties"]
    for argument in parameters["required"]:
        if argument not in arguments:
            raise BadArguments(f"{name} needs the argument {argument}.")
    for argument, value in arguments.items():
        if argument not in properties:
            known = f"it takes {', '.join(properties)}" if properties else "it takes none"
            raise BadArguments(f"{name} has no argument {json.dumps(argument)[:80]}: {known}.")
        if not _fits(properties[argument], value):
            raise BadArguments(f"The argument {argument} of {name} must be {_described(properties[argument])}.")


def _fits(schema: Mapping[str, Any], value: Any) -> bool:
    """Returns True if a value has the type of a schema; the types are those of `_TYPES`."""
    if not isinstance(value, _TYPES[schema["type"]]) or isinstance(value, bool):
        return False
    if isinstance(value, list):
        return all(_fits(schema["items"], item) for item in value)
    return "enum" not in schema or value in schema["enum"]


def _described(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    if schema["type"] == "array":
        return f"a list of {schema['items']['type']}s"
    return {"string": "a string", "integer": "an integer"}[str(schema["type"])]


def call_of(tools: Sequence[Tool], command: str) -> tuple[str, dict[str, Any]] | None:
    """Returns the name and arguments of the first tool that gives `command`; None if none does."""
    for tool in tools:
        arguments = tool.arguments_of(command)
        if arguments is not None:
            return tool.name, arguments
    return None


ACT = Tool("act", "Carries out one command.", "{command}", {"command": "the command, as the rules spell it"})
"""Tool of environments that declare none of their own."""
