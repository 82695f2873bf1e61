"""Packages for generated tasks: published source archives, with their licences inside.

The shipped ones are pure Python, need only pytest, and their complete suites run in about a second.
Other packages are in a folder with their tasks (see `build`), where `packages.json` contains the
same fields as PACKAGES here. `train` and `test` split by package: no repository is in both.
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
from envsuite.errors import DataError, did_you_mean
from envsuite.reading import open_tar

SOURCES = Path(__file__).parent / "sources"
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
    folder: Path = SOURCES
    """folder of its archive"""

    @property
    def archive(self) -> Path:
        return self.folder / f"{self.name}-{self.version}.tar.gz"

    @property
    def shipped(self) -> bool:
        """True if the archive is one that envsuite ships, in any folder."""
        return any(self.sha256 == known.sha256 for known in PACKAGES.values())

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"


PACKAGES = {
    package.name: package
    for package in (
        Package(
            "toolz",
            "1.2.0",
            "BSD-3-Clause",
            "9667a038e9d6ecba37995e26cb2f59ec6420b6ad8dd9677de59db9b956b08490",
            ("toolz", "tlz"),
            ("toolz",),
            left_out=("toolz/sandbox/tests/test_parallel.py",),  # needs shared memory, which landlock and docker refuse
        ),
        Package(
            "semver",
            "3.1.1",
            "BSD-3-Clause",
            "149b26cabada6f63212f97e94505d21578cb1d280cf714827f328d5e70765fea",
            ("src/semver",),
            ("tests",),
            path="src",
        ),
        Package(
            "cachetools",
            "8.0.0",
            "MIT",
            "5ed01bd676800d51f0025605e4fd8ad0891550513e7b0a4c3da478463764e5c3",
            ("src/cachetools",),
            ("tests",),
            path="src",
        ),
        Package(
            "isodate",
            "0.7.2",
            "BSD-3-Clause",
            "4cd1aa0f43ca76f4a6c6c0292a85f40b35ec2e43e315b59f06e6d32171a953e6",
            ("src/isodate",),
            ("tests",),
            path="src",
        ),
        Package(
            "schema",
            "0.7.8",
            "MIT",
            "e86cc08edd6fe6e2522648f4e47e3a31920a76e82cce8937535422e310862ab5",
            ("schema",),
            ("test_schema.py",),
        ),
        Package(
            "xmltodict",
            "1.0.4",
            "MIT",
            "6d94c9f834dd9e44514162799d344d815a3a4faec913717a9ecbfa5be1bb8e61",
            ("xmltodict.py",),
            ("tests",),
            split="test",
        ),
        Package(
            "uritemplate",
            "4.2.0",
            "BSD-3-Clause OR Apache-2.0",
            "480c2ed180878955863323eea31b0ede668795de182617fef9c6ca09e6ec9d0e",
            ("uritemplate",),
            ("tests",),
            split="test",
        ),
        Package(
            "inflection",
            "0.5.1",
            "MIT",
            "1a29730d366e996aaacffb2f1f1cb9593dc38e2ddd30c91250c6dde09ea9b417",
            ("inflection",),
            ("test_inflection.py",),
            split="test",
        ),
    )
}


def package(name: str, folder: Path | None = None) -> Package:
    """Returns the package of that name: a built-in one, or one of the tasks in `folder`.

    Raises DataError.
    """
    known = PACKAGES if folder is None else described(folder)
    if name not in known:
        where = "built-in package" if folder is None else f"package in {folder} called"
        raise DataError(f"There is no {where} {name!r}: it is {', '.join(known)}.{did_you_mean(name, known)}")
    return known[name]


def described(folder: Path) -> dict[str, Package]:
    """Returns the packages whose tasks are in `folder`, by name. Raises DataError."""
    path = folder / DESCRIBED
    try:
        packages = [_read(row, folder) for row in json.loads(path.read_text())]
    except OSError as error:
        cure = f"generate some with `python -m envsuite.envs.swegym.generated.build {folder} -p NAME`"
        raise DataError(f"{folder} contains no generated tasks ({path.name}: {error.strerror}): {cure}.") from None
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
    cure = "Install envsuite again." if chosen.folder == SOURCES else "Generate the tasks in that folder again."
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
