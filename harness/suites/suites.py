"""Suites: named lists of tasks under one fixed protocol, so that results can be compared with published ones.

`suites.toml` declares them; `harness.suites.plan.under_suite` applies one to the settings of a call.
"""

from __future__ import annotations

import importlib.resources
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any

from envsuite import registry
from envsuite.errors import UsageError, did_you_mean
from envsuite.types import Panel, Task
from harness.prompting import protocols

PREFIX = "suite:"
NOT_FLAGS = ("tasks", "after", "caps", "panels", "games", "metric", "over_splits", "free", "needs", "protocol")
FEWER = ("episodes", "baseline_episodes")
"""settings that a user may lower; the table then shows the smaller n"""
STANDARD: dict[str, Any] = {
    "split": "",
    "seed": 0,
    "reward": "sparse",
    "set": [],
    "max_turns": None,
    "top_p": 1.0,
    "action_mode": "write",
    "normalisation": "word",
    "action_grammar": "action",
    "history_reasoning": "on",
    "prompt_wording": "plain",
}
"""default values that every suite fixes. `repeats` is free, because more attempts do not change the protocol."""


@cache
def read() -> Mapping[str, Mapping[str, Any]]:
    """Returns all suites of `suites.toml` by name."""
    declared = tomllib.loads((importlib.resources.files("harness.suites") / "suites.toml").read_text())
    return {name: {**STANDARD, **settings} for name, settings in declared.items()}


def suite(name: str) -> Mapping[str, Any]:
    """Returns one suite. Raises UsageError with the nearest name if it is unknown."""
    known = read()
    if name not in known:
        raise UsageError(f"No suite {name!r}: there are {', '.join(known)}.{did_you_mean(name, known)}")
    return known[name]


def published_settings(name: str, protocol: str) -> dict[str, Any]:
    """Returns the settings of a suite's runs under its published prompt, which fixes some of them itself.

    Raises UsageError if the suite's protocol is another one.
    """
    fixed = suite(name)
    expected = fixed.get("protocol")
    if protocol != expected:
        cure = f"use --protocol {expected}, or none" if expected else "drop the flag"
        raise UsageError(f"Suite {name!r} was not published with --protocol {protocol}: {cure}.")
    flags = {flag: value for flag, value in protocols.load(protocol).flags.items() if flag != "set"}
    return {**fixed, **flags}


def tasks(name: str) -> list[Task]:
    """Returns a suite's tasks. Raises UsageError if a task's step cap differs from the suite's."""
    fixed = suite(name)
    members = [task for pattern in fixed["tasks"] for task in registry.tasks(pattern)]
    for task in members:
        cap = registry.knob_names(task)["max_steps"]
        expected = fixed.get("caps", {}).get(task.id)
        if expected is not None and cap != expected:
            raise UsageError(f"Suite {name!r} caps {task.id} at {expected} commands, the task here at {cap}.")
    return members


def check_panel(name: str, task: Task, panel: Panel) -> None:
    """Raises UsageError if the games on this machine differ from the suite's."""
    if expected := panel_departure(name, task.id, panel.digest, len(panel)):
        raise UsageError(
            f"Suite {name!r} plays {expected} of {task.id}, and this machine holds {len(panel)} ({panel.digest}): "
            "fetch the whole panel with `envsuite data`, or name the task with --env to play fewer games."
        )


def panel_departure(name: str, task: str, digest: str, games: int) -> str:
    """Describes the panel that a suite fixes if it differs from (`digest`, `games`); returns '' if it is the same.

    Where the suite holds no hash of a panel, only the number of games is compared.
    """
    fixed = suite(name)
    hashes = fixed.get("panels", {})
    count = fixed.get("games", {}).get(task, games)
    expected = hashes.get(task, digest)
    if (count, expected) == (games, digest):
        return ""
    return f"all {count} games" + (f" (panel {expected})" if task in hashes else "")


def first_seed(name: str, task: Task) -> int:
    """Returns the seed of a suite's first episode of a task; for a panel, the index of its first game."""
    fixed = suite(name)
    offset: int = fixed["seed"]
    if task.panel:
        return offset
    return task.splits[fixed["split"] or registry.default_split(task)][offset]
