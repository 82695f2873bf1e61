"""Packages with planted bugs: published source archives, with their licences inside.

A folder has the archives, `packages.json`, which describes them, and `manifest.jsonl.gz`, the list of
their tasks. The shipped packages are pure Python, need only pytest, and their complete suites run in
about a second. `train` and `test` split by package: no repository is in both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from envsuite.cache import write_atomically
from envsuite.errors import DataError
from envsuite.reading import open_tar

SHIPPED = Path(__file__).parent / "shipped"
DESCRIBED = "packages.json"
_LEFT_OUT = ("docs", ".github", "changelog.d", "examples")
"""folders of an archive that tests do not need"""
MOST_ARCHIVE = 256 * 2**20
"""bytes of all files in a source archive"""


@dataclass(frozen=True)
class Package:
    """Release of a package from the package index."""

    name: str
    version: str
    licence: str
    sha256: str
    """checksum of the source archive"""
    code: tuple[str, ...]
    """files and folders that may be mutated and that a submission may change"""
    tests: tuple[str, ...]
    """arguments for pytest"""
    path: str = "."
    """folder added to PYTHONPATH"""
    split: str = "train"
    left_out: tuple[str, ...] = ()
    """prefixes of test ids that are not deterministic here or do not pass with every driver"""
    needs: tuple[str, ...] = ()
    """installed distributions that it or its tests import, in addition to pytest"""
    folder: Path = SHIPPED
    """folder of its archive"""

    @property
    def archive(self) -> Path:
        return self.folder / f"{self.name}-{self.version}.tar.gz"

    @property
    def shipped(self) -> bool:
        """True if the archive is one that envsuite ships, in any folder."""
        return any(self.sha256 == known.sha256 for known in shipped().values())

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"


@cache
def shipped() -> dict[str, Package]:
    """Returns the packages that envsuite ships, by name."""
    return described(SHIPPED)


def described(folder: Path) -> dict[str, Package]:
    """Returns the packages whose tasks are in `folder`, by name. Raises DataError."""
    path = folder / DESCRIBED
    try:
        packages = [_read(row, folder) for row in json.loads(path.read_text())]
    except OSError as error:
        cure = f"build some with `envsuite swe build NAME -o {folder}`"
        raise DataError(f"{folder} contains no planted tasks ({path.name}: {error.strerror}): {cure}.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} describes no packages ({type(error).__name__}: {error}).") from None
    return {package.name: package for package in packages}


def describe(folder: Path, packages: Iterable[Package]) -> None:
    """Writes the file that `described` reads."""
    rows = [{key: value for key, value in asdict(package).items() if key != "folder"} for package in packages]
    write_atomically(folder / DESCRIBED, json.dumps(rows, indent=1) + "\n")


def _read(row: dict[str, Any], folder: Path) -> Package:
    typed = {key: tuple(value) if isinstance(value, list) else str(value) for key, value in row.items()}
    if any(not isinstance(typed[key], tuple) for key in ("code", "tests", "left_out", "needs")):
        raise ValueError("code, tests, left_out and needs are lists")
    return Package(**typed, folder=folder)  # type: ignore[arg-type]


@cache
def tree(chosen: Package) -> dict[str, str]:
    """Returns the text files of a package's archive by path, without generated metadata.

    Raises DataError.
    """
    cure = "Install envsuite again." if chosen.folder == SHIPPED else "Generate the tasks in that folder again."
    try:
        data = chosen.archive.read_bytes()
    except OSError as error:
        raise DataError(f"The source archive of {chosen.title} cannot be read: {error}. {cure}") from None
    if hashlib.sha256(data).hexdigest() != chosen.sha256:
        raise DataError(f"The source archive {chosen.archive} differs from the published one. {cure}")
    return read_archive(chosen.archive)


def read_archive(archive: Path) -> dict[str, str]:
    """Returns the text files of a source archive by path below its top folder."""
    texts = {}
    with open_tar(archive, MOST_ARCHIVE) as tar:
        for member in tar:
            path = member.name.partition("/")[2]
            parts = path.split("/")
            if not member.isfile() or ".." in parts or parts[0] in _LEFT_OUT or path in ("PKG-INFO", "setup.cfg"):
                continue
            if any(part.endswith(".egg-info") for part in parts):
                continue
            file = tar.extractfile(member)
            assert file is not None
            try:
                texts[path] = file.read().decode()
            except UnicodeDecodeError:
                continue
    return dict(sorted(texts.items()))


@cache
def lines_of_code(chosen: Package) -> int:
    """Returns the number of lines of the package's own Python files."""
    code = [text for path, text in tree(chosen).items() if path.endswith(".py") and is_code(chosen, path)]
    return sum(text.count("\n") for text in code)


def is_code(chosen: Package, path: str) -> bool:
    """Returns True if a submission may change `path`: a file of the package itself that does not
    belong to its tests.
    """
    parts = path.split("/")
    inside = any(path == root or path.startswith(f"{root}/") for root in chosen.code)
    machinery = {"tests", "test", "conftest.py", "sitecustomize.py", "usercustomize.py", "__pycache__"}
    return (
        inside
        and not machinery & set(parts)
        and not path.endswith((".pth", ".pyc", ".so"))
        and parts[-1][:5] != "test_"
    )
