"""Trajectories of software agents: `read_trajectories` reads the files of SWE-agent, mini-swe-agent and OpenHands.

| agent | file | commands |
|---|---|---|
| mini-swe-agent 1 and 2 | `INSTANCE.traj.json` | actions of the messages, each in a new shell |
| SWE-agent 1 | `INSTANCE.traj` | `action` of each step: shell commands, `str_replace_editor` and `submit` |
| OpenHands | `output.jsonl` | actions `run`, `edit`, `read` and `finish` of the history |

Commands become SWE-Gym's tool calls, as JSON. The files may come from anybody: they are read within
the bounds of `envsuite.reading`. Actions without an equivalent are counted in `skipped`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envsuite import reading
from envsuite.errors import DataError
from harness.records import check_types

SUBMIT = json.dumps({"name": "submit", "arguments": {}})
_SUBMISSION = re.compile(r"echo\s+([\"']?)COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\1(\s|&|;|$)")
_WORKSPACE = re.compile(r"/workspace/[\w.-]*__[\w.-]+")
"""OpenHands' folder of a repository, which SWE-Gym calls /testbed"""
_EDITS = ("view", "create", "str_replace", "insert", "undo_edit")


@dataclass(frozen=True)
class AgentStep:
    """One reply of an agent and its result."""

    text: str
    """the reply: its thought, or the whole message"""
    commands: tuple[str, ...]
    observation: str = ""


@dataclass(frozen=True)
class AgentTrajectory:
    """An episode that an agent played elsewhere."""

    instance_id: str
    model: str
    steps: tuple[AgentStep, ...]
    patch: str
    """the submission; '' if there is none"""
    exit_status: str = ""
    skipped: int = 0
    """actions without an equivalent in SWE-Gym"""


def read_trajectories(path: Path) -> list[AgentTrajectory]:
    """Reads a file, or all such files below a folder. Raises DataError naming the file."""
    if path.is_dir():
        files = sorted(file for pattern in ("*.traj", "*.traj.json", "output.jsonl") for file in path.rglob(pattern))
        if not files:
            raise DataError(f"{path} contains no *.traj, *.traj.json or output.jsonl.")
        return [trajectory for file in files for trajectory in read_trajectories(file)]
    reader = next((reader for ending, reader in _READERS.items() if path.name.endswith(ending)), None)
    if reader is None:
        raise DataError(f"{path} is not a trajectory: its name must end in {', '.join(_READERS)}.")
    try:
        return list(reader(path))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not a trajectory that can be read ({type(error).__name__}: {error}).") from None


def shell_call(command: str) -> str:
    """Returns a shell command as a tool call."""
    return json.dumps({"name": "bash", "arguments": {"command": command}}, ensure_ascii=False)


def _edit_call(arguments: Mapping[str, Any]) -> str:
    """Returns an edit as a tool call, without empty arguments."""
    present = {name: value for name, value in arguments.items() if value is not None}
    return json.dumps({"name": "str_replace_editor", "arguments": present}, ensure_ascii=False)


def _text(value: Any) -> str:
    """Returns the text of a message, whose content may be a list of parts."""
    if isinstance(value, list):
        return "\n".join(str(part.get("text", "")) for part in value if isinstance(part, dict))
    return "" if value is None else str(value)


# ---- mini-swe-agent ----


def _mini_swe_agent(path: Path) -> Iterator[AgentTrajectory]:
    document = reading.read_json(path)
    info, messages = document["info"], document["messages"]
    check_types(document, {"info": dict, "messages": list})
    model = ((info.get("config") or {}).get("model") or {}).get("model_name") or "mini-swe-agent"
    steps: list[AgentStep] = []
    for number, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        following = messages[number + 1] if number + 1 < len(messages) else {}
        actions = (message.get("extra") or {}).get("actions")
        commands = _fenced(_text(message["content"])) if actions is None else [entry["command"] for entry in actions]
        calls = tuple(SUBMIT if _SUBMISSION.match(text.strip()) else _in_new_shell(text) for text in commands)
        observation = _text(following.get("content")) if following.get("role") in ("user", "tool") else ""
        steps.append(AgentStep(_text(message["content"]), calls, observation))
    name = document.get("instance_id") or path.name.removesuffix(".traj.json")
    yield AgentTrajectory(
        str(name), str(model), tuple(steps), str(info.get("submission") or ""), str(info.get("exit_status") or "")
    )


def _fenced(text: str) -> list[str]:
    """Returns the command of a reply of version 1, which stores no actions."""
    blocks: list[str] = re.findall(r"```(?:bash|mswea_bash_command)\s*\n(.*?)\n```", text, re.DOTALL)
    return blocks if len(blocks) == 1 else []


def _in_new_shell(command: str) -> str:
    return shell_call(f"bash -c {shlex.quote(command)}")


