"""Transfer of a run's files as tar streams, packed and unpacked inside the sandbox, and removal of
files.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Sequence


def pack(root: str, path: str, handle: int) -> int:
    """Writes a tar of `path` (below `root`) to the file descriptor `handle`.

    Returns 1 if `path` does not exist.
    """
    target = os.path.join(root, path)
    if not os.path.lexists(target):
        return 1
    with os.fdopen(os.dup(handle), "wb") as file, tarfile.open(fileobj=file, mode="w|") as tar:
        tar.add(target, arcname=os.path.basename(os.path.normpath(target)) if path not in ("", ".") else ".")
    return 0


def unpack(root: str, path: str, data: bytes) -> int:
    """Extracts a tar below `root`/`path`. Returns 0."""
    target = os.path.join(root, path)
    os.makedirs(target, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(target, filter="data")
    return 0


def remove(paths: Sequence[str]) -> None:
    """Removes files and folders recursively, even folders whose permissions lock out their own owner."""
    if not paths:
        return
    command = ["/bin/rm", "-rf", "--one-file-system", "--", *paths]
    if subprocess.run(command, stderr=subprocess.DEVNULL).returncode:
        unlock = ["/usr/bin/find", "-P", *paths, "-xdev", "-type", "d", "-exec", "chmod", "u+rwx", "{}", ";"]
        subprocess.run(unlock, stderr=subprocess.DEVNULL)
        subprocess.run(command, stderr=subprocess.DEVNULL)
