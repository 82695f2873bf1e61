"""Bundles of a finished run, of a task's games and of an OpenEnv Space."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envsuite.errors import UsageError
from envsuite.reading import read_json, read_lines
from envsuite.types import Task
from harness import records
from harness.config_file import CONNECTION, NOT_IDENTITY
from harness.hub import cards
from harness.hub.bundle import Bundle, Target
from harness.interop.chat_game import ChatGame, chat_config, rows
from harness.provenance.run_folder import RunFolder

COMPILED = ("textworld",)
"""extras whose packages need a compiler"""


@dataclass(frozen=True)
class TaskOptions:
    """Settings of a task's upload."""

    split: str = ""
    episodes: int = 100
    knobs: Mapping[str, Any] = field(default_factory=dict)
    set: tuple[str, ...] = ()
    """the knobs as KNOB=VALUE"""
    reward: str = "sparse"
    licence: str = ""
    wheel: Path | None = None
    """package of envsuite that a Space installs"""


def of_run(source: Path, target: Target, licence: str) -> Bundle:
    """Returns the records, settings and summary of a finished run. Raises UsageError, DataError."""
    if target.kind != "dataset":
        raise UsageError(f"{source} is a run, which is uploaded as a dataset: write dataset:{target.name}.")
    file = records.results_file(source)
    if not file.exists() or not (source / "summary.json").exists():
        raise UsageError(f"{source} is not a finished run (results.jsonl and summary.json): continue it with --resume.")
    config, summary = RunFolder.read(source).config, read_json(source / "summary.json")
    public = {name: value for name, value in config.items() if name not in NOT_IDENTITY or name in ("run_id", "split")}
    return Bundle(
        target,
        {
            "README.md": cards.run_card(config, summary, licence),
            "config.json": _json(public),
            "summary.json": _json({name: value for name, value in summary.items() if name not in CONNECTION}),
            "results.jsonl": b"".join(line for _, line in read_lines(file)),
        },
    )


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def of_task(task: Task, target: Target, options: TaskOptions) -> Bundle:
    """Returns a task as `target` needs it. Raises UsageError, BadKnob and the errors of the task's engine."""
    return space(task, target, options) if target.kind == "space" else games(task, target, options)


def games(task: Task, target: Target, options: TaskOptions) -> Bundle:
    """Returns a dataset of a task's games with their first prompts."""
    flags: dict[str, Any] = {"set": list(options.set)} if options.set else {}
    config = chat_config("hub", task.id, options.split, options.episodes, reward=options.reward, **flags)
    table = rows(task.id, options.split, options.episodes, reward=options.reward, **flags)
    environment = ChatGame(config)
    try:
        lines = [
            {"task": task.id, "seed": seed, "messages": environment.begin(seed), **row}
            for seed, row in zip(config.seeds, table, strict=True)
        ]
    finally:
        environment.close()
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    readme = cards.games_card(task, target.name, config.split, len(lines), options.licence)
    return Bundle(target, {"README.md": readme, "games.jsonl": text.encode()})


def space(task: Task, target: Target, options: TaskOptions) -> Bundle:
    """Returns an OpenEnv Space: a container image that serves the task on port 8000."""
    name = target.name.partition("/")[2]
    extras = ",".join(filter(None, [task.requires, "openenv"]))
    wheel, content = _wheel(options.wheel)
    tools = "RUN apt-get update && apt-get install -y --no-install-recommends build-essential cmake\n"
    files = {
        "README.md": cards.space_card(task, name, options.licence),
        "Dockerfile": _DOCKERFILE.format(
            tools=tools if task.requires in COMPILED else "",
            requirement=f"./{wheel}[{extras}]",
            data="RUN envsuite data get alfworld\n" if task.panel and task.family == "alfworld" else "",
        ).encode(),
        "openenv.yaml": _OPENENV.format(name=name).encode(),
        "pyproject.toml": _SERVER_PROJECT.format(name=name, requirement=f"envsuite[{extras}]", task=task.id).encode(),
        "server/__init__.py": b'"""Server of the task."""\n',
        "server/app.py": _APP.format(
            task=task.id, reward=options.reward, knobs="".join(f", {k}={v!r}" for k, v in options.knobs.items())
        ).encode(),
    }
    return Bundle(target, {**files, wheel: content})


def _wheel(path: Path | None) -> tuple[str, bytes]:
    """Returns the name and content of a wheel of envsuite, which no package index has. Raises UsageError."""
    if path is None:
        raise UsageError("A Space installs envsuite from --wheel FILE: build one with `pip wheel --no-deps .`")
    if not re.fullmatch(r"envsuite-[\w.!+]+-[\w.-]+\.whl", path.name) or not path.is_file():
        raise UsageError(f"--wheel {path} is not a wheel of envsuite: build one with `pip wheel --no-deps .`")
    return path.name, path.read_bytes()


_DOCKERFILE = """\
FROM python:3.11-slim
{tools}WORKDIR /app
ENV ENVSUITE_CACHE=/app/cache
COPY . .
RUN pip install --no-cache-dir '{requirement}'
{data}RUN mkdir -p cache && chmod -R a+rwX cache
EXPOSE 8000
CMD ["uvicorn", "server.app:app", "--host", "0.0.0.0", "--port", "8000"]
"""
_OPENENV = """\
spec_version: 1
name: {name}
type: space
runtime: fastapi
app: server.app:app
port: 8000
"""
_SERVER_PROJECT = """\
[build-system]
requires = ["setuptools>=68"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
description = "OpenEnv server of {task}"
requires-python = ">=3.11"
dependencies = ["{requirement}", "openenv-core>=0.2.1"]

[project.scripts]
server = "server.app:main"

[tool.setuptools]
packages = ["server"]
"""
_APP = '''\
"""OpenEnv server of one task."""

import uvicorn
from harness.interop.openenv import app as serve

app = serve({task!r}, reward_mode={reward!r}{knobs})


def main() -> None:
    """Serves the task on port 8000."""
    uvicorn.run(app, host="0.0.0.0", port=8000)


if __name__ == "__main__":
    main()
'''
