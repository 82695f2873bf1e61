"""Environments of other packages, which declare an entry point in the group `envsuite.envs`.

An entry point names a module, or a function, that registers tasks and imports no engine. `import envsuite` loads
these modules if any package declares one, so that `gymnasium.make("envsuite/...")` finds their tasks.
"""

from __future__ import annotations

import os
import sys
import warnings

GROUP = "envsuite.envs"

_loaded: set[str] = set()
_complete = False


def load_declared() -> None:
    """Loads the entry points if any package on `sys.path` declares one."""
    if any(map(_declares_plugins, sys.path)):
        _load(final=False)


def load_all() -> None:
    """Loads the entry points that are not loaded yet."""
    global _complete
    if not _complete:
        _complete = True
        _load(final=True)


def _declares_plugins(folder: str) -> bool:
    """Returns True if a package in `folder` declares an entry point in the group.

    The standard library's importlib.metadata takes five times as long, as much as all other imports of envsuite.
    """
    try:
        with os.scandir(folder or ".") as entries:
            packages = [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return False
    return any(_holds_group(os.path.join(package, "entry_points.txt")) for package in packages)


def _holds_group(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return f"[{GROUP}]".encode() in file.read()
    except OSError:
        return False


def _load(final: bool) -> None:
    """Loads every entry point that is not loaded yet.

    If not `final`, a package that cannot be loaded while its own import is running is left for the next call: it
    imported envsuite before it defined what its entry point names.
    """
    import importlib.metadata  # imported here because it takes a third of the package's import time

    for entry in importlib.metadata.entry_points(group=GROUP):
        if entry.value in _loaded:
            continue
        try:
            loaded = entry.load()
            if callable(loaded):
                loaded()
        except Exception as error:  # a faulty plugin must not break the suite
            if not final and entry.module.partition(".")[0] in sys.modules:
                continue
            warnings.warn(f"Plugin {entry.name!r} ({entry.value}) was skipped: {error}", stacklevel=2)
        _loaded.add(entry.value)
