"""Docker images: pulled with retries, built from folders, and kept within a disk budget.

Only images pulled or built here count towards the budget and are ever removed: built ones have a
label, pulled ones are in a list in the cache, with the time of their last use. The least recently
used are removed first; an image that a container uses stays. `ENVSUITE_DOCKER_GB` sets the budget
(60). Every image counts with its full size, layers shared with other images included.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envsuite.cache import cache_dir, write_atomically
from envsuite.errors import DataError, EngineFailure, UsageError
from envsuite.reading import Allowance
from envsuite.sandbox import docker as driver
from envsuite.sandbox import leftovers
from envsuite.sandbox.inside import archive

LABEL, BUILT = "envsuite.image", "envsuite-built:"
"""label of an image built here (its value is a hash of the content), and prefix of its name"""
WAITS = (2.0, 8.0, 30.0)
"""seconds between attempts to pull"""
BUDGET_GB = 60.0
_LIMITED = ("toomanyrequests", "too many requests", "429")
_ABSENT = ("manifest unknown", "not found", "does not exist", "access denied", "name unknown")


def obtain(client: Any, name: str, waits: Sequence[float] = WAITS) -> None:
    """Pulls the image `name` unless it is present.

    Raises DataError for an image that does not exist, EngineFailure if the registry is unreachable
    or limits the rate.
    """
    import docker

    try:
        client.images.get(name)
    except docker.errors.ImageNotFound:
        _pull(client, name, waits)
        note_use(client, name)
        shrink(client, keep=name)
    else:
        if name in _used(client):
            note_use(client, name)


def _pull(client: Any, name: str, waits: Sequence[float]) -> None:
    import docker

    reason = ""
    for wait in (*waits, None):
        try:
            client.images.pull(*_tagged(name))
            return
        except (docker.errors.APIError, OSError) as error:
            reason = " ".join(str(getattr(error, "explanation", None) or error).split())
        if any(word in reason.lower() for word in _ABSENT) and "timeout" not in reason:
            raise DataError(
                f"There is no image {name} to pull ({reason[:160]}): "
                "exclude its instance with the knob deny, or name another registry's image."
            )
        if wait is not None:
            time.sleep(wait)
    if any(word in reason.lower() for word in _LIMITED):
        raise EngineFailure(
            f"The registry of {name} refuses further pulls for now (429, a rate limit; {len(waits) + 1} tries): "
            "run `docker login`, wait some hours, or bring the image with `docker save` and `docker load`."
        )
    raise EngineFailure(f"The image {name} cannot be pulled ({len(waits) + 1} tries): {reason[-200:]}")


def _tagged(name: str) -> tuple[str, str]:
    """Splits a name into repository and tag; a colon before the last slash belongs to a registry's
    port.
    """
    head, colon, tag = name.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (name, "latest")


def build(client: Any, base: str, folders: Mapping[str, Path], environment: Mapping[str, str] | None = None) -> str:
    """Builds an image of `base` with each of `folders` (path inside -> folder here) copied in; returns
    its name.

    The name is a hash of the content, so that equal images are built once.
    """
    import docker

    labels = client.images.get(base).labels or {}
    lines = [f"FROM {base}"]
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            for number, (target, folder) in enumerate(sorted(folders.items())):
                tar.add(folder, arcname=str(number), filter=_plain)
                lines.append(f"COPY {json.dumps([str(number), target])}")
            lines += [f"ENV {name}={json.dumps(value)}" for name, value in sorted((environment or {}).items())]
            dockerfile = tarfile.TarInfo("Dockerfile")
            content = ("\n".join(lines) + "\n").encode()
            dockerfile.size = len(content)
            tar.addfile(dockerfile, io.BytesIO(content))
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
        name = f"{BUILT}{digest}"
        with contextlib.suppress(docker.errors.ImageNotFound):
            client.images.get(name)
            note_use(client, name)
            return name
        file.seek(0)
        try:
            client.images.build(
                fileobj=file, custom_context=True, tag=name, rm=True, forcerm=True, network_mode="none",
                labels={**labels, LABEL: digest},
            )  # fmt: skip
        except (docker.errors.BuildError, docker.errors.APIError) as error:
            raise EngineFailure(f"The image of {base} and {', '.join(folders)} cannot be built: {error}.") from error
    note_use(client, name)
    shrink(client, keep=name)
    return name


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Clears owners and times and drops caches, which differ between copies of the same content."""
    if "__pycache__" in member.name.split("/"):
        return None
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def copy_out(client: Any, image: str, path: str, target: Path, leave_out: Sequence[str] = ()) -> None:
    """Copies the folder `path` of an image to the new folder `target`, without top-level entries in
    `leave_out`.

    Links that point outside it are skipped. Nothing in the image is executed. Raises DataError if
    `path` does not exist or is too large.
    """
    import docker

    allowance = Allowance(f"{path} of the image {image}")

    def kept(member: tarfile.TarInfo) -> bool:
        if set(member.name.split("/")[1:2]) & set(leave_out):
            return False
        allowance.add(member)
        return True

    container = client.containers.create(image, ["true"], network_mode="none", labels={driver.LABEL: leftovers.owner()})
    try:
        pieces, _ = client.api.get_archive(container.id, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            with tarfile.open(fileobj=_Stream(pieces), mode="r|") as tar:
                archive.extract(tar, folder, skip_unsafe=True, keep=kept)
            os.replace(Path(folder, Path(path).name), target)
    except docker.errors.NotFound:
        raise DataError(f"The image {image} holds no {path}.") from None
    finally:
        container.remove(force=True)


class _Stream(io.RawIOBase):
    """A read-once file made of byte chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._buffered = iter(chunks), b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._buffered) < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self._buffered += chunk
        size = len(self._buffered) if size < 0 else size
        data, self._buffered = self._buffered[:size], self._buffered[size:]
        return data


# ---- disk budget --------------------------------------------------------------------------------------------------


def budget_bytes() -> float:
    """Returns the disk budget for images [bytes]. Raises UsageError for an invalid value."""
    setting = os.environ.get("ENVSUITE_DOCKER_GB") or str(BUDGET_GB)
    try:
        gigabytes = float(setting)
    except ValueError:
        gigabytes = -1.0
    if not 0 <= gigabytes < float("inf"):
        raise UsageError(
            f"ENVSUITE_DOCKER_GB={setting} is not a size: set the disk space for images in GB, e.g. {BUDGET_GB:g}."
        )
    return gigabytes * 1e9


def note_use(client: Any, name: str) -> None:
    """Records the current time as the last use of an image."""
    _change(client, lambda used: used.update({name: time.time()}))


def shrink(client: Any, keep: str = "") -> list[str]:
    """Removes least recently used images until the others are within the budget; returns the names of
    those removed.
    """
    import docker

    budget, used, sizes = budget_bytes(), _used(client), {}
    # `client.images.list` would query each image again, and fail if one was removed in the meantime.
    for image in client.api.images():
        for tag in image["RepoTags"] or ():
            # Images that others build from one of ours inherit its label.
            if tag in used or (LABEL in (image["Labels"] or {}) and tag.startswith(BUILT)):
                sizes[tag] = image["Size"]
    removed = []
    for name in sorted(sizes, key=lambda tag: used.get(tag, 0.0)):
        if sum(sizes.values()) <= budget:
            break
        if name == keep:
            continue
        with contextlib.suppress(docker.errors.APIError):  # in use
            client.images.remove(name)
            del sizes[name]
            removed.append(name)
    gone = [name for name in used if name not in sizes]
    if gone:
        _change(client, lambda used: [used.pop(name, None) for name in gone])
    return removed


def _file(client: Any) -> Path:
    return cache_dir("docker") / f"{hashlib.sha256(client.info()['ID'].encode()).hexdigest()[:16]}.json"


def _used(client: Any) -> dict[str, float]:
    """Returns when each of our images was last used, by name; an unreadable file counts as empty."""
    try:
        return {str(name): float(at) for name, at in json.loads(_file(client).read_text()).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _change(client: Any, update: Any) -> None:
    from filelock import FileLock

    file = _file(client)
    with FileLock(f"{file}.lock"):
        used = _used(client)
        update(used)
        write_atomically(file, json.dumps(used, indent=1))
