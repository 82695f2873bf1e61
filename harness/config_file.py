"""config.json of a run: its settings, the host, and what servers changed in its requests."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envsuite.cache import write_atomically
from envsuite.errors import DataError
from envsuite.reading import read_json
from harness.types import DescribesConnection, Policy

NAME = "config.json"
CONNECTION = ("request_fields", "server")
"""Entries that are known only while a model plays: see `harness.types.DescribesConnection`."""
NOT_IDENTITY = ("run_id", "split", "execution", "started_at", "host", *CONNECTION)
"""Entries that are not hashed into `run_id`."""


def write(folder: Path, settings: Mapping[str, Any]) -> None:
    """Writes the settings of a run that starts or continues; keeps what earlier calls noted about servers."""
    content = {
        **settings,
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": {"platform": platform.platform(), "python": sys.version.split()[0], "cpus": os.cpu_count()},
    }
    _write(folder, {**content, **_noted(folder)})


def note_connection(folder: Path, policy: Policy) -> None:
    """Adds what `policy` knows of its servers; does nothing if that is stored already."""
    entries = policy.connection() if isinstance(policy, DescribesConnection) else {}
    if entries and {**_noted(folder), **entries} != _noted(folder):
        _write(folder, {**read_json(folder / NAME), **entries})


def _noted(folder: Path) -> dict[str, Any]:
    """Returns what is stored about servers; {} for a new run or a damaged file, which is written anew."""
    try:
        stored = read_json(folder / NAME)
        return {name: stored[name] for name in CONNECTION if isinstance(stored.get(name), dict)}
    except (DataError, ValueError, AttributeError):
        return {}


def _write(folder: Path, content: Mapping[str, Any]) -> None:
    write_atomically(folder / NAME, json.dumps(content, indent=2) + "\n")
