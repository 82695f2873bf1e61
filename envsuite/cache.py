"""The user's cache folder, and writing a file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import platformdirs


def cache_dir(*parts: str) -> Path:
    """`$ENVSUITE_CACHE` (default: the user's cache folder) / parts, created."""
    root = Path(os.environ.get("ENVSUITE_CACHE") or platformdirs.user_cache_dir("envsuite"))
    path = root.joinpath(*parts)
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_atomically(path: Path, content: str | bytes | Iterable[bytes]) -> None:
    """Writes `path` so that a reader, or a crash, finds the old file or the new one and nothing between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        content = content.encode()
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
