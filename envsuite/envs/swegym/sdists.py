"""A package of the package index, by name: its source archive fetched, looked through and described.

What is guessed from names and places can be said instead: which files are the code, which the tests. pip asks an archive
for its metadata, and so runs what builds it, as for an installation; its tests run in a sandbox alone.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from email import message_from_bytes
from email.message import Message
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from envsuite.envs.swegym import packages
from envsuite.envs.swegym.packages import Package
from envsuite.envs.swegym.tampering import is_test
from envsuite.errors import DataError, MissingExtra, UsageError
from envsuite.sandbox.packages import closure

LARGE = 4_000_000
"""characters of a tree: all of it goes into every run of the tests"""
_COMPILED = (".pyx", ".c", ".cc", ".cpp", ".rs", ".f90", ".so", ".pyd")
_NO_CODE = {
    "setup",
    "conftest",
    "noxfile",
    "tasks",
    "fabfile",
    "docs",
    "doc",
    "examples",
    "example",
    "benchmarks",
    "scripts",
}
_OFFLINE = ("Retrying (", "Max retries exceeded", "name resolution", "Failed to establish")


def obtain(
    wanted: str,
    folder: Path,
    code: Sequence[str] = (),
    tests: Sequence[str] = (),
    needs: Sequence[str] = (),
    split: str = "",
) -> Package:
    """The package that `wanted` names (NAME, NAME==VERSION, or an archive's path), with its archive in `folder`.

    `code`, `tests`: where they lie in the archive, '' for what can be guessed. `needs`: distributions beside those that
    its metadata name. `split`: '' for test. Raises DataError, MissingExtra, UsageError.
    """
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(wanted).expanduser() if wanted.endswith((".tar.gz", ".tgz")) else _fetch(wanted, Path(scratch))
        found = look(archive, folder, code, tests, needs, split)
        shutil.copyfile(archive, found.archive)
    return found


def look(
    archive: Path, folder: Path, code: Sequence[str], tests: Sequence[str], needs: Sequence[str], split: str
) -> Package:
    """Describes the package in an archive. Raises DataError, MissingExtra, UsageError."""
    try:
        data, files, about = archive.read_bytes(), packages.read_archive(archive), _metadata(archive)
    except (OSError, tarfile.TarError, EOFError) as error:
        raise DataError(f"The source archive {archive} cannot be read: {error}.") from None
    name, version = re.sub(r"[-_.]+", "-", about["Name"]).lower(), about["Version"]
    if (size := sum(map(len, files.values()))) > LARGE:
        raise DataError(f"{name} {version} holds {size} characters of text: a package may hold {LARGE}.")
    path, guessed = _code(files, name) if not code else (_root(code), tuple(code))
    suites = tuple(tests) or _tests(files, name, guessed)
    for given in (*guessed, *suites):
        if not any(file == given or file.startswith(f"{given}/") for file in files):
            raise UsageError(f"There is no {given!r} in {name} {version}: at its top are {', '.join(_top(files))}.")
    wanted = tuple(sorted({*_requirements(about), *needs}))
    hash_, licence = hashlib.sha256(data).hexdigest(), _licence(about)
    found = Package(name, version, licence, hash_, guessed, suites, path, split or "test", needs=wanted, folder=folder)
    compiled = [file for file in _members(archive) if file.endswith(_COMPILED) and packages.is_code(found, file)]
    if compiled or any(file.endswith("Cargo.toml") for file in files):
        raise DataError(f"{found.title} is not pure Python ({(compiled or ['Cargo.toml'])[0]}): take another package.")
    _check_apart(found)
    return found


# ---- fetching -------------------------------------------------------------------------------------------------------------


def _fetch(wanted: str, scratch: Path) -> Path:
    """Downloads a source archive with pip. Raises DataError."""
    said = _pip("download", "--no-deps", "--no-binary", ":all:", "-d", str(scratch), wanted)
    found = next(scratch.glob("*.tar.gz"), None)
    if found is not None and not said:
        return found
    if any(word in said for word in _OFFLINE):
        raise DataError(f"The package index cannot be reached for {wanted}: name a source archive's path instead.")
    name, _, version = wanted.partition("==")
    if not said or ("No matching distribution" in said and _on_the_index(name, version)):
        raise DataError(
            f"{wanted} has no source archive (.tar.gz) on the package index: take another version or package."
        )
    if "No matching distribution" in said:
        raise DataError(f"The package index has no {wanted} for this Python: look at the name and the version.")
    errors = [line.removeprefix("error: ") for line in said.splitlines() if line.lower().startswith("error: ")]
    raise DataError(f"pip cannot fetch {wanted}: {(errors or said.splitlines())[-1][:200]}")


def _on_the_index(name: str, version: str) -> bool:
    """Whether there is anything of that name and version, wheels included."""
    with tempfile.TemporaryDirectory() as scratch:
        wanted = f"{name}=={version}" if version else name
        return not _pip("download", "--no-deps", "--only-binary", ":all:", "-d", scratch, wanted)


def _pip(*words: str) -> str:
    """What pip says where it fails, '' where it does not."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--retries", "1", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if "No module named pip" in done.stderr:
        raise MissingExtra("Fetching a package needs pip, which is not installed: python -m ensurepip")
    return (done.stderr or done.stdout or f"exit code {done.returncode}") if done.returncode else ""


# ---- what is in an archive ------------------------------------------------------------------------------------------------


def _members(archive: Path) -> list[str]:
    with tarfile.open(archive) as tar:
        return [member.name.partition("/")[2] for member in tar if member.isfile()]


def _metadata(archive: Path) -> Message:
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and member.name.partition("/")[2] == "PKG-INFO":
                file = tar.extractfile(member)
                assert file is not None
                about = message_from_bytes(file.read())
                if about["Name"] and about["Version"]:
                    return about
    raise DataError(f"{archive} is no source archive of a package: it holds no PKG-INFO with a name and a version.")


def _licence(about: Message) -> str:
    if expression := about["License-Expression"]:
        return str(expression)
    classified = [one.rpartition(" :: ")[2] for one in about.get_all("Classifier", []) if one.startswith("License ::")]
    text = str(about["License"] or "").strip()
    return text if text and "\n" not in text and len(text) < 60 else " OR ".join(classified) or "not stated"


def _requirements(about: Message) -> list[str]:
    """What it needs to run here, extras aside, by name."""
    from packaging.requirements import Requirement

    found = [Requirement(line) for line in about.get_all("Requires-Dist", [])]
    return [one.name for one in found if one.marker is None or one.marker.evaluate({"extra": ""})]


def _top(files: dict[str, str]) -> list[str]:
    return list(dict.fromkeys(path.partition("/")[0] for path in files))


def _root(code: Sequence[str]) -> str:
    """The folder to import from, where the code was named: the one that all of it lies in."""
    roots = {one.rpartition("/")[0] or "." for one in code}
    if len(roots) > 1:
        raise UsageError(f"The code {', '.join(code)} must lie in one folder, from which it is imported.")
    return roots.pop()


def _code(files: dict[str, str], name: str) -> tuple[str, tuple[str, ...]]:
    """(folder to import from, what to mutate): the module of the package's own name, or the only one there is."""
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
            one for one in modules if one not in _NO_CODE and one not in ("test", "tests") and not is_test(f"{one}.py")
        }
        same = {one for one in modules if one.lower().replace("_", "-") == name}
        if len(chosen := same or modules) == 1:
            module = prefix + chosen.pop()
            return root, (module if f"{module}/__init__.py" in files else f"{module}.py",)
    raise DataError(
        f"Which files of {name} are its code cannot be told: say it with --code, of {', '.join(_top(files))}."
    )


