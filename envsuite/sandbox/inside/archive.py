"""A workspace's files as one stream, packed and unpacked inside, where a hostile link leads nowhere worth going."""

from __future__ import annotations

import io
import os
import tarfile


def pack(root: str, path: str, handle: int) -> int:
    """Writes a tar of `path` (below `root`) to `handle`. 1 where there is no such path."""
    target = os.path.join(root, path)
    if not os.path.lexists(target):
        return 1
    with os.fdopen(os.dup(handle), "wb") as file, tarfile.open(fileobj=file, mode="w|") as tar:
        tar.add(target, arcname=os.path.basename(os.path.normpath(target)) if path not in ("", ".") else ".")
    return 0


def unpack(root: str, path: str, data: bytes) -> int:
    """Lays the files of a tar below `root`/`path`."""
    target = os.path.join(root, path)
    os.makedirs(target, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(target, filter="data")
    return 0
