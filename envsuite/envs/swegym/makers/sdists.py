"""Packages of the package index by name: downloads, inspects and describes their source archives.

The code and the tests are guessed from names and paths unless given. Nothing of an archive runs here:
its metadata are read from its PKG-INFO, and its tests run only in a sandbox.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Sequence
from email import message_from_bytes
from email.message import Message
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from envsuite.envs.swegym.judge.tampering import is_test
from envsuite.envs.swegym.planted import packages
from envsuite.envs.swegym.planted.packages import Package
from envsuite.envs.swegym.published import archives
from envsuite.errors import DataError, MissingExtra, UsageError
from envsuite.reading import open_tar
from envsuite.sandbox.packages import closure

LARGE = 4_000_000
"""characters of a tree, which is sent to every run of the tests"""
_COMPILED = (".pyx", ".c", ".cc", ".cpp", ".rs", ".f90", ".so", ".pyd")
_NO_CODE = {
    "setup", "conftest", "noxfile", "tasks", "fabfile", "docs", "doc", "examples", "example",
    "benchmarks", "scripts",
}  # fmt: skip


class Layout(NamedTuple):
    """Facts about a package that the user states; empty ones are guessed from its archive."""

    code: tuple[str, ...] = ()
    """paths of the code"""
    tests: tuple[str, ...] = ()
    """paths of the tests"""
    needs: tuple[str, ...] = ()
    """distributions that it needs in addition to those in its metadata"""
    split: str = "test"


def obtain(requirement: str, folder: Path, layout: Layout) -> Package:
    """Returns the package named `requirement` (NAME, NAME==VERSION, or an archive's path), with its archive
    in `folder`. Raises DataError, MissingExtra, UsageError.
    """
    with tempfile.TemporaryDirectory() as scratch:
        if requirement.endswith((".tar.gz", ".tgz")):
            archive = Path(requirement).expanduser()
        else:
            try:
                archive = archives.download(requirement, Path(scratch))
            except archives.IndexFailure as error:
                raise DataError(f"{str(error).rstrip('.')}, or name a source archive's path instead.") from None
        package = look(archive, folder, layout)
        shutil.copyfile(archive, package.archive)
    return package


def look(archive: Path, folder: Path, layout: Layout) -> Package:
    """Describes the package in an archive that will be in `folder`. Raises DataError, MissingExtra, UsageError."""
    try:
        data, files, metadata = archive.read_bytes(), packages.read_archive(archive), metadata_of(archive)
    except OSError as error:
        raise DataError(f"The source archive {archive} cannot be read: {error}.") from None
    name, version = re.sub(r"[-_.]+", "-", metadata["Name"]).lower(), metadata["Version"]
    if (size := sum(map(len, files.values()))) > LARGE:
        raise DataError(f"{name} {version} has {size} characters of text: a package may have {LARGE}.")
    root, code = _code(files, name) if not layout.code else (_root(layout.code), layout.code)
    tests = layout.tests or _tests(files, name, code)
    for path in (*code, *tests):
        if not any(file == path or file.startswith(f"{path}/") for file in files):
            raise UsageError(f"There is no {path!r} in {name} {version}: at its top are {', '.join(_top(files))}.")
    package = Package(
        name,
        version,
        licence_of(metadata),
        hashlib.sha256(data).hexdigest(),
        code,
        tests,
        root,
        layout.split,
        needs=tuple(sorted({*_requirements(metadata), *layout.needs})),
        folder=folder,
    )
    compiled = [file for file in _members(archive) if file.endswith(_COMPILED) and packages.is_code(package, file)]
    if compiled or any(file.endswith("Cargo.toml") for file in files):
        raise DataError(f"{package.title} is not pure Python ({(compiled or ['Cargo.toml'])[0]}): use another package.")
    check_apart(package)
    return package


# ---- contents of an archive ---------------------------------------------------------------------------------------


def _members(archive: Path) -> list[str]:
    with open_tar(archive, packages.MOST_ARCHIVE) as tar:
        return [member.name.partition("/")[2] for member in tar if member.isfile()]


def metadata_of(archive: Path) -> Message:
    with open_tar(archive, packages.MOST_ARCHIVE) as tar:
        for member in tar:
            if member.isfile() and member.name.partition("/")[2] == "PKG-INFO":
                file = tar.extractfile(member)
                assert file is not None
                metadata = message_from_bytes(file.read())
                if metadata["Name"] and metadata["Version"]:
                    return metadata
    raise DataError(
        f"{archive} is not a source archive of a package: it contains no PKG-INFO with a name and a version."
    )


def licence_of(metadata: Message) -> str:
    if expression := metadata["License-Expression"]:
        return str(expression)
    classified = [
        classifier.rpartition(" :: ")[2]
        for classifier in metadata.get_all("Classifier", [])
        if classifier.startswith("License ::")
    ]
    text = str(metadata["License"] or "").strip()
    return text if text and "\n" not in text and len(text) < 60 else " OR ".join(classified) or "not stated"


def _requirements(metadata: Message) -> list[str]:
    """Returns the names of the distributions it needs here, without extras."""
    from packaging.requirements import Requirement

    requirements = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    return [
        requirement.name
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]


def _top(files: dict[str, str]) -> list[str]:
    return list(dict.fromkeys(path.partition("/")[0] for path in files))


def _root(code: Sequence[str]) -> str:
    """Returns the folder to import from if the code was given: the parent that all of it shares."""
    roots = {path.rpartition("/")[0] or "." for path in code}
    if len(roots) > 1:
        raise UsageError(f"The code {', '.join(code)} must be in one folder, from which it is imported.")
    return roots.pop()


def _code(files: dict[str, str], name: str) -> tuple[str, tuple[str, ...]]:
    """Returns (folder to import from, files to mutate): the module with the package's own name, or the
    only one.
    """
    for root in ("src", "lib", "."):
        prefix = "" if root == "." else f"{root}/"
        inside = [path.removeprefix(prefix) for path in files if path.startswith(prefix)]
        modules = {path.removesuffix(".py") for path in inside if "/" not in path and path.endswith(".py")}
        modules |= {
            path.removesuffix("/__init__.py")
            for path in inside
            if path.count("/") == 1 and path.endswith("/__init__.py")
        }
        modules = {
            module_name
            for module_name in modules
            if module_name not in _NO_CODE and module_name not in ("test", "tests") and not is_test(f"{module_name}.py")
        }
        matching = {module_name for module_name in modules if module_name.lower().replace("_", "-") == name}
        if len(chosen := matching or modules) == 1:
            module = prefix + chosen.pop()
            return root, (module if f"{module}/__init__.py" in files else f"{module}.py",)
    raise DataError(f"The code of {name} cannot be guessed: name it with --code, from {', '.join(_top(files))}.")


def _tests(files: dict[str, str], name: str, code: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the folder of tests at the top or in the code, otherwise the test files at the top."""
    test_paths = [path for path in files if path.endswith(".py") and is_test(path) and not path.endswith("__init__.py")]
    for folder in (
        "tests",
        "test",
        "testing",
        *(f"{root}/{folder_name}" for root in code for folder_name in ("tests", "test")),
    ):
        if any(path.startswith(f"{folder}/") for path in test_paths):
            return (folder,)
    if at_top := tuple(path for path in (*test_paths, *({"test.py", "tests.py"} & set(files))) if "/" not in path):
        return at_top
    if test_paths:
        raise DataError(f"The tests of {name} cannot be guessed: name them with --tests, e.g. {test_paths[0]}.")
    raise DataError(
        f"The source archive of {name} contains no tests: use another version or package, or name them with --tests."
    )


def check_apart(package: Package) -> None:
    """Raises MissingExtra for a requirement that is not installed, DataError if the package could be
    imported from elsewhere.
    """
    for name in package.needs:
        try:
            distribution(name)
        except PackageNotFoundError:
            raise MissingExtra(
                f"{package.title} needs {name}, which is not installed here: pip install {name}"
            ) from None
    importable = {entry.removesuffix(".py") for entry in closure(("pytest", *package.needs))}
    for path in package.code:
        if (top := path.removeprefix(f"{package.path}/").partition("/")[0].removesuffix(".py")) in importable:
            raise DataError(
                f"{package.title} is itself a requirement of its tests ({top}): "
                "the original would be importable next to the copy."
            )
