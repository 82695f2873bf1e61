"""Releases and pairs of consecutive releases: what changed in the code and in the tests."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.metadata
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

from envsuite.envs.swegym.judge import tampering
from envsuite.envs.swegym.makers import sdists
from envsuite.envs.swegym.makers.hunks import FileHunk, split
from envsuite.envs.swegym.planted import packages
from envsuite.envs.swegym.planted.packages import Package
from envsuite.envs.swegym.published import archives
from envsuite.errors import DataError, MissingExtra

PERMISSIVE = re.compile(r"\b(MIT|BSD|Apache|ISC|Unlicense|Expat|0BSD|PSF|Python Software|CC0|Zlib|Public Domain)", re.I)
RESTRICTIVE = re.compile(r"GPL|MPL|Mozilla|EUPL|CDDL|AGPL|Affero|General Public|proprietary", re.I)
_CURE = re.compile(r": (?:name|use another)\b.*", re.DOTALL)
"""end of a message about flags that other commands have"""
_HEAVY = {"numpy", "scipy", "pandas", "torch", "tensorflow", "matplotlib", "django", "sqlalchemy", "lxml", "ray"}
"""distributions that are not installed for a test: tests that need them are skipped, or fail on both sides"""


class Hopeless(DataError):
    """A reason that most likely holds for the package's other releases, too: no test of it can run."""


@dataclass(frozen=True, eq=False)
class Release:
    """One source release of a package."""

    package: Package
    archive: Path
    texts: dict[str, str]
    """text files without documentation and metadata"""

    @property
    def code(self) -> dict[str, str]:
        return {path: text for path, text in self.texts.items() if packages.is_code(self.package, path)}

    @property
    def tests(self) -> dict[str, str]:
        """Test modules, and the files that they may use."""
        return {path: text for path, text in self.texts.items() if is_test_file(self.package, path)}


def is_test_file(package: Package, path: str) -> bool:
    """Returns True for files of the test suite, including data and conftest.py."""
    if packages.is_code(package, path):
        return False
    inside = any(path == root or path.startswith(f"{root}/") for root in package.tests)
    return inside or tampering.is_test(path) or PurePosixPath(path).name == "conftest.py"


def is_test_module(path: str) -> bool:
    """Returns True for files that pytest collects."""
    name = PurePosixPath(path).name
    return name.endswith(".py") and (name.startswith("test") or name.endswith("_test.py"))


def read(archive: Path) -> Release:
    """Reads a source archive.

    Raises DataError for a package that cannot be mined, with the reason, and MissingExtra for a
    missing requirement.
    """
    texts = packages.read_archive(archive)
    with tempfile.TemporaryDirectory() as scratch:  # `look` only describes the archive
        bare = sdists.look(archive, Path(scratch), sdists.Layout())
    needs = tuple(sorted({*bare.needs, *_imported(texts, bare)} - {bare.name, "pytest"}))
    package = replace(bare, needs=needs, folder=archive.parent, tests=_collected(texts, bare))
    sdists.check_apart(package)
    return Release(package, archive, texts)


def _collected(texts: Mapping[str, str], package: Package) -> tuple[str, ...]:
    """Returns the arguments for pytest: test files by name if pytest would not collect them by itself."""
    modules = [path for path in texts if is_test_file(package, path) and is_test_module(path)]
    names = [PurePosixPath(path).name for path in modules]
    if any(name.startswith("test_") or name.endswith("_test.py") for name in names):
        return package.tests
    return tuple(modules) or package.tests


def check_licence(licence: str, title: str) -> None:
    """Raises Hopeless unless a licence from a package's metadata is permissive."""
    if RESTRICTIVE.search(licence) or not PERMISSIVE.search(licence):
        raise Hopeless(f"The licence of {title} is not known to be permissive: {licence}.")


def _imported(texts: Mapping[str, str], package: Package) -> set[str]:
    """Returns the installed distributions that code and tests import."""
    modules: set[str] = set()
    for path, text in texts.items():
        if path.endswith(".py") and (packages.is_code(package, path) or is_test_file(package, path)):
            modules |= _modules(text)
    own = {PurePosixPath(path).name.removesuffix(".py") for path in package.code} | {"tests", "test"}
    names = {_distributions().get(module, "") for module in modules - own - set(sys.stdlib_module_names)}
    return {name for name in names if name and name not in _HEAVY and name != "envsuite"}


def _modules(text: str) -> set[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return set()
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module.partition(".")[0])
    return modules


@cache
def _distributions() -> dict[str, str]:
    """Returns the distribution of each installed top-level module."""
    owners = importlib.metadata.packages_distributions()
    return {module: re.sub(r"[-_.]+", "-", names[0]).lower() for module, names in owners.items()}


@dataclass(frozen=True, eq=False)
class ReleasePair:
    """Two consecutive releases of a package."""

    old: Release
    new: Release

    @property
    def title(self) -> str:
        return f"{self.old.package.name} {self.old.package.version} {self.new.package.version}"

    @cached_property
    def hunks(self) -> list[FileHunk]:
        """Changes of the code."""
        return split(self.old.code, self.new.code)

    @cached_property
    def changed_modules(self) -> list[str]:
        """Test modules that are new or differ; none (for all of them) if other files of the tests differ."""
        old, new = self.old.tests, self.new.tests
        changed = [path for path, text in new.items() if old.get(path) != text]
        return changed if all(map(is_test_module, changed)) else []

    def is_run(self, module: str) -> bool:
        """Returns True if the old release has the test module, or a folder of tests for it."""
        roots = self.old.package.tests
        return module in self.old.tests or any(module.startswith(f"{root}/") for root in roots)

    @cached_property
    def base(self) -> dict[str, str]:
        """The old release with the tests of the new one."""
        files = {path: text for path, text in self.old.texts.items() if not is_test_file(self.old.package, path)}
        return {**files, **self.new.tests}

    def check(self) -> None:
        """Raises DataError if nothing can be mined from this pair."""
        old, new = self.old.package, self.new.package
        if (old.code, old.path) != (new.code, new.path):
            raise DataError("the layout changed")
        if not self.hunks:
            raise DataError("the code did not change")
        if self.old.tests == self.new.tests:
            raise DataError("the tests did not change")


def archives_of(name: str, folder: Path | None, most: int) -> Sequence[str | Path]:
    """Returns the latest `most` releases, oldest first: requirements, or archives in `folder`.

    Raises DataError.
    """
    if folder is None:
        return [f"{name}=={version}" for version in archives.releases(name)[-most:]]
    from packaging.version import InvalidVersion, Version

    pattern = re.compile(rf"{re.escape(name)}-([\w.]+)\.tar\.gz")
    versions = []
    for path in folder.iterdir():
        if match := pattern.fullmatch(path.name):
            with contextlib.suppress(InvalidVersion):
                versions.append((Version(match[1]), path))
    if not versions:
        raise DataError(f"{folder} contains no archive {name}-VERSION.tar.gz.")
    return [path for _, path in sorted(versions)][-most:]


def obtain(source: str | Path) -> Release:
    """Reads a release: an archive, or a requirement that is downloaded. Raises Hopeless, DataError."""
    archive = source if isinstance(source, Path) else archives.fetch(source)
    try:
        return read(archive)
    except (MissingExtra, DataError) as error:
        raise Hopeless(_CURE.sub("", str(error))) from None


def checksum(archive: Path) -> str:
    return hashlib.sha256(archive.read_bytes()).hexdigest()
