"""Bundles of a finished run, of a task's games, of an OpenEnv Space and of an environment for verifiers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envsuite import __version__
from envsuite.errors import UsageError
from envsuite.reading import read_json, read_lines
from envsuite.types import Task
from harness import records
from harness.config_file import CONNECTION
from harness.hub import cards
from harness.hub.bundle import Bundle, Target
from harness.interop.chat_game import ChatGame, chat_config, rows
from harness.run_folder import NOT_IDENTITY, RunFolder

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
    """package of envsuite that the image or environment installs; None: this version from the package index"""


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
    return CONTENTS[target.kind](task, target, options)


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
    tools = "RUN apt-get update && apt-get install -y --no-install-recommends build-essential cmake\n"
    files = {
        "README.md": cards.space_card(task, name, options.licence),
        "Dockerfile": _DOCKERFILE.format(
            tools=tools if task.requires in COMPILED else "",
            requirement=_requirement(extras, options.wheel, local=True),
            data="RUN envsuite data get alfworld\n" if task.panel and task.family == "alfworld" else "",
        ).encode(),
        "openenv.yaml": _OPENENV.format(name=name).encode(),
        "pyproject.toml": _SERVER_PROJECT.format(
            name=name, requirement=_requirement(extras, options.wheel), task=task.id
        ).encode(),
        "server/__init__.py": b'"""Server of the task."""\n',
        "server/app.py": _APP.format(
            task=task.id, reward=options.reward, knobs="".join(f", {k}={v!r}" for k, v in options.knobs.items())
        ).encode(),
    }
    return Bundle(target, files | _wheel(options.wheel))


def environment(task: Task, target: Target, options: TaskOptions) -> Bundle:
    """Returns a package with an environment for verifiers, as `prime env push` takes it."""
    name = target.name.partition("/")[2]
    module = re.sub(r"\W", "_", name)
    if module[0].isdigit():
        raise UsageError(f"{name!r} becomes a Python module, whose name cannot begin with a digit.")
    extras = ",".join(filter(None, [task.requires, "verifiers"]))
    code = _ENVIRONMENT.format(
        task=task.id, knobs=dict(options.knobs), split=options.split, reward=options.reward, episodes=options.episodes
    )
    project = _ENVIRONMENT_PROJECT.format(
        name=name, module=module, task=task.id, requirement=_requirement(extras, options.wheel)
    )
    files = {
        "README.md": cards.environment_card(task, name),
        "pyproject.toml": project.encode(),
        f"{module}.py": code.encode(),
    }
    return Bundle(target, files | _wheel(options.wheel))


CONTENTS: dict[str, Callable[[Task, Target, TaskOptions], Bundle]] = {
    "dataset": games,
    "space": space,
    "prime": environment,
}


def _requirement(extras: str, wheel: Path | None, local: bool = False) -> str:
    """Returns envsuite as pip requires it; `local` names the wheel's file."""
    if wheel and local:
        return f"./{wheel.name}[{extras}]"
    return f"envsuite[{extras}]" + ("" if wheel else f"=={__version__}")


def _wheel(wheel: Path | None) -> dict[str, bytes]:
    """Returns the wheel's file. Raises UsageError."""
    if wheel is None:
        return {}
    if not re.fullmatch(r"envsuite-[\w.!+]+-[\w.-]+\.whl", wheel.name) or not wheel.is_file():
        raise UsageError(f"--wheel {wheel} is not a wheel of envsuite: build one with `pip wheel --no-deps .`")
    return {wheel.name: wheel.read_bytes()}


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
_ENVIRONMENT = '''\
"""Environment for verifiers: the games of one task of envsuite."""

from typing import Any

import verifiers.v1 as vf
from harness.interop.verifiers import Chat, Game, Games, GamesConfig, GamesEnv
from pydantic import Field

__all__ = ["Chat", "GamesEnv", "TaskGames"]


class TaskGamesConfig(GamesConfig):
    """Selection of the task's games."""

    game: str = {task!r}
    knobs: dict[str, Any] = Field(default_factory=lambda: {knobs!r})
    split: str = {split!r}
    episodes: int | None = {episodes!r}
    reward_mode: str = {reward!r}


class TaskGames(Games, vf.Taskset[Game, TaskGamesConfig]):
    """Games of the task."""
'''
_ENVIRONMENT_PROJECT = """\
[build-system]
requires = ["setuptools>=68"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
description = "{task} of envsuite for verifiers"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["{requirement}", "verifiers>=0.4"]

[tool.setuptools]
py-modules = ["{module}"]
"""
