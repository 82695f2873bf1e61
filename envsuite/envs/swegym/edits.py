"""Agent commands: shell commands and structured edits, as text or as a tool call (`parse`).

As text, a verb on the first line and its content below it:

    view PATH [FIRST LAST]        shows a file with line numbers, or lists a folder
    create PATH                   writes the lines below to the file
    str_replace PATH              below it: <<<<<<<, the old text, =======, the new text, >>>>>>>
    insert PATH LINE              inserts the lines below after line LINE (0: at the top)
    undo PATH                     reverts the last of these edits to the file
    search PATTERN [PATH]         lists lines that match a regular expression
    run_tests [TEST ...]          runs the visible tests and summarises them
    submit                        ends the episode

Anything else is a shell command; a fence ```bash ... ``` around it is removed. As a tool call, the JSON object
{"name": ..., "arguments": {...}} of one of `TOOLS`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from envsuite.tools import Tool, check_arguments

VERBS = ("view", "create", "str_replace", "insert", "undo", "search", "run_tests", "submit")
_FENCE = re.compile(r"\A\s*```(?:bash|sh|shell)?[ \t]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_REPLACE = re.compile(r"\A<{7}[^\n]*\n(.*?)^={7}[ \t]*\n(.*?)^>{7}[^\n]*\n?\s*\Z", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class EditAction:
    """A parsed command.

    `kind` is one of VERBS, 'shell', or '' if it cannot be understood (`text` has the reason).
    """

    kind: str
    text: str = ""
    """shell: the command; create, insert, str_replace: the new text; search: the pattern"""
    path: str = ""
    old: str = ""
    first: int = 0
    last: int = 0
    tests: tuple[str, ...] = ()


def parse(message: str) -> EditAction:
    """Parses an agent's message. Never raises."""
    if "\0" in message or any("\ud800" <= letter <= "\udfff" for letter in message):
        return EditAction("", "A command cannot hold NUL or lone surrogates.")
    if fenced := _FENCE.match(message):
        message = fenced[1]
    message = message.strip("\n")
    if not message.strip():
        return EditAction("", "There is no command. Say a shell command, or submit.")
    if message.lstrip().startswith("{") and (call := _call(message)) is not None:
        return call
    head, _, below = message.partition("\n")
    verb = head.split()[0] if head.split() else ""
    if verb not in VERBS:
        return EditAction("shell", message)
    try:
        words = shlex.split(head)[1:]
    except ValueError as error:
        return EditAction("", f"{verb}: {error}.")
    return _worded(verb, words, below)


def _worded(verb: str, words: list[str], below: str) -> EditAction:
    if verb == "submit":
        return EditAction("submit")
    if verb == "run_tests":
        return EditAction("run_tests", tests=tuple(words))
    if verb == "search":
        if not 1 <= len(words) <= 2:
            return EditAction("", "search takes a pattern in quotes, and maybe a path.")
        return EditAction("search", words[0], words[1] if len(words) == 2 else ".")
    numbers = words[1:]
    allowed = {"view": (0, 2), "insert": (1,)}.get(verb, (0,))
    if not words or len(numbers) not in allowed or not all(re.fullmatch(r"-?\d{1,9}", number) for number in numbers):
        return EditAction("", f"{verb} takes {_USAGE[verb]}.")
    first, last = [*map(int, numbers), 0, 0][:2]
    if verb == "str_replace":
        parts = _REPLACE.match(below)
        if parts is None:
            return EditAction("", f"str_replace takes {_USAGE[verb]}.")
        return EditAction(verb, parts[2].removesuffix("\n"), words[0], old=parts[1].removesuffix("\n"))
    text = below + "\n" if below and not below.endswith("\n") else below
    return EditAction(verb, text, words[0], first=first, last=last)


_USAGE = {
    "view": "a path, and maybe a first and a last line",
    "create": "a path, with the file's text on the lines below",
    "str_replace": "a path; below it <<<<<<<, the old text, =======, the new text, >>>>>>>, each mark on its own line",
    "insert": "a path and a line number, with the new lines below",
    "undo": "a path",
}


