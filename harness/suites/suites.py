"""Suites: a named list of tasks under one protocol, so that a number means what the paper's means."""

from __future__ import annotations

import argparse
import importlib.resources
import tomllib
from typing import Any

from envsuite import registry
from envsuite.errors import UsageError, did_you_mean
from envsuite.types import Panel, Task

PREFIX = "suite:"
NOT_FLAGS = ("tasks", "after", "caps", "panels", "games", "metric", "free", "needs")
FEWER = ("episodes", "baseline_episodes")
"""may be lowered, and the table then shows the smaller n"""
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
"""what a suite fixes unless it says otherwise. `repeats` is free: more attempts are the same protocol"""


def read() -> dict[str, dict[str, Any]]:
    """All suites by name, from the package's own `suites.toml`."""
    found = tomllib.loads((importlib.resources.files("harness.suites") / "suites.toml").read_text())
    return {name: {**STANDARD, **fixed} for name, fixed in found.items()}


def suite(name: str) -> dict[str, Any]:
    """One suite by name. Raises UsageError naming the nearest."""
    found = read()
    if name not in found:
        raise UsageError(f"No suite {name!r}: there are {', '.join(found)}.{did_you_mean(name, found)}")
    return found[name]


def tasks(name: str) -> list[Task]:
    """A suite's tasks, checked against the step caps it was written for. Raises UsageError where a task here is not the
    one the suite means.
    """
    fixed = suite(name)
    found = [task for pattern in fixed["tasks"] for task in registry.tasks(pattern)]
    for task in found:
        cap, expected = registry.knob_names(task)["max_steps"], fixed.get("caps", {}).get(task.id)
        if expected is not None and cap != expected:
            raise UsageError(f"Suite {name!r} caps {task.id} at {expected} commands, the task here at {cap}.")
    return found


def check_panel(name: str, task: Task, panel: Panel) -> None:
    """Raises UsageError where the games on this machine are not those of the suite."""
    if wanted := panel_departure(name, task.id, panel.digest, len(panel)):
        raise UsageError(
            f"Suite {name!r} plays {wanted} of {task.id}, and this machine holds {len(panel)} ({panel.digest}): fetch the "
            "whole panel with `envsuite-data`, or name the task with --env for another number."
        )


def panel_departure(name: str, task: str, digest: str, games: int) -> str:
    """The panel that a suite fixes, in words, where that is not the one of `games` games and hash `digest`; else ''.

    Of a panel whose hash nobody here could take, the suite fixes the number of games alone.
    """
    fixed = suite(name)
    count, hashed = fixed.get("games", {}).get(task, games), fixed.get("panels", {}).get(task, digest)
    if (count, hashed) == (games, digest):
        return ""
    return f"all {count} games" + (f" (panel {hashed})" if task in fixed.get("panels", {}) else "")


def first_seed(name: str, task: Task) -> int:
    """The seed that a suite's first episode of a task has; of a panel, the number of its game."""
    fixed = suite(name)
    split = fixed["split"] or ("" if task.panel else registry.default_split(task))
    first: int = task.splits[split][fixed["seed"]] if not task.panel else fixed["seed"]
    return first


def protocol(args: argparse.Namespace, name: str) -> argparse.Namespace:
    """`args` under a suite's protocol. Raises UsageError where a flag that was given (`args.said`) says otherwise."""
    fixed = suite(name)
    needs = fixed.get("needs", [])
    named = {word: word.partition("=")[0].strip() for word in args.set}
    for knob in needs:
        if knob not in named.values():
            raise UsageError(f"Suite {name!r} needs --set {knob}=...: {fixed['after']}.")
    own = [word for word, knob in named.items() if knob in (*needs, *fixed.get("free", []))]
    out = argparse.Namespace(**{**vars(args), "set": [word for word in args.set if word not in own]})
    for key, value in fixed.items():
        if key in NOT_FLAGS:
            continue
        if not hasattr(args, key):
            raise UsageError(f"Suite {name!r} sets {key!r}, which is no flag of envsuite-eval.")
        given = getattr(out, key)
        if key in FEWER and given is not None:
            if given > value:
                flag = "--" + key.replace("_", "-")
                raise UsageError(f"Suite {name!r} plays {value} episodes a task; {flag} {given} is more.")
            continue
        if key in args.said and given not in ([], value):
            flag = "--" + key.replace("_", "-")
            raise UsageError(
                f"Suite {name!r} fixes {flag} {_word(value)}, not {_word(given)}: "
                "drop the flag, or name the tasks with --env."
            )
        setattr(out, key, value)
    out.set = [*out.set, *own]
    return out


def _word(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(value) or "nothing"
    return "unset" if value is None or value == "" else str(value)
