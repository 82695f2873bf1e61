"""Certificates of verified folders: `certificate.json` states that the records of these exact files replay.

`envsuite replay --sandbox` writes them. A certificate is a note for its reader's own use: it is not signed, so one that
came with a stranger's folder proves nothing.
"""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path
from typing import Any

from envsuite.cache import write_atomically
from envsuite.errors import DataError

NAME = "certificate.json"
SCHEMA = "envsuite-certificate-1"
UNHASHED = (NAME, "README.md")
"""files that are made from the records, and so are not part of what is verified"""
MOST_FILES = 10_000
MOST_BYTES = 512 * 2**20
NOT_VERIFIED = ("which model wrote the replies", "token counts, costs and durations")
"""claims of a record that no replay can check"""


def file_digests(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of every file below a folder, by relative path.

    Raises DataError for links, devices and pipes, and for a folder that is too large to be verified.
    """
    digests: dict[str, str] = {}
    total = 0
    try:
        for path in sorted(folder.rglob("*")):
            status = path.lstat()
            name = str(path.relative_to(folder))
            if stat.S_ISDIR(status.st_mode) or name in UNHASHED:
                continue
            if not stat.S_ISREG(status.st_mode):
                raise DataError(f"{path} is a link, a device or a pipe: only plain files can be verified.")
            total += status.st_size
            if total > MOST_BYTES or len(digests) >= MOST_FILES:
                raise DataError(
                    f"{folder} holds more than {MOST_BYTES / 2**20:.0f} MB or {MOST_FILES:,} files, the most that is "
                    "verified: name a single run folder."
                )
            with path.open("rb") as file:
                digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error}.") from error
    return digests


def digest_of_files(digests: dict[str, str]) -> str:
    """Returns one SHA-256 over the names and contents of all files."""
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


def write(path: Path, certificate: dict[str, Any]) -> None:
    """Writes a certificate as JSON."""
    write_atomically(path, json.dumps({"schema_version": SCHEMA, **certificate}, indent=1) + "\n")
