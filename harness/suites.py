"""Suites: a named list of tasks under one protocol, so that a number means what the paper's means."""

from __future__ import annotations

import argparse
import importlib.resources
import tomllib
from typing import Any

from envsuite.errors import UsageError, did_you_mean

PREFIX = "suite:"
NOT_FLAGS = ("tasks", "after")


def read() -> dict[str, dict[str, Any]]:
    """All suites by name, from the package's own `suites.toml`."""
    return tomllib.loads((importlib.resources.files("harness") / "suites.toml").read_text())


def suite(name: str) -> dict[str, Any]:
    """One suite by name. Raises UsageError naming the nearest."""
    found = read()
    if name not in found:
        raise UsageError(f"No suite {name!r}: there are {', '.join(found)}.{did_you_mean(name, found)}")
    return found[name]


def protocol(args: argparse.Namespace, defaults: argparse.Namespace, name: str) -> argparse.Namespace:
    """`args` under a suite's protocol. Raises UsageError where a flag says otherwise.

    `defaults` tells what was said from what was left alone. The number of episodes alone may be lowered, and the table
    then shows the smaller n.
    """
    fixed = suite(name)
    out = argparse.Namespace(**vars(args))
    for key, value in fixed.items():
        if key in NOT_FLAGS:
            continue
        if not hasattr(args, key):
            raise UsageError(f"Suite {name!r} sets {key!r}, which is no flag of envsuite-eval.")
        given, default = getattr(args, key), getattr(defaults, key)
        if key == "episodes" and given is not None:
            if given > value:
                raise UsageError(f"Suite {name!r} plays {value} episodes a task; --episodes {given} is more.")
            continue
        if given != default and given != value:
            flag = "--" + key.replace("_", "-")
            raise UsageError(
                f"Suite {name!r} fixes {flag} {value}, not {given}: drop the flag, or name the tasks with --env."
            )
        setattr(out, key, value)
    return out
