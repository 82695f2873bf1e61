"""What an agent says: a shell command, or one of the structured edits agents are used to; as text or as a tool call.

As text, a verb on the first line and its matter below it:

    view PATH [FIRST LAST]        a file with line numbers, or what is in a folder
    create PATH                   the lines below become the file
    str_replace PATH              below it: <<<<<<<, the old text, =======, the new text, >>>>>>>
    insert PATH LINE              the lines below go in after line LINE (0: at the top)
    undo PATH                     takes back the last of these edits to the file
    search PATTERN [PATH]         lines that match a regular expression
    run_tests [TEST ...]          a summary of the tests there are, run afresh
    submit                        hands the work in

Anything else is a shell command; a fence ```bash ... ``` around it is taken off. As a tool call, the JSON object
{"name": ..., "arguments": {...}} of one of `TOOLS`, in OpenAI's form.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

VERBS = ("view", "create", "str_replace", "insert", "undo", "search", "run_tests", "submit")
_FENCE = re.compile(r"\A\s*```(?:bash|sh|shell)?[ \t]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_REPLACE = re.compile(r"\A<{7}[^\n]*\n(.*?)^={7}[ \t]*\n(.*?)^>{7}[^\n]*\n?\s*\Z", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Action:
    """What is to be done. `kind` is one of VERBS, or 'shell', or '' where it cannot be understood (`text` says why)."""

    kind: str
    text: str = ""
    """shell: the command; create, insert, str_replace: the new text; search: the pattern"""
    path: str = ""
    old: str = ""
    first: int = 0
    last: int = 0
    tests: tuple[str, ...] = ()


def parse(said: str) -> Action:
    """The action an agent's words ask for. Never raises."""
    if "\0" in said or any("\ud800" <= letter <= "\udfff" for letter in said):
        return Action("", "A command cannot hold NUL or lone surrogates.")
    if fenced := _FENCE.match(said):
        said = fenced[1]
    said = said.strip("\n")
    if not said.strip():
        return Action("", "There is no command. Say a shell command, or submit.")
    if said.lstrip().startswith("{") and (call := _call(said)) is not None:
        return call
    head, _, below = said.partition("\n")
    verb = head.split()[0] if head.split() else ""
    if verb not in VERBS:
        return Action("shell", said)
    try:
        words = shlex.split(head)[1:]
    except ValueError as error:
        return Action("", f"{verb}: {error}.")
    return _worded(verb, words, below)


def _worded(verb: str, words: list[str], below: str) -> Action:
    if verb == "submit":
        return Action("submit")
    if verb == "run_tests":
        return Action("run_tests", tests=tuple(words))
    if verb == "search":
        if not 1 <= len(words) <= 2:
            return Action("", "search takes a pattern in quotes, and maybe a path.")
        return Action("search", words[0], words[1] if len(words) == 2 else ".")
    numbers = words[1:]
    allowed = {"view": (0, 2), "insert": (1,)}.get(verb, (0,))
    if not words or len(numbers) not in allowed or not all(re.fullmatch(r"-?\d{1,9}", number) for number in numbers):
        return Action("", f"{verb} takes {_TAKES[verb]}.")
    first, last = [*map(int, numbers), 0, 0][:2]
    if verb == "str_replace":
        parts = _REPLACE.match(below)
        if parts is None:
            return Action("", f"str_replace takes {_TAKES[verb]}.")
        return Action(verb, parts[2].removesuffix("\n"), words[0], old=parts[1].removesuffix("\n"))
    text = below + "\n" if below and not below.endswith("\n") else below
    return Action(verb, text, words[0], first=first, last=last)


_TAKES = {
    "view": "a path, and maybe a first and a last line",
    "create": "a path, with the file's text on the lines below",
    "str_replace": "a path; below it <<<<<<<, the old text, =======, the new text, >>>>>>>, each mark on its own line",
    "insert": "a path and a line number, with the new lines below",
    "undo": "a path",
}


def _call(said: str) -> Action | None:
    """The action of a tool call; None for what is none (a shell may begin with a brace too)."""
    try:
        call = json.loads(said)
    except (ValueError, RecursionError):
        return None
    call = call.get("function", call)
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    given = call.get("arguments", call.get("parameters", {}))
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}")
        except (ValueError, RecursionError):
            return Action("", f"The arguments of {call['name']} are no JSON.")
    if not isinstance(given, dict):
        return Action("", f"The arguments of {call['name']} are no JSON object.")
    try:
        return _tool(call["name"], given)
    except KeyError as missing:
        return Action("", f"{call['name']} needs the argument {missing}.")
    except (TypeError, ValueError, OverflowError):  # Infinity is a number to Python's JSON
        return Action("", f"An argument of {call['name']} is of the wrong type.")


def _tool(name: str, given: dict[str, Any]) -> Action:
    def text(key: str, default: str | None = None) -> str:
        value = given.get(key, default) if default is not None else given[key]
        if not isinstance(value, str) or "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise TypeError
        return value

    if name == "bash":
        return Action("shell", text("command")) if text("command").strip() else Action("", "There is no command.")
    if name == "submit":
        return Action("submit")
    if name == "search":
        return Action("search", text("pattern"), text("path", "."))
    if name == "run_tests":
        tests = given.get("tests") or []
        if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
            raise TypeError
        return Action("run_tests", tests=tuple(tests))
    if name == "str_replace_editor":
        verb, path = text("command").replace("undo_edit", "undo"), text("path")
        if verb == "view":
            first, last = given.get("view_range") or (0, 0)
            return Action(verb, path=path, first=int(first), last=int(last))
        if verb == "create":
            return Action(verb, text("file_text"), path)
        if verb == "str_replace":
            return Action(verb, text("new_str", ""), path, old=text("old_str"))
        if verb == "insert":
            new = text("new_str")
            return Action(verb, new if new.endswith("\n") else new + "\n", path, first=int(given["insert_line"]))
        if verb == "undo":
            return Action(verb, path=path)
    return Action("", f"There is no tool {name!r}: there are {', '.join(tool['function']['name'] for tool in TOOLS)}.")


def _declared(name: str, about: str, needed: tuple[str, ...], **arguments: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": arguments, "required": list(needed)}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}


_TEXT = {"type": "string"}
TOOLS: tuple[dict[str, Any], ...] = (
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
"""what a server or chat template is told, in OpenAI's form"""


def spell_replace(path: str, old: str, new: str) -> str:
    """The text of a str_replace."""
    return f"str_replace {shlex.quote(path)}\n<<<<<<<\n{old}\n=======\n{new}\n>>>>>>>"


def spell_create(path: str, text: str) -> str:
    """The text of a create. A file that does not end in a line end gets one."""
    return f"create {shlex.quote(path)}\n{text}"
