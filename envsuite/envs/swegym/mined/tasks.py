"""The shipped list of mined instances (`mined_tasks`), with their levels and their split."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from envsuite.cache import write_atomically
from envsuite.envs.swegym.planted import packages
from envsuite.envs.swegym.published import records
from envsuite.errors import DataError

MANIFEST = Path(__file__).with_name("manifest.jsonl.gz")
LEVELS = ("easy", "medium", "hard")
EASY_LINES, MEDIUM_LINES = 6, 30
"""changed lines of a patch of one file, at most"""
TEST_SHARE = 3
"""one package in TEST_SHARE belongs to the test split"""


@dataclass(frozen=True, eq=False)
class MinedTask:
    """A mined instance."""

    record: records.Record
    setup: dict[str, Any]

    @property
    def package(self) -> str:
        return self.record.repo.partition("/")[2]

    @property
    def licence(self) -> str:
        return str(self.record.extra["licence"])

    @property
    def files(self) -> int:
        return int(self.record.extra["files"])

    @property
    def lines(self) -> int:
        """Lines that the gold patch adds or removes."""
        return int(self.record.extra["lines"])

    @property
    def level(self) -> str:
        return level_of(self.files, self.lines)

    @property
    def split(self) -> str:
        return split_of(self.package)

    def statement(self, detail: str) -> str:
        """Returns the issue's text. Only `full` adds the hints, which name the tests and the place of the fix."""
        if detail == "full":
            return f"{self.record.problem_statement}\n\n{self.record.hints_text}"
        if detail == "names":
            _, _, tests = self.record.hints_text.partition("\n\n")
            return f"{self.record.problem_statement}\n\n{tests}"
        if detail == "nothing":
            return self.record.problem_statement.partition("\n\n")[0]
        return self.record.problem_statement


def level_of(files: int, lines: int) -> str:
    """Returns the level of a patch by its number of files and changed lines."""
    if files == 1 and lines <= EASY_LINES:
        return "easy"
    return "medium" if files == 1 and lines <= MEDIUM_LINES else "hard"


def split_of(package: str) -> str:
    """Returns train or test: all instances of a package are in one split, drawn by a hash of its name.

    A package that planted tasks use is in the same split as these.
    """
    if package in packages.shipped():
        return packages.shipped()[package].split
    return "test" if hashlib.sha256(package.encode()).digest()[0] % TEST_SHARE == 0 else "train"


@cache
def mined_tasks(path: Path = MANIFEST) -> dict[str, MinedTask]:
    """Returns the tasks of a list by id. Raises DataError naming the line."""
    tasks = {}
    for number, row in enumerate(rows(path), 1):
        where = f"{path}, line {number}"
        try:
            record = records.parse(row, where)
            tasks[record.instance_id] = MinedTask(record, record.extra["setup"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{where}: not a mined task ({type(error).__name__}: {error}).") from None
    return tasks


def rows(path: Path = MANIFEST) -> list[Any]:
    """Returns the rows of a list as they were written. Raises DataError naming the line."""
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"The list of mined tasks {path} cannot be read: {error}. Install envsuite again.") from None
    values = []
    for number, line in enumerate(lines, 1):
        try:
            values.append(json.loads(line))
        except ValueError as error:
            raise DataError(f"{path}, line {number}: not a mined task (ValueError: {error}).") from None
    return values


def write(rows: Iterable[dict[str, Any]], path: Path = MANIFEST) -> int:
    """Writes a list of records; returns its size in bytes."""
    lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":"), sort_keys=True) for row in rows]
    data = gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0)
    write_atomically(path, data)
    return len(data)
