"""The user's cache folder (`cache_dir`) and atomic file writes (`write_atomically`, `replacing`)."""

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
    """Returns and creates the folder `parts` below `$ENVSUITE_CACHE` (default: the user's cache
    folder).

    Raises DataError.
    """
    root = Path(os.environ.get("ENVSUITE_CACHE") or platformdirs.user_cache_dir("envsuite"))
    path = root.joinpath(*parts)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"The cache folder {path} cannot be created ({error.strerror}): set ENVSUITE_CACHE to a writable folder."
        ) from error
    return path


def write_atomically(path: Path, content: str | bytes | Iterable[bytes]) -> None:
    """Writes `path` atomically: readers, and a crash, see either the old file or the complete new one."""
    if isinstance(content, str):
        content = content.encode()
    with replacing(path) as file:
        file.writelines([content] if isinstance(content, bytes) else content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Opens a temporary file that replaces `path` when the block ends; if the block raises, `path` is
    unchanged.
    """
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
