"""Choosing a driver: the strongest that works here, tried once for real."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

from envsuite.errors import EnvsuiteError, MissingExtra, UsageError
from envsuite.sandbox.protocol import Session, Spec
from envsuite.sandbox.session import ZygoteSession

DRIVERS = ("bwrap", "landlock", "docker", "process")
LATER = ("podman", "apptainer")
SAFE = ("bwrap", "landlock", "docker")
"""the order for model-written code; `process` is left out on purpose"""


class NoSandbox(UsageError):
    """No driver that is asked for works on this machine."""


def open(spec: Spec, driver: str = "auto", order: Sequence[str] = SAFE, spare: bool = False) -> Session:
    """Opens a sandbox with `driver`, or for "auto" with the first of `order` that works.

    `spare`: what the next `reset` needs is started while this episode is played (a container: its whole start).
    Raises NoSandbox, in one line with the cure.
    """
    name = choose(driver, order)
    return ZygoteSession(name, _module(name), spec, spare)


def resources(driver: str) -> dict[str, float]:
    """What a cluster's node must offer for this driver (`TextEnv.resources`): a share of a Docker daemon, or nothing."""
    return {"docker": 0.001} if driver == "docker" else {}


def choose(driver: str = "auto", order: Sequence[str] = SAFE) -> str:
    """The name of the driver `open` would take. Raises NoSandbox."""
    if driver != "auto":
        if driver in LATER:
            raise NoSandbox(f"The {driver} sandbox is not there yet: use {', '.join(SAFE)}.")
        if driver not in DRIVERS:
            raise UsageError(f"There is no sandbox {driver!r}: it is auto, {', '.join(DRIVERS)}.")
        if reason := probe(driver):
            raise NoSandbox(f"The {driver} sandbox does not work here: {reason}. {_module(driver).CURE}.")
        return driver
    reasons = {}
    for name in order:
        reasons[name] = probe(name)
        if not reasons[name]:
            return name
    said = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    raise NoSandbox(
        f"No sandbox for model-written code works here ({said}). Install one: `apt-get install bubblewrap`; or, "
        "without protection against hostile code, ask for --set sandbox=process."
    )


@functools.cache
def probe(name: str) -> str:
    """'' where the driver works here, else why not: `true` is run in it once."""
    module = _module(name)
    if missing := module.available():
        return str(missing)
    try:
        with ZygoteSession(name, module, Spec()) as session:
            result = session.run(["/bin/true"])
    except MissingExtra:
        raise
    except EnvsuiteError as error:
        return str(error).rstrip(".")
    return "" if result.exit_code == 0 else f"`true` ended with {result.exit_code}"


def _module(name: str) -> Any:
    return importlib.import_module(f"envsuite.sandbox.{name}")