# ---- SWE-agent ----


def _swe_agent(path: Path) -> Iterator[AgentTrajectory]:
    document = reading.read_json(path)
    check_types(document, {"trajectory": list, "info": dict})
    info, skipped = document["info"], 0
    steps = []
    for step in document["trajectory"]:
        check_types(step, {"action": str})
        call = _swe_agent_call(step["action"])
        skipped += call is None
        text = _text(step.get("response") or step.get("thought"))
        steps.append(AgentStep(text, (call,) if call else (), _text(step.get("observation"))))
    yield AgentTrajectory(
        path.name.removesuffix(".traj"),
        _swe_agent_model(document),
        tuple(steps),
        str(info.get("submission") or ""),
        str(info.get("exit_status") or ""),
        skipped,
    )


def _swe_agent_model(document: Mapping[str, Any]) -> str:
    """Returns the model's name from the replay configuration, which newer versions store as JSON text."""
    config = document.get("replay_config") or {}
    if isinstance(config, str):
        config = reading.parse_json(config)
    agent = config.get("agent") or {}
    return str((agent.get("model") or {}).get("name") or "SWE-agent")


def _swe_agent_call(action: str) -> str | None:
    """Returns an action as a tool call; None for an edit that cannot be read and for no action."""
    text = action.strip()
    if not text or text == "submit":
        return SUBMIT if text else None
    if not text.startswith("str_replace_editor "):
        return shell_call(action.rstrip("\n"))
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    arguments: dict[str, Any] = {"command": words[1] if len(words) > 1 else ""}
    position = 2
    while position < len(words):
        name, _, value = words[position].partition("=")
        position += 1
        if not name.startswith("--"):
            arguments["path"] = name
        elif name == "--view_range":
            numbers = [value] if value else []
            while position < len(words) and len(numbers) < 2 and re.fullmatch(r"-?\d+", words[position]):
                numbers.append(words[position])
                position += 1
            arguments["view_range"] = [int(number) for number in numbers]
        else:
            if not value and position < len(words):
                value, position = words[position], position + 1
            arguments[name[2:]] = int(value) if name == "--insert_line" else value
    return _edit_call(arguments) if arguments["command"] in _EDITS else None


# ---- OpenHands ----


def _open_hands(path: Path) -> Iterator[AgentTrajectory]:
    for _, line in reading.read_lines(path):
        if line.strip():
            yield _open_hands_episode(reading.parse_json(line))


def _open_hands_episode(row: Any) -> AgentTrajectory:
    check_types(row, {"instance_id": str, "history": list})
    model = ((row.get("metadata") or {}).get("llm_config") or {}).get("model") or "OpenHands"
    events = [event for entry in row["history"] for event in (entry if isinstance(entry, list) else [entry])]
    results = {event.get("cause"): event for event in events if "observation" in event}
    steps, skipped = [], 0
    for event in events:
        if "action" not in event or event.get("source") != "agent":
            continue
        arguments = event.get("args") or {}
        call = _open_hands_call(event["action"], arguments)
        skipped += call is None and event["action"] not in ("message", "think", "system", "recall")
        result = results.get(event.get("id")) or {}
        thought = _text(arguments.get("thought") or event.get("message"))
        if call or thought:
            steps.append(AgentStep(thought, (call,) if call else (), _text(result.get("content"))))
    patch = (row.get("test_result") or {}).get("git_patch") or row.get("git_patch") or ""
    return AgentTrajectory(
        row["instance_id"], str(model), tuple(steps), str(patch), str(row.get("error") or ""), skipped
    )


def _open_hands_call(action: str, arguments: Mapping[str, Any]) -> str | None:
    """Returns an action as a tool call; None if SWE-Gym has none for it."""
    moved = {
        name: _WORKSPACE.sub("/testbed", value) if isinstance(value, str) else value
        for name, value in arguments.items()
    }
    if action == "finish":
        return SUBMIT
    if action == "run" and isinstance(moved.get("command"), str) and not moved.get("is_input"):
        return shell_call(moved["command"]) if moved["command"].strip() else None
    if action == "read":
        return _edit_call({"command": "view", "path": moved.get("path"), "view_range": moved.get("view_range")})
    if action == "edit" and moved.get("command") in _EDITS:
        names = ("command", "path", "file_text", "old_str", "new_str", "insert_line", "view_range")
        used = {"create": ("file_text",), "str_replace": ("old_str", "new_str"), "insert": ("insert_line", "new_str")}
        fields = ("command", "path", *used.get(str(moved["command"]), ("view_range",)))
        return _edit_call({name: moved.get(name) for name in names if name in fields})
    return None


_READERS: dict[str, Callable[[Path], Iterator[AgentTrajectory]]] = {
    ".traj.json": _mini_swe_agent,
    ".traj": _swe_agent,
    "output.jsonl": _open_hands,
}
