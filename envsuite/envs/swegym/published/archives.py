"""Source archives of the package index: `releases` lists versions, `fetch` downloads one with pip into the cache.

pip builds the metadata of an archive, and so runs its build code, as for an installation. Build
backends come from one virtual environment in the cache (`BACKENDS`), because pip would otherwise
install them again for every archive.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from functools import lru_cache
from pathlib import Path

from envsuite.cache import cache_dir, write_atomically
from envsuite.errors import DataError, MissingExtra
from envsuite.reading import open_tar
from envsuite.sandbox.inside import archive

BACKENDS = (
    "setuptools<81",
    "wheel",
    "setuptools-scm",
    "hatchling",
    "hatch-vcs",
    "hatch-fancy-pypi-readme",
    "flit-core",
    "poetry-core",
    "pdm-backend",
)
"""what most packages are built with; setuptools 81 lacks pkg_resources, which older ones import"""
_PATIENCE = 600.0
"""seconds for one call of pip"""
_LASTING = 86_400.0
"""seconds for which a list of releases is not asked for again"""
_OFFLINE = ("Retrying (", "Max retries exceeded", "name resolution", "Failed to establish")


class IndexFailure(DataError):
    """pip could not do its work this time: no connection, a time-out, or it was killed."""


def releases(name: str) -> list[str]:
    """Returns the final releases of a package that suit this Python, oldest first. Raises DataError.

    The index's answer is kept in the cache for a day.
    """
    from packaging.version import InvalidVersion, Version

    answer = cache_dir("swegym", "releases") / f"{re.sub(r'[^a-zA-Z0-9.-]', '_', name)}.txt"
    if answer.exists() and time.time() - answer.stat().st_mtime < _LASTING:
        output = answer.read_text()
    else:
        output = _pip(sys.executable, "index", "versions", name)
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
    folder = cache_dir("swegym", "archives", re.sub(r"[^\w.=+-]", "_", requirement))
    with FileLock(folder / "lock"):
        archives = list(folder.glob("*.tar.gz"))
        if not archives:
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                downloaded = _download(requirement, Path(scratch))
                downloaded.rename(folder / downloaded.name)
            archives = list(folder.glob("*.tar.gz"))
    return archives[0]


def extract(source: Path, target: Path) -> None:
    """Extracts the folder in a source archive as `target`, which must not exist. Raises DataError."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        with open_tar(source) as tar:
            archive.extract(tar, str(Path(folder, "tree")))
        tops = list(Path(folder, "tree").iterdir())
        if len(tops) != 1:
            raise DataError(f"{source.name} contains {len(tops)} entries at its top: it must contain one folder.")
        tops[0].rename(target)


def _download(requirement: str, folder: Path) -> Path:
    python = _backends()
    command = ["download", "-q", "--ignore-requires-python", "--no-deps", "--no-binary", ":all:", "-d", str(folder)]
    reason = ""
    for options in (["--no-build-isolation"], []):  # the second installs a backend that is not in BACKENDS
        try:
            _pip(python, *command, *options, requirement)
        except IndexFailure:
            raise
        except DataError as error:
            reason = str(error)
        if downloaded := next(folder.glob("*.tar.gz"), None):
            return downloaded
        if "No matching distribution" in reason:
            break
    raise DataError(reason or f"{requirement} has no .tar.gz source archive on the package index.")


@lru_cache(maxsize=1)
def _backends() -> str:
    """Returns the interpreter of the virtual environment with `BACKENDS`, which is made once."""
    from filelock import FileLock

    home = cache_dir("swegym", "backends", sys.implementation.cache_tag or "python")
    python = home / "venv" / "bin" / "python"
    with FileLock(home / "lock"):
        if not (home / "ready").exists():
            shutil.rmtree(home / "venv", ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(home / "venv")], check=True)
            _pip(str(python), "install", "-q", *BACKENDS)
            (home / "ready").touch()
    return str(python)


def _pip(python: str, *words: str) -> str:
    """Runs pip and returns its output. Raises DataError with its last error, MissingExtra without pip."""
    command = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, errors="replace")
    except subprocess.TimeoutExpired:
        raise IndexFailure(f"`pip {' '.join(words[:1])}` took more than {_PATIENCE:g} s for {words[-1]}.") from None
    if not done.returncode:
        return done.stdout
    if "No module named pip" in done.stderr:
        raise MissingExtra("Fetching a package needs pip, which is not installed: python -m ensurepip")
    if done.returncode < 0:
        raise IndexFailure(f"`pip {' '.join(words[:1])}` was ended by signal {-done.returncode} for {words[-1]}.")
    if any(word in done.stderr for word in _OFFLINE):
        raise IndexFailure(f"The package index cannot be reached: `pip {' '.join(words)}` failed.")
    errors = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
    named = [line.removeprefix("ERROR: ") for line in errors if line.lower().startswith("error: ")]
    raise DataError(f"pip fails ({words[-1]}): {(named or errors or [str(done.returncode)])[-1][:200]}")
