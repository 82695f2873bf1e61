"""The user's cache folder, and writing a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import platformdirs

from envsuite.errors import DataError


def cache_dir(*parts: str) -> Path:
    """`$ENVSUITE_CACHE` (default: the user's cache folder) / parts, created. Raises DataError."""
    root = Path(os.environ.get("ENVSUITE_CACHE") or platformdirs.user_cache_dir("envsuite"))
    path = root.joinpath(*parts)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"The cache folder {path} cannot be made ({error.strerror}): set ENVSUITE_CACHE to a folder that can be written."
        ) from error
    return path


def write_atomically(path: Path, content: str | bytes | Iterable[bytes]) -> None:
    """Writes `path` so that a reader, or a crash, finds the old file or the new one and nothing between."""
    if isinstance(content, str):
        content = content.encode()
    with replacing(path) as file:
        file.writelines([content] if isinstance(content, bytes) else content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when the block ends; where it raises, `path` stays what it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