def _tests(files: dict[str, str], name: str, code: tuple[str, ...]) -> tuple[str, ...]:
    """The folder of tests at the top or in the code, or else the files of tests at the top."""
    found = [path for path in files if path.endswith(".py") and is_test(path) and not path.endswith("__init__.py")]
    for folder in ("tests", "test", "testing", *(f"{one}/{word}" for one in code for word in ("tests", "test"))):
        if any(path.startswith(f"{folder}/") for path in found):
            return (folder,)
    if at_top := tuple(path for path in (*found, *({"test.py", "tests.py"} & set(files))) if "/" not in path):
        return at_top
    if found:
        raise DataError(f"Where the tests of {name} are cannot be told: say it with --tests, say {found[0]}.")
    raise DataError(
        f"The source archive of {name} holds no tests: take another version or package, or say where with --tests."
    )


def _check_apart(found: Package) -> None:
    """Raises MissingExtra for what it needs and is not here, DataError where it could be imported from elsewhere."""
    for name in found.needs:
        try:
            distribution(name)
        except PackageNotFoundError:
            raise MissingExtra(f"{found.title} needs {name}, which is not installed here: pip install {name}") from None
    beside = {entry.removesuffix(".py") for entry in closure(("pytest", *found.needs))}
    for one in found.code:
        if (top := one.removeprefix(f"{found.path}/").partition("/")[0].removesuffix(".py")) in beside:
            raise DataError(
                f"{found.title} is needed by what its tests need ({top}): the sound one would lie beside the copy."
            )
