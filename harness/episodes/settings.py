"""Settings that decide an episode: what a series of the store has in common.

They are the task and its content, the protocol, the policy, and the code and the packages that play. A
part that cannot be identified, such as an environment typed into a notebook, makes `settings_of` return
None: such episodes are not stored.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from envsuite import registry
from envsuite.installed import extras, version
from envsuite.types import Task
from harness.policies import identity

OURS = ("envsuite", "harness")
BASE = ("numpy", "gymnasium")
"""packages that every episode depends on"""
MOST_FILES = 5_000
MOST_BYTES = 256 * 2**20
"""size of an environment's code and data above which it is not identified"""


def settings_of(
    protocol: Mapping[str, Any], task: Task, knobs: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Returns everything that decides an episode of `task` except its seed and attempt, or None.

    `protocol` holds the settings of the run (`RunConfig.protocol`), `options` the settings of its policy.
    """
    policy = identity(str(protocol["model"]), options)
    code = _code(task)
    files = _named_files({**task.kwargs, **knobs})
    if policy is None or code is None or files is None:
        return None
    return {
        **protocol,
        "entry_point": task.entry_point,
        "task_knobs": {name: list(value) if isinstance(value, tuple) else value for name, value in task.kwargs.items()},
        "policy": policy,
        "code": code,
        "files": files,
        "packages": _packages(task),
        "python": "{}.{}".format(*sys.version_info),
    }


def _code(task: Task) -> str | None:
    """Returns a hash of the code that plays: envsuite, the harness, and for environments of other
    packages their package with every package that it imports and that is not installed.
    """
    names = set(OURS)
    if not _is_ours(task):
        names |= _local_packages(registry.env_class(task).__module__.partition(".")[0])
    digests = [_package_digest(name) for name in sorted(names)]
    return None if None in digests else _hash(map(str, digests))


def _is_ours(task: Task) -> bool:
    return registry.env_class(task).__module__.partition(".")[0] == "envsuite"


@functools.cache
def _local_packages(name: str) -> frozenset[str]:
    """Returns a package and all packages of the user's own that it needs, and ours."""
    names = set(OURS)  # they need none of the user's own
    _add_local(name, names)
    return frozenset(names)


def _add_local(name: str, names: set[str]) -> None:
    """Adds a package and, as far as import statements tell, every package of the user's own that it needs."""
    names.add(name)
    for path in _files_of(name):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            else:
                imported = [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            for other in {word.partition(".")[0] for word in imported} - names:
                if _is_local(other):
                    _add_local(other, names)


def _is_local(name: str) -> bool:
    """Returns True for a package or module of the user's own, which has no version."""
    folders = {folder for path in _paths(name) for folder in path.parts}
    return name not in sys.stdlib_module_names and bool(folders) and not folders & {"site-packages", "dist-packages"}


def _paths(name: str) -> list[Path]:
    """Returns the folders of a package or the file of a module; [] if it has none. Imports nothing, because an
    import runs the user's code.
    """
    module = sys.modules.get(name)
    if module is not None:
        folders, file = getattr(module, "__path__", None), getattr(module, "__file__", None)
    else:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return []
        folders = spec.submodule_search_locations if spec else None
        file = spec.origin if spec and spec.has_location else None
    return [Path(folder) for folder in folders or ()] or ([Path(file)] if file else [])


def _files_of(name: str) -> list[Path]:
    """Returns the Python files of a package; of a single module, its own file."""
    return [file for path in _paths(name) for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]


@functools.cache
def _package_digest(name: str) -> str | None:
    """Returns a hash of all files of a package; of a single module, all files of its folder."""
    paths = _paths(name)
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else path.parent.glob("*")))
    return _digest(files) if paths else None


def _named_files(knobs: Mapping[str, Any]) -> dict[str, str] | None:
    """Returns a hash of each file or folder that a knob names; None if one is too large."""
    digests: dict[str, str] = {}
    for name, value in knobs.items():
        for word in value if isinstance(value, (list, tuple)) else (value,):
            path = Path(word) if isinstance(word, str) and word else None
            if path is None or not _exists(path):
                continue
            digest = _digest(path.rglob("*") if path.is_dir() else [path])
            if digest is None:
                return None
            digests[f"{name}={word}"] = digest
    return digests


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # text that no path can be
        return False


def _digest(paths: Iterable[Path]) -> str | None:
    """Returns a hash of names and contents of files; None if they are too many or too large."""
    files, size = [], 0
    for path in paths:
        passing = "__pycache__" in path.parts or path.name.startswith(".") or path.suffix == ".log"
        if passing or not path.is_file():
            continue
        size += path.stat().st_size
        files.append(path)
        if len(files) > MOST_FILES or size > MOST_BYTES:
            return None
    digest = hashlib.sha256()
    for path in sorted(files):
        content = path.read_bytes()
        digest.update(f"{path.parent.name}/{path.name}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
        digest.update(content)
    return digest.hexdigest()[:16]


def _packages(task: Task) -> dict[str, str]:
    """Returns the versions of the packages that the environment uses; of all packages if they are unknown."""
    needed = extras()
    if not needed or not _is_ours(task):  # {}: a checkout that is not installed
        return {"all": _all_packages()}
    return {name: version(name) for name in sorted([*BASE, *needed.get(task.requires, ())])}


@functools.cache
def _all_packages() -> str:
    packages = (package.metadata for package in importlib.metadata.distributions())  # each access parses a file
    return _hash(sorted({f"{metadata['Name']} {metadata['Version']}" for metadata in packages}))


def _hash(words: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
