"""Installed packages: their versions, and what the extras of envsuite need."""

from __future__ import annotations

import importlib.metadata
import re
from collections import defaultdict


def version(package: str) -> str:
    """Returns the version of an installed package, '' if there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def extras() -> dict[str, list[str]]:
    """Returns the packages of each extra, from the metadata of the installed envsuite; {} if it is not installed.

    Extras that only combine others are left out.
    """
    try:
        lines = importlib.metadata.requires("envsuite") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    packages: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        requirement = re.match(r"""([\w.-]+).*;.*extra == ['"]([\w.-]+)['"]""", line)
        if requirement and requirement[1] != "envsuite":
            packages[requirement[2]].append(requirement[1])
    return dict(packages)
