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
from harness.types import Policy, ReportsRequests

NAME = "config.json"
REQUESTS = "request_fields"
"""Key of the request fields that were dropped, renamed or left to the server."""


def write(folder: Path, settings: Mapping[str, Any]) -> None:
    """Writes the settings of a run that starts or continues; keeps what earlier calls noted about requests."""
    content = {
        **settings,
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": {"platform": platform.platform(), "python": sys.version.split()[0], "cpus": os.cpu_count()},
    }
    if noted := _noted(folder):
        content[REQUESTS] = noted
    _write(folder, content)


def note_requests(folder: Path, policy: Policy) -> None:
    """Adds the request fields that the servers of `policy` changed; does nothing if there are none."""
    changes = policy.request_changes() if isinstance(policy, ReportsRequests) else {}
    if changes and changes != _noted(folder):
        _write(folder, {**read_json(folder / NAME), REQUESTS: changes})


def _noted(folder: Path) -> dict[str, Any]:
    """Returns what is stored about requests; {} for a new run or a damaged file, which is written anew."""
    try:
        noted = read_json(folder / NAME).get(REQUESTS)
    except (DataError, ValueError, AttributeError):
        return {}
    return noted if isinstance(noted, dict) else {}


def _write(folder: Path, content: Mapping[str, Any]) -> None:
    write_atomically(folder / NAME, json.dumps(content, indent=2) + "\n")
