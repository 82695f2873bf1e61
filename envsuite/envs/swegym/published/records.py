"""Records of SWE-Gym, SWE-bench and data sets with their schema: reading and validation.

Schema (both data sets): `instance_id repo base_commit version problem_statement hints_text patch
test_patch FAIL_TO_PASS PASS_TO_PASS created_at environment_setup_commit`. SWE-Gym stores the two
lists of tests as lists, SWE-bench as JSON text of a list; PASS_TO_PASS may be empty. Unknown fields
are preserved in `extra`.

Source: Jimenez et al., SWE-bench, ICLR 2024; Pan et al., Training Software Engineering Agents with
SWE-Gym, 2025.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envsuite.errors import DataError, MissingExtra

NEEDED = ("instance_id", "repo", "base_commit", "patch", "test_patch", "problem_statement")
OPTIONAL = ("version", "hints_text", "created_at", "environment_setup_commit")
TESTS = ("FAIL_TO_PASS", "PASS_TO_PASS")


@dataclass(frozen=True)
class Record:
    """One published instance."""

    instance_id: str
    repo: str
    """'owner/name' as published; case varies between data sets"""
    base_commit: str
    patch: str
    """the gold patch, a unified diff"""
    test_patch: str
    problem_statement: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    version: str = ""
    hints_text: str = ""
    created_at: str = ""
    environment_setup_commit: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Returns the record as SWE-Gym writes it, including unknown fields."""
        named = {name: getattr(self, name) for name in (*NEEDED, *OPTIONAL)}
        return {**named, "FAIL_TO_PASS": list(self.fail_to_pass), "PASS_TO_PASS": list(self.pass_to_pass), **self.extra}


def load(source: str | Path, split: str = "") -> list[Record]:
    """Loads the records of a `.jsonl`, `.json` or `.parquet` file, or of a data set on the hub named
    'owner/name'.

    `split` applies to data sets on the hub; '' means `default_split`. Raises DataError naming file,
    line (or row) and field.
    """
    path = Path(source).expanduser()
    if not path.exists():
        if isinstance(source, str) and source.count("/") == 1 and not path.suffix:
            return _from_hub(source, split or default_split(source))
        raise DataError(
            f"Records file {source} does not exist: "
            "name a .jsonl, .json or .parquet file, or a folder with a folder per instance."
        )
    readers = {".jsonl": _lines, ".json": _array, ".parquet": _parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"Records file {path} is a {path.suffix or 'file without suffix'}: it must be .jsonl, .json or .parquet."
        )
    loaded = [parse(row, f"{path}, {where}") for where, row in reader(path)]
    _reject_duplicates(loaded, str(path))
    return loaded


def default_split(name: str) -> str:
    """Returns the split of a hub data set that holds its instances.

    SWE-Gym has only `train`. SWE-bench is played on `test`: the full set and Lite also have `dev`,
    Verified has no other.
    """
    return "test" if "swe-bench" in name.lower() else "train"


def parse(row: Any, where: str) -> Record:
    """Parses one record from its JSON object. `where` names it in errors."""
    if not isinstance(row, dict):
        raise DataError(f"{where}: a record is a JSON object, not {_kind(row)}.")
    texts = {}
    for name in (*NEEDED, *OPTIONAL):
        value = row.get(name)
        if value is None and name in OPTIONAL:
            value = ""
        if name == "version" and isinstance(value, (int, float)) and not isinstance(value, bool):
            value = str(value)
        if value is None:
            raise DataError(f"{where}: field {name!r} is missing.")
        if not isinstance(value, str):
            raise DataError(f"{where}: field {name!r} is {_kind(value)}, not text.")
        texts[name] = value
    for name in ("instance_id", "repo", "patch"):
        if not texts[name].strip():
            raise DataError(f"{where}: field {name!r} is empty.")
    if "/" not in texts["repo"]:
        raise DataError(f"{where}: field 'repo' is {texts['repo']!r}, not owner/name.")
    fail, passing = (_tests(row, name, where) for name in TESTS)
    if not fail:
        raise DataError(f"{where}: field 'FAIL_TO_PASS' names no test, so no solution could be recognised.")
    extra = {name: value for name, value in row.items() if name not in (*NEEDED, *OPTIONAL, *TESTS)}
    return Record(**texts, fail_to_pass=fail, pass_to_pass=passing, extra=extra)


def _tests(row: dict[str, Any], name: str, where: str) -> tuple[str, ...]:
    value = row.get(name)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise DataError(f"{where}: field {name!r} is text but not a JSON list: {value[:60]!r}.") from None
    if not isinstance(value, (list, tuple)) or not all(isinstance(test, str) for test in value):
        raise DataError(f"{where}: field {name!r} is {_kind(value)}, not a list of test names.")
    return tuple(value)


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "text", type(None): "missing", bool: "true or false"}.get(
        type(value), f"a {type(value).__name__}"
    )


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open(encoding="utf-8") as file:
        try:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield f"line {number}", _json(line, path, number)
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 text: {error.reason}.") from None


def _json(line: str, path: Path, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}, line {number}: not valid JSON ({error}).") from None


def _array(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON ({error}).") from None
    if isinstance(rows, dict):
        rows = list(rows.values()) if all(isinstance(row, dict) for row in rows.values()) else [rows]
    yield from ((f"record {number}", row) for number, row in enumerate(rows, 1))


def _parquet(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ModuleNotFoundError:
        raise MissingExtra("Parquet files need the package 'pyarrow': pip install 'envsuite[swegym]'") from None
    try:
        rows = parquet.read_table(path).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} is not a Parquet file: {str(error).splitlines()[0]}.") from None
    yield from ((f"row {number}", row) for number, row in enumerate(rows, 1))


def _from_hub(name: str, split: str) -> list[Record]:
    try:
        from datasets import load_dataset
    except ModuleNotFoundError:
        raise MissingExtra(
            f"{name} is not a local file, and data sets by name need the package 'datasets': "
            "pip install 'envsuite[interop]'"
        ) from None
    try:
        rows = load_dataset(name, split=split)
    except Exception as error:  # any error of the hub's client: no network, no such name
        reason = str(error).strip().splitlines()
        raise DataError(
            f"{name} is not a local file and cannot be fetched from the hub "
            f"({reason[0][:160] if reason else type(error).__name__}): "
            "download it elsewhere and name the .jsonl or .parquet file."
        ) from None
    loaded = [parse(dict(row), f"{name}, row {number}") for number, row in enumerate(rows, 1)]
    _reject_duplicates(loaded, name)
    return loaded


def _reject_duplicates(loaded: list[Record], where: str) -> None:
    seen: set[str] = set()
    for record in loaded:
        if record.instance_id in seen:
            raise DataError(f"{where}: instance_id {record.instance_id!r} occurs twice.")
        seen.add(record.instance_id)
