"""Tasks with planted bugs: their data types, and the list of verified ones in a folder (`manifest`)."""

from __future__ import annotations

import difflib
import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from envsuite.cache import write_atomically
from envsuite.envs.swegym.planted import packages
from envsuite.errors import DataError

MANIFEST = "manifest.jsonl.gz"
"""name of the list of tasks in a folder"""
Edit = tuple[int, int, str]
"""(start, end, replacement), in bytes of a file's UTF-8 text"""


@dataclass(frozen=True)
class PlantedBug:
    """A bug in a file of a package."""

    path: str
    operator: str
    function: str
    line: int
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Symptom:
    """Error of one failing test."""

    test: str
    code: str
    """the line of the test that failed"""
    error: str
    """the error as pytest explains it"""


@dataclass(frozen=True, eq=False)
class PlantedTask:
    """A package with one or more bugs, verified."""

    package: packages.Package
    bugs: tuple[PlantedBug, ...]
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    symptoms: tuple[Symptom, ...]

    @cached_property
    def instance_id(self) -> str:
        """Name, version and 8 hex digits of a hash of the bugs, and of the archive if it is not a
        shipped one.
        """
        archive = "" if self.package.shipped else self.package.sha256
        return f"{self.package.name}-{self.package.version}-{digest(self.bugs, archive)}"

    @cached_property
    def files(self) -> dict[str, str]:
        """The broken tree, by path."""
        return plant(packages.tree(self.package), self.bugs)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that contain a bug."""
        return tuple(sorted({bug.path for bug in self.bugs}))

    @cached_property
    def patch(self) -> str:
        """The gold patch, from the broken tree to the published one."""
        original = packages.tree(self.package)
        return "".join(diff(path, self.files[path], original[path]) for path in self.paths)

    @property
    def patch_lines(self) -> int:
        """Number of lines the gold patch adds or removes."""
        return changed_lines(self.patch)


def changed_lines(patch: str) -> int:
    """Returns the number of lines that a unified diff adds or removes."""
    return sum(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in patch.splitlines())


def plant(files: Mapping[str, str], bugs: Iterable[PlantedBug]) -> dict[str, str]:
    """Returns `files` with every bug planted.

    The edits of all bugs refer to bytes of the original files.
    """
    edits: dict[str, list[Edit]] = {}
    for bug in bugs:
        edits.setdefault(bug.path, []).extend(bug.edits)
    return {**files, **{path: apply(files[path], changes) for path, changes in edits.items()}}


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Returns `text` with every edit applied. Edits must not overlap."""
    data = text.encode()
    for start, end, new in sorted(edits, reverse=True):
        data = data[:start] + new.encode() + data[end:]
    return data.decode()


def digest(bugs: Iterable[PlantedBug], archive: str = "") -> str:
    """Returns an id of 8 hex digits for a set of bugs.

    With `archive`, the hash of the package's archive, the id depends on that archive too.
    """
    plain = sorted((bug.path, [list(edit) for edit in bug.edits]) for bug in bugs)
    return hashlib.sha256((archive + json.dumps(plain)).encode()).hexdigest()[:8]


def diff(path: str, old: str | None, new: str | None) -> str:
    """Returns a unified diff of one file as git writes it; None stands for a missing file."""
    before, after = ([] if text is None else re.findall(r"[^\n]*\n|[^\n]+", text) for text in (old, new))
    name, new_name = (
        "/dev/null" if text is None else _quoted(f"{side}/{path}") for side, text in (("a", old), ("b", new))
    )
    lines = []
    for line in difflib.unified_diff(before, after, name, new_name):
        lines.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    head = f"diff --git {_quoted(f'a/{path}')} {_quoted(f'b/{path}')}\n"
    head += "new file mode 100644\n" if old is None else "deleted file mode 100644\n" if new is None else ""
    return head + "".join(lines) if lines or old is None or new is None else ""


def diff_of(base: Mapping[str, bytes], changes: Mapping[str, bytes | None]) -> str:
    """Returns a unified diff of `changes` to the files `base`, without files that are not text."""
    diffs = []
    for path, content in changes.items():
        try:
            old, new = (None if data is None else data.decode() for data in (base.get(path), content))
        except UnicodeDecodeError:
            continue
        diffs.append(diff(path, old, new))
    return "".join(diffs)


_ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}


def _quoted(name: str) -> str:
    """Returns a file name as git writes it in a diff: quoted with escapes if necessary."""
    data = name.encode(errors="surrogateescape")
    if all(32 <= byte < 127 and byte not in _ESCAPES for byte in data):
        return name
    spelt = (
        f"\\{_ESCAPES[byte]}" if byte in _ESCAPES else chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"
        for byte in data
    )
    return f'"{"".join(spelt)}"'


# ---- the manifest: a line with the tests of each package, then a line per task ------------------------------------


def write(generated: Iterable[PlantedTask], tests: Mapping[str, list[str]], path: Path) -> None:
    """Writes the manifest; a task refers to tests by their index in its package's list."""
    lines = [json.dumps({"package": name, "tests": listed}) for name, listed in sorted(tests.items())]
    for task in sorted(generated, key=lambda task: (task.package.name, len(task.bugs), task.instance_id)):
        lines.append(json.dumps(row(task, tests[task.package.name]), ensure_ascii=False, separators=(",", ":")))
    write_atomically(path, gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))


def row(task: PlantedTask, tests: list[str]) -> dict[str, Any]:
    """Returns a task's line."""
    numbers = {test: number for number, test in enumerate(tests)}
    return {
        "id": task.instance_id,
        "package": task.package.name,
        "bugs": [[bug.path, bug.operator, bug.function, bug.line, bug.edits] for bug in task.bugs],
        "fail": [numbers[test] for test in task.fail_to_pass],
        "symptoms": [[numbers[symptom.test], symptom.code, symptom.error] for symptom in task.symptoms],
    }


@cache
def manifest(folder: Path = packages.SHIPPED) -> tuple[PlantedTask, ...]:
    """Returns the tasks in a folder in the list's order. Raises DataError naming the line."""
    known, path = packages.described(folder), folder / MANIFEST
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"The list of planted tasks {path} cannot be read: {error}.") from None
    tests: dict[str, list[str]] = {}
    generated = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if "tests" in row:
                tests[row["package"]] = row["tests"]
            else:
                generated.append(read(row, known[row["package"]], tests[row["package"]]))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise DataError(f"{path}, line {number}: not a task ({type(error).__name__}: {error}).") from None
    return tuple(generated)


def read(row: dict[str, Any], package: packages.Package, tests: list[str]) -> PlantedTask:
    """Parses a task's line. Raises ValueError, KeyError, TypeError or IndexError if it is invalid."""
    failing, left_out = set(row["fail"]), package.left_out
    task = PlantedTask(
        package,
        tuple(PlantedBug(p, o, f, n, tuple((a, b, t) for a, b, t in edits)) for p, o, f, n, edits in row["bugs"]),
        tuple(tests[number] for number in row["fail"] if not tests[number].startswith(left_out)),
        tuple(test for number, test in enumerate(tests) if number not in failing and not test.startswith(left_out)),
        tuple(
            Symptom(tests[number], code, error)
            for number, code, error in row["symptoms"]
            if not tests[number].startswith(left_out)
        ),
    )
    if task.instance_id != row["id"]:
        raise ValueError(f"its bugs are those of {task.instance_id}, not of {row['id']}")
    return task
