"""Host files that a sandbox can see: the allow-list of packages, and the folders of /usr to hide."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
import sysconfig
from collections.abc import Iterable
from functools import cache
from pathlib import Path

INSIDE = Path(__file__).parent / "inside"


@cache
def closure(distributions: tuple[str, ...]) -> dict[str, Path]:
    """Returns the top-level entries (packages, modules, library folders) of `distributions` and all
    their requirements, by name.

    Raises ModuleNotFoundError with the name of one that is not installed.
    """
    entries: dict[str, Path] = {}
    waiting, seen = list(distributions), set()
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name in map(str.lower, distributions):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name) from None
            continue  # required on other platforms only
        for file in distribution.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__", "/") and not top.endswith((".pth", ".virtualenv")):
                entries[top] = Path(str(distribution.locate_file(top)))
        for requirement in distribution.requires or ():
            if "extra ==" not in requirement:
                waiting.append(re.split(r"[\s;<>=!~\[(]", requirement, maxsplit=1)[0])
    return {top: path for top, path in sorted(entries.items()) if path.exists()}


def interpreter() -> str:
    """Returns the path of the Python that runs inside: envsuite's own, outside its virtual
    environment.
    """
    return os.path.realpath(sys.executable)


def interpreter_root() -> str:
    return os.path.realpath(sys.base_prefix)


@cache
def foreign_packages() -> tuple[str, ...]:
    """Returns folders of the interpreter and of /usr that may contain other packages, and so other
    data sets.
    """
    folders = {str(path) for root in (interpreter_root(), "/usr", "/usr/local") for path in package_folders(Path(root))}
    folders |= {sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]}
    return tuple(sorted(path for path in map(os.path.realpath, folders) if os.path.isdir(path)))


def package_folders(root: Path) -> list[Path]:
    """Returns the folders below the root of an installation that hold packages of Python, conda or R, and sources."""
    folders = [path for library in ("lib", "lib64") for path in root.glob(f"{library}/python3*/*-packages")]
    others = ("pkgs", "envs", "lib/R", "lib64/R", "share/R", "src")
    return folders + [root / name for name in others if (root / name).is_dir()]


def allowed_around(root: str, hidden: Iterable[str]) -> list[str]:
    """Returns paths that together cover `root` without `hidden`, because Landlock can allow but not
    except.
    """
    below = [path for path in hidden if path == root or path.startswith(root.rstrip("/") + "/")]
    if root in below:
        return []
    if not below:
        return [root]
    with os.scandir(root) as entries:
        inner = sorted(entry.path for entry in entries)
    return [path for child in inner for path in allowed_around(child, below)]
