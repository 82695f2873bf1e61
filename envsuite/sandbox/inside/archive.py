"""Tar archives of files from a sandbox or a stranger (`extract`), their transfer, and removal of
files.
"""

from __future__ import annotations

import copy
import io
import os
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from typing import Any


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
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        extract(tar, target)
    return 0


class UnsafeMember(tarfile.TarError):
    """A member that would be extracted outside the target folder or is neither file, folder nor link."""


def extract(
    tar: tarfile.TarFile,
    target: str,
    skip_unsafe: bool = False,
    keep: Callable[[tarfile.TarInfo], bool] = lambda member: True,
) -> None:
    """Extracts an archive that nobody vouches for below `target`: files, folders and links that stay inside.

    Owners are not restored, and modes lose set-ID bits and write permission for others. Raises UnsafeMember, or skips
    such members with `skip_unsafe`. Members for which `keep` is false are ignored. tarfile's own filter "data" does not
    exist before Python 3.11.4.
    """
    root = os.path.realpath(target)
    os.makedirs(root, exist_ok=True)
    folders = []
    for member in filter(keep, tar):
        try:
            safe = _checked(member, root)
        except UnsafeMember:
            if skip_unsafe:
                continue
            raise
        if safe.isdir():
            folders.append((safe, safe.mode))
            safe.mode = 0o700  # until its content is there
        tar.extract(safe, root, set_attrs=False, **_UNFILTERED)
        if safe.isreg() or safe.isdir():  # tarfile sets no mode where root may not change owners
            path = os.path.join(root, safe.name)
            os.chmod(path, safe.mode)
            os.utime(path, (safe.mtime, safe.mtime))
    for folder, mode in reversed(folders):
        place = os.path.join(root, folder.name)
        if os.path.isdir(place) and not os.path.islink(place):
            os.chmod(place, mode)
            os.utime(place, (folder.mtime, folder.mtime))


_UNFILTERED: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}


def _checked(member: tarfile.TarInfo, root: str) -> tarfile.TarInfo:
    """Returns a copy of `member` that is safe to extract below `root`. Raises UnsafeMember."""
    name = member.name.lstrip("/")
    place = os.path.realpath(os.path.join(root, name))
    if not _inside(place, root):
        raise UnsafeMember(f"{member.name!r} is outside the target folder")
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise UnsafeMember(f"{member.name!r} is a device or a pipe")
    safe = copy.copy(member)
    safe.name = name
    if member.issym() or member.islnk():
        safe.linkname = os.path.normpath(member.linkname)
        base = os.path.dirname(os.path.join(root, name)) if member.issym() else root
        end = os.path.realpath(os.path.join(base, safe.linkname))
        if os.path.isabs(member.linkname) or not _inside(end, root):
            raise UnsafeMember(f"{member.name!r} links to {member.linkname!r}, outside the target folder")
        if member.islnk() and not os.path.isfile(end):  # tarfile would extract the member of that name unchecked
            raise UnsafeMember(f"{member.name!r} links to {member.linkname!r}, which is not a file")
    mode = member.mode & 0o755 | 0o600
    if member.isdir():
        mode |= 0o700
    elif not mode & 0o100:
        mode &= ~0o111
    safe.mode = mode
    safe.uid, safe.gid = os.getuid(), os.getgid()
    safe.uname = safe.gname = ""
    return safe


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def remove(paths: Sequence[str]) -> None:
    """Removes files and folders recursively, even folders whose permissions lock out their own owner."""
    if not paths:
        return
    command = ["/bin/rm", "-rf", "--one-file-system", "--", *paths]
    if subprocess.run(command, stderr=subprocess.DEVNULL).returncode:
        unlock = ["/usr/bin/find", "-P", *paths, "-xdev", "-type", "d", "-exec", "chmod", "u+rwx", "{}", ";"]
        subprocess.run(unlock, stderr=subprocess.DEVNULL)
        subprocess.run(command, stderr=subprocess.DEVNULL)
