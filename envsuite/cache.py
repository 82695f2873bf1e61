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

MARKER = ".envsuite-cache"
"""file in the cache folder that shows that envsuite made it"""


def cache_root() -> Path:
    """Returns `$ENVSUITE_CACHE`, or the user's cache folder."""
    return Path(os.environ.get("ENVSUITE_CACHE") or platformdirs.user_cache_dir("envsuite"))


def cache_dir(*parts: str) -> Path:
    """Returns and creates the folder `parts` below `$ENVSUITE_CACHE` (default: the user's cache
    folder).

    Raises DataError.
    """
    root = cache_root()
    path = root.joinpath(*parts)
    try:
        fresh = not root.exists() or not any(root.iterdir())
        path.mkdir(parents=True, exist_ok=True)
        if fresh:
            (root / MARKER).touch()
    except OSError as error:
        raise DataError(
            f"The cache folder {path} cannot be created ({error.strerror}): set ENVSUITE_CACHE to a writable folder."
        ) from error
    return path


def share(path: Path) -> None:
    """Gives a file that was created private the permissions of an ordinary new file, as the user's umask allows."""
    path.chmod(0o666 & ~_umask())


def _umask() -> int:
    """Returns the process's umask; from /proc if possible, because os.umask() changes it for all threads."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        status = Path("/proc/self/status").read_text().splitlines()
        return int(next(line.split()[1] for line in status if line.startswith("Umask:")), 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


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
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        error.filename = str(path)  # of the caller, not the temporary one
        raise
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        share(Path(temporary))
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
