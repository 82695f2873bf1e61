"""Choice of a driver: `choose` returns the strongest one that works here, tested once by running a command."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Sequence
from typing import Any

from envsuite.errors import EnvsuiteError, MissingExtra, UsageError
from envsuite.sandbox.protocol import Session, Spec
from envsuite.sandbox.session import ZygoteSession

DRIVERS = ("bwrap", "landlock", "docker", "process")
SAFE = ("bwrap", "landlock", "docker")
"""drivers for model-written code in order of preference; `process` offers no protection"""


class SandboxWarning(UserWarning):
    """The automatic choice of a driver passed over a preferred one."""


class NoSandbox(UsageError):
    """None of the requested drivers works on this machine."""


def open(spec: Spec, driver: str = "auto", order: Sequence[str] = SAFE, spare: bool = False) -> Session:
    """Opens a sandbox with `driver`, or for "auto" with the first of `order` that works.

    `spare`: starts what the next `reset` needs while this episode is played (for containers: the
    next container). Raises NoSandbox with the remedy in one line.
    """
    name = choose(driver, order)
    return ZygoteSession(name, _module(name), spec, spare)


def is_leaky(driver: str) -> bool:
    """Returns True if a run under this driver may find labels of public data, so that its record must say so."""
    return driver not in SAFE


def resources(driver: str) -> dict[str, float]:
    """Returns what a cluster node must provide for this driver (`TextEnv.resources`): a share of a
    Docker daemon, or nothing.
    """
    return {"docker": 0.001} if driver == "docker" else {}


def choose(driver: str = "auto", order: Sequence[str] = SAFE) -> str:
    """Returns the name of the driver that `open` would use. Raises NoSandbox.

    Warns if "auto" passes over a preferred driver.
    """
    if driver != "auto":
        if driver not in DRIVERS:
            raise UsageError(f"There is no sandbox {driver!r}: choose auto, {', '.join(DRIVERS)}.")
        if reason := probe(driver):
            raise NoSandbox(f"The {driver} sandbox does not work here: {reason}. {_module(driver).CURE}.")
        return driver
    reasons: dict[str, str] = {}
    for name in order:
        reasons[name] = probe(name)
        if not reasons[name]:
            _report_weaker(name, tuple(reasons.items()))
            return name
    summary = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    raise NoSandbox(
        f"No sandbox for model-written code works here ({summary}). Install one: `apt-get install bubblewrap`; or, "
        "without protection against hostile code, use --set sandbox=process."
    )


@functools.cache
def _report_weaker(name: str, reasons: tuple[tuple[str, str], ...]) -> None:
    """Warns, once per process, that "auto" passed over drivers that are preferred to `name`."""
    skipped = "; ".join(f"{driver}: {reason}" for driver, reason in reasons if reason)
    if skipped:
        warnings.warn(
            f"Model-written code runs in the {name} sandbox, because a preferred one does not work here ({skipped}). "
            "`envsuite check --sandbox` lists what holds on this machine.",
            SandboxWarning,
            stacklevel=4,
        )


@functools.cache
def probe(name: str) -> str:
    """Returns '' if the driver works here, otherwise the reason: runs `true` in it, once per process."""
    module = _module(name)
    if missing := module.available():
        return str(missing)
    try:
        with ZygoteSession(name, _module(name), Spec()) as session:
            result = session.run(["/bin/true"])
    except MissingExtra:
        raise
    except EnvsuiteError as error:
        return str(error).rstrip(".")
    return "" if result.exit_code == 0 else f"`true` ended with {result.exit_code}"


def cure(name: str) -> str:
    """Returns how to make the driver work, in one sentence."""
    return str(_module(name).CURE)


def _module(name: str) -> Any:
    return importlib.import_module(f"envsuite.sandbox.{name}")
