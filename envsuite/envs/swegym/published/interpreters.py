"""Python interpreters of this machine, found by version: uv's, pyenv's, Debian's and those on PATH.

Every candidate is run and asked for its version, its executable and its root folder. A pyenv shim
therefore leads to the interpreter that it starts, or is skipped if it starts none of that version.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from envsuite.errors import DataError
from envsuite.sandbox.packages import interpreter, interpreter_root

_QUESTION = (
    "import json, sys, sysconfig;"
    "print(json.dumps(['%d.%d.%d' % sys.version_info[:3], sys.executable, sys.base_prefix,"
    " sysconfig.get_paths()['purelib']]))"
)
_PATIENCE = 20.0
"""seconds that a candidate has for its answer"""


@dataclass(frozen=True)
class PythonInterpreter:
    """A Python on this machine."""

    version: str
    executable: str
    """real path, never a link or a shim"""
    root: str
    """folder that contains its binary and its standard library"""
    site: str = ""
    """folder of packages installed for all users, hidden from sandboxes"""

    @property
    def mounted(self) -> bool:
        """True if every sandbox shows this interpreter already."""
        return self.root == interpreter_root() or f"{self.root}/".startswith("/usr/")

    def mounts(self, empty: Path) -> tuple[tuple[Path, str], ...]:
        """Returns the (host folder, path in the sandbox) pairs that let a sandbox run this interpreter.

        The empty folder `empty` hides the packages that are installed for all users.
        """
        if self.mounted:
            return ()
        inside = os.path.isdir(self.site) and self.site.startswith(f"{self.root}/")
        return ((Path(self.root), self.root), *(((empty, self.site),) if inside else ()))


@cache
def find(version: str = "") -> PythonInterpreter:
    """Returns an interpreter of `version` ('3.9' or '3.9.18'); '' stands for envsuite's own.

    Raises DataError if the version is malformed, or if this machine lacks it.
    """
    own = PythonInterpreter(".".join(map(str, sys.version_info[:3])), interpreter(), interpreter_root())
    if not version:
        return own
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", version):
        raise DataError(f"The Python version {version!r} is not of the form 3.9 or 3.9.18.")
    if _matches(own.version, version):
        return own
    for path in _candidates(version):
        answer = _ask(path)
        if answer is not None and _matches(answer.version, version):
            return answer
    raise DataError(
        f"Python {version} is not on this machine: install it with `uv python install {version}`, "
        f"`pyenv install {version}` or the system's packages."
    )


def _candidates(version: str) -> Iterator[Path]:
    """Yields executables that may be of `version`, the newest patch release of each source first."""
    minor = ".".join(version.split(".")[:2])
    home = Path.home()
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or home / ".local" / "share" / "uv" / "python")
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    for folder, pattern in ((uv, f"cpython-{version}*"), (pyenv, f"{version}*")):
        for release in sorted(folder.glob(pattern), key=_numbers, reverse=True):
            if (release / "bin" / f"python{minor}").is_file():
                yield release / "bin" / f"python{minor}"
    for executable in (Path("/usr/bin", f"python{minor}"), Path("/usr/local/bin", f"python{minor}")):
        if executable.is_file():
            yield executable
    for entry in os.get_exec_path():
        if path := shutil.which(f"python{minor}", path=entry):
            yield Path(path)


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.name)[:3]]


def _ask(path: Path) -> PythonInterpreter | None:
    """Runs a candidate; returns None if it does not answer."""
    try:
        done = subprocess.run(
            [str(path), "-I", "-c", _QUESTION], capture_output=True, text=True, timeout=_PATIENCE, cwd="/"
        )
        version, executable, root, site = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return PythonInterpreter(version, os.path.realpath(executable), os.path.realpath(root), os.path.realpath(site))


def _matches(version: str, request: str) -> bool:
    return f"{version}.".startswith(f"{request}.")
