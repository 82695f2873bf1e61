"""Source archives of the package index: `releases` lists versions, `fetch` downloads one into the cache.

Nothing of an archive runs here: `index_client` downloads it without building its metadata.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from envsuite.cache import cache_dir, write_atomically
from envsuite.errors import DataError, MissingExtra
from envsuite.reading import open_tar
from envsuite.sandbox.inside import archive

CLIENT = Path(__file__).with_name("index_client.py")
_PATIENCE = 600.0
"""seconds for one call of the client"""
_LASTING = 86_400.0
"""seconds for which a list of releases is not asked for again"""
_OFFLINE = ("Retrying (", "Max retries exceeded", "name resolution", "Failed to establish")


class IndexFailure(DataError):
    """The index did not answer this time: no connection, a server's error, a time-out, or pip was killed."""


def releases(name: str) -> list[str]:
    """Returns the final releases of a package that suit this Python, oldest first. Raises DataError.

    The index's answer is kept in the cache for a day.
    """
    from packaging.version import InvalidVersion, Version

    answer = cache_dir("swegym", "releases") / f"{re.sub(r'[^a-zA-Z0-9.-]', '_', name)}.txt"
    if answer.exists() and time.time() - answer.stat().st_mtime < _LASTING:
        output = answer.read_text()
    else:
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
        output = _run(*pip, "index", "versions", name)
        write_atomically(answer, output)
    match = re.search(r"^Available versions: (.+)$", output, re.MULTILINE)
    if match is None:
        raise DataError(f"The package index has no {name} for this Python: check the name and the connection.")
    versions = []
    for text in match[1].split(", "):
        try:
            version = Version(text)
        except InvalidVersion:
            continue
        if not version.is_prerelease and not version.is_postrelease:
            versions.append((version, text))
    return [text for _, text in sorted(versions)]


def fetch(requirement: str) -> Path:
    """Returns the source archive of NAME==VERSION, from the cache if possible; or an archive's path as it is.

    Raises DataError if there is none, or if pip fails.
    """
    from filelock import FileLock

    if requirement.endswith(".tar.gz") and Path(requirement).is_file():
        return Path(requirement)
    folder = _folder(requirement)
    with FileLock(folder / "lock"):
        if cached := next(folder.glob("*.tar.gz"), None):
            return cached
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            downloaded = download(requirement, Path(scratch))
            return downloaded.rename(folder / downloaded.name)


def _folder(requirement: str) -> Path:
    return cache_dir("swegym", "archives", re.sub(r"[^\w.=+-]", "_", requirement))


def extract(source: Path, target: Path) -> None:
    """Extracts the folder in a source archive as `target`, which must not exist. Raises DataError."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        with open_tar(source) as tar:
            archive.extract(tar, str(Path(folder, "tree")))
        tops = list(Path(folder, "tree").iterdir())
        if len(tops) != 1:
            raise DataError(f"{source.name} contains {len(tops)} entries at its top: it must contain one folder.")
        tops[0].rename(target)


def download(requirement: str, folder: Path) -> Path:
    """Downloads the source archive of NAME or NAME==VERSION into a folder, and runs nothing of it.

    Raises DataError if the index has none, IndexFailure if it cannot be downloaded this time.
    """
    answer = json.loads(_run(sys.executable, str(CLIENT), str(folder), requirement))
    if "fault" in answer:
        reason = answer["fault"][:200]
        raise IndexFailure(f"{requirement} cannot be downloaded now ({reason}): try again later.")
    if "error" in answer:
        raise DataError(answer["error"])
    return Path(answer["path"])


def _run(*command: str) -> str:
    """Runs a client of the package index about its last argument, and returns its output.

    Raises DataError with its last error, MissingExtra without pip.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, errors="replace")
    except subprocess.TimeoutExpired:
        raise IndexFailure(f"The package index took more than {_PATIENCE:g} s for {command[-1]}.") from None
    offline = any(word in done.stderr for word in _OFFLINE)
    if not done.returncode and not (offline and re.search('"(error|fault)": ', done.stdout)):
        return done.stdout
    if "No module named pip" in done.stderr:
        raise MissingExtra("Fetching a package needs pip, which is not installed: python -m ensurepip")
    if done.returncode < 0:
        raise IndexFailure(f"pip was ended by signal {-done.returncode} for {command[-1]}.")
    if offline:
        raise IndexFailure(f"The package index cannot be reached for {command[-1]}: check the connection.")
    errors = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
    named = [line.removeprefix("ERROR: ") for line in errors if line.lower().startswith("error: ")]
    raise DataError(f"pip fails ({command[-1]}): {(named or errors or [str(done.returncode)])[-1][:200]}")