def _call(message: str) -> EditAction | None:
    """Parses a tool call; returns None for anything else (a shell command may begin with a brace too)."""
    try:
        call = json.loads(message)
    except (ValueError, RecursionError):
        return None
    call = call.get("function", call)
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = call.get("arguments", call.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return EditAction("", f"The arguments of {call['name']} are no JSON.")
    if not isinstance(arguments, dict):
        return EditAction("", f"The arguments of {call['name']} are no JSON object.")
    try:
        return _tool(call["name"], arguments)
    except KeyError as missing:
        return EditAction("", f"{call['name']} needs the argument {missing}.")
    except (TypeError, ValueError, OverflowError):  # Infinity is a number to Python's JSON
        return EditAction("", f"An argument of {call['name']} is of the wrong type.")


def _tool(name: str, arguments: dict[str, Any]) -> EditAction:
    def text(key: str, default: str | None = None) -> str:
        value = arguments.get(key, default) if default is not None else arguments[key]
        if not isinstance(value, str) or "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise TypeError
        return value

    if name == "bash":
        return (
            EditAction("shell", text("command")) if text("command").strip() else EditAction("", "There is no command.")
        )
    if name == "submit":
        return EditAction("submit")
    if name == "search":
        return EditAction("search", text("pattern"), text("path", "."))
    if name == "run_tests":
        tests = arguments.get("tests") or []
        if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
            raise TypeError
        return EditAction("run_tests", tests=tuple(tests))
    if name == "str_replace_editor":
        verb, path = text("command").replace("undo_edit", "undo"), text("path")
        if verb == "view":
            first, last = arguments.get("view_range") or (0, 0)
            return EditAction(verb, path=path, first=int(first), last=int(last))
        if verb == "create":
            return EditAction(verb, text("file_text"), path)
        if verb == "str_replace":
            return EditAction(verb, text("new_str", ""), path, old=text("old_str"))
        if verb == "insert":
            new = text("new_str")
            return EditAction(
                verb, new if new.endswith("\n") else new + "\n", path, first=int(arguments["insert_line"])
            )
        if verb == "undo":
            return EditAction(verb, path=path)
    return EditAction("", f"There is no tool {name!r}: there are {', '.join(tool.name for tool in TOOLS)}.")


@dataclass(frozen=True)
class EditTool(Tool):
    """A tool whose command is the call itself, as the JSON that `parse` reads."""

    properties: Mapping[str, Any] = field(default_factory=dict)
    """JSON schema of each argument by name"""
    needed: tuple[str, ...] = ()

    @property
    def parameters(self) -> dict[str, Any]:
        return {"type": "object", "properties": dict(self.properties), "required": list(self.needed)}

    def command_of(self, arguments: Mapping[str, Any]) -> str:
        check_arguments(self.name, self.parameters, arguments)
        return json.dumps({"name": self.name, "arguments": dict(arguments)}, ensure_ascii=False)

    def arguments_of(self, command: str) -> dict[str, Any] | None:
        name, arguments = _as_call(parse(command))
        return arguments if name == self.name else None


def _as_call(action: EditAction) -> tuple[str, dict[str, Any]]:
    """Returns the name and arguments of the tool call that stands for an action; ("", {}) if none does."""
    kind, path = action.kind, action.path
    if kind in ("", "submit"):
        return kind, {}
    if kind == "shell":
        return "bash", {"command": action.text}
    if kind == "search":
        return kind, {"pattern": action.text, "path": path}
    if kind == "run_tests":
        return kind, {"tests": list(action.tests)}
    more: dict[str, dict[str, Any]] = {
        "view": {"view_range": [action.first, action.last]} if action.first or action.last else {},
        "create": {"file_text": action.text},
        "str_replace": {"old_str": action.old, "new_str": action.text},
        "insert": {"insert_line": action.first, "new_str": action.text},
    }
    return "str_replace_editor", {
        "command": "undo_edit" if kind == "undo" else kind,
        "path": path,
        **more.get(kind, {}),
    }


def _declared(name: str, about: str, needed: tuple[str, ...], **arguments: dict[str, Any]) -> EditTool:
    return EditTool(name, about, properties=arguments, needed=needed)


_TEXT = {"type": "string"}
TOOLS: tuple[Tool, ...] = (
    _declared("bash", "Run a shell command in the repository.", ("command",), command=_TEXT),
    _declared(
        "str_replace_editor",
        "View and edit files. old_str must occur exactly once; insert_line 0 is the top.",
        ("command", "path"),
        command={"type": "string", "enum": ["view", "create", "str_replace", "insert", "undo_edit"]},
        path=_TEXT,
        file_text=_TEXT,
        old_str=_TEXT,
        new_str=_TEXT,
        insert_line={"type": "integer"},
        view_range={"type": "array", "items": {"type": "integer"}},
    ),
    _declared("search", "Lines of files that match a regular expression.", ("pattern",), pattern=_TEXT, path=_TEXT),
    _declared("run_tests", "Run the tests there are, afresh.", (), tests={"type": "array", "items": _TEXT}),
    _declared("submit", "Hand the work in and end.", ()),
)
"""tools of SWE-Gym"""


def spell_replace(path: str, old: str, new: str) -> str:
    """Returns the text of a str_replace command."""
    return f"str_replace {shlex.quote(path)}\n<<<<<<<\n{old}\n=======\n{new}\n>>>>>>>"


def spell_create(path: str, text: str) -> str:
    """Returns the text of a create command. A file without a final newline gets one."""
    return f"create {shlex.quote(path)}\n{text}"
