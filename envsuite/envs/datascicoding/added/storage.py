"""The user's tables in envsuite's cache: `add`, `load`, `names`, `remove`, `describe`.

A table is a folder of arrays and a JSON file, with a digest over both that every load compares.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envsuite.cache import cache_dir, cache_root
from envsuite.envs.datascicoding import metrics
from envsuite.envs.datascicoding.added import leaderboards, reading
from envsuite.envs.datascicoding.added.findings import TableFinding
from envsuite.envs.datascicoding.added.partition import PARTS, partition
from envsuite.envs.datascicoding.added.preparation import TableColumn, prepare
from envsuite.envs.datascicoding.datasets import SOURCES, Dataset
from envsuite.envs.datascicoding.metrics import REGRESSION
from envsuite.errors import DataError, MissingData, UsageError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
LEFTOVER_SECONDS = 86_400
"""age from which an unfinished folder is removed: no `add` takes a day"""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,40}")
_ARRAYS = ("values", "target", "parts")


@dataclass(frozen=True, eq=False)
class StoredTable:
    """A table that a user added."""

    name: str
    target: str
    kind: str
    """classification or regression"""
    classes: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    values: np.ndarray
    """[rows, columns] float64: numbers, or codes of texts"""
    answers: np.ndarray
    """[rows] float64: numbers of classes, or the numbers to predict"""
    parts: np.ndarray
    """[rows] uint8: index into `partition.PARTS`"""
    digest: str
    metric: str
    """name of the metric of competitions on this table"""
    leaderboard: tuple[float, ...] = ()
    """scores of a competition, the best first, in the direction in which higher is better"""

    @property
    def is_regression(self) -> bool:
        return self.kind == REGRESSION

    def rows(self, part: int) -> np.ndarray:
        """Returns the numbers of the rows of a part."""
        return np.flatnonzero(self.parts == part)

    def frame(self, rows: np.ndarray) -> pd.DataFrame:
        """Returns the features of `rows` as a DataFrame: float64, and objects for texts."""
        import pandas as pd

        columns = {}
        for number, column in enumerate(self.columns):
            values = self.values[rows, number]
            if column.categories is None:
                columns[column.name] = values
            else:  # a code of -1 takes the last entry, NaN
                texts = np.array([*column.categories, np.nan], object)
                columns[column.name] = texts[np.where(np.isnan(values), -1, values).astype(int)]
        return pd.DataFrame({name: pd.Series(values, dtype=values.dtype) for name, values in columns.items()})


def add(
    path: Path,
    target: str,
    name: str = "",
    kind: str = "auto",
    keep: Collection[str] = (),
    time: str = "",
    options: reading.Format = reading.DETECT,
    metric: str = "",
    leaderboard: Path | None = None,
) -> tuple[StoredTable, list[TableFinding]]:
    """Reads, checks, splits and stores the table in `path`; returns it with the findings.

    Raises UsageError, DataError or MissingExtra with one line; nothing is stored then.
    """
    name = name or _default_name(path)
    _check_name(name)
    frame, findings = reading.read(path, options)
    prepared = prepare(frame, target, kind, keep)
    del frame
    parts = partition(prepared, time)
    chosen = metrics.choose(metric, prepared.target.kind)
    scores = leaderboards.read(leaderboard, chosen.loss) if leaderboard else ()
    arrays = {"values": prepared.values, "target": prepared.target.values, "parts": parts}
    meta = {
        "format": FORMAT,
        "target": target,
        "kind": prepared.target.kind,
        "classes": prepared.target.classes,
        "columns": [{"name": column.name, "categories": column.categories} for column in prepared.columns],
        "metric": chosen.name,
        "leaderboard": scores,
    }
    text = json.dumps(meta, ensure_ascii=False)
    record = {"digest": _digest(text, arrays), "table": text, "file": path.name, "added": _shape_line(prepared, parts)}
    if name in names():
        if load(name).digest == record["digest"]:
            raise UsageError(f"This table is already there as {name!r}: play it with --set table={name}.")
        raise UsageError(f"There is another table {name!r}: give --name, or `envsuite data remove {name}` first.")
    _write(name, record, arrays)
    return load(name), [*findings, *prepared.findings]


def from_dataset(data: Dataset) -> StoredTable:
    """Returns a data set of envsuite as a table with a split, without storing it. All its columns stay."""
    name = "target" if "target" not in data.features.columns else "class"
    frame = data.features.assign(**{name: data.labels.astype(str)})
    prepared = prepare(frame, name, metrics.CLASSIFICATION, tuple(map(str, data.features.columns)))
    parts = partition(prepared)
    arrays = {"values": prepared.values, "target": prepared.target.values, "parts": parts}
    return StoredTable(
        name=data.name,
        target=name,
        kind=prepared.target.kind,
        classes=prepared.target.classes,
        columns=prepared.columns,
        values=prepared.values,
        answers=prepared.target.values,
        parts=parts,
        digest=_digest(data.name, arrays),
        metric=metrics.DEFAULTS[prepared.target.kind],
    )


def names() -> list[str]:
    """Returns the names of the stored tables."""
    folder = cache_root() / "datascicoding" / "tables"
    found = (path.parent.name for path in folder.glob("*/table.json"))
    return sorted(name for name in found if _NAME.fullmatch(name))  # others were left by an `add` that was killed


def load(name: str) -> StoredTable:
    """Loads a stored table. Raises MissingData for an unknown name, DataError if its files were changed."""
    known = names()
    if not name:
        listed = f"{', '.join(known)} are here" if known else "add one with `envsuite data add FILE --target COLUMN`"
        raise MissingData(f"No table is named: write --set table=NAME; {listed}.")
    if name not in known:
        listed = f" It has {', '.join(known)}." if known else ""
        raise MissingData(
            f"There is no table {name!r} on this machine.{did_you_mean(name, known)}{listed} "
            f"Add one: `envsuite data add FILE --target COLUMN --name {name or 'NAME'}`."
        )
    folder = _folder(name)
    return _load(folder, (folder / "table.json").stat().st_mtime_ns)


def remove(name: str) -> None:
    """Deletes a stored table. Raises MissingData for an unknown name."""
    if name not in names():
        raise MissingData(f"There is no table {name!r} on this machine.{did_you_mean(name, names())}")
    folder = _folder(name)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".old-") as temporary:
        folder.rename(Path(temporary, name))  # at once, so that the table is complete or absent


def describe(name: str) -> str:
    """Returns a stored table in one line: rows by part, columns, target, digest."""
    record = _record(_folder(name))
    return f"{record['added']}, digest {record['digest']}, from {record['file']}"


def _folder(name: str) -> Path:
    return cache_root() / "datascicoding" / "tables" / name


def _default_name(path: Path) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", path.stem.lower()).strip("-._")[:40] or "table"


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"A table cannot be called {name!r}: use up to 41 of a-z, 0-9, dot, dash and underscore.")
    if name in SOURCES:
        raise UsageError(f"{name!r} is a data set of envsuite: give the table another --name.")


def _shape_line(prepared: Any, parts: np.ndarray) -> str:
    counts = ", ".join(f"{(parts == number).sum():,} {part}" for number, part in enumerate(PARTS))
    answer = f"{len(prepared.target.classes)} classes" if prepared.target.classes else "numbers"
    columns = f"{len(prepared.columns):,} column" + ("s" if len(prepared.columns) != 1 else "")
    return f"{len(parts):,} rows ({counts}), {columns}, target {prepared.target.name!r} ({answer})"


def _write(name: str, record: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Writes a table's folder under a temporary name and renames it, so that it is complete or absent."""
    parent = cache_dir("datascicoding", "tables")
    for leftover in parent.glob(".new-*"):  # of a process that was killed
        if leftover.stat().st_mtime < time.time() - LEFTOVER_SECONDS:
            shutil.rmtree(leftover, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(dir=parent, prefix=".new-"))
    try:
        for key in _ARRAYS:
            np.save(temporary / f"{key}.npy", arrays[key], allow_pickle=False)
        (temporary / "table.json").write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
        temporary.chmod(0o755)
        temporary.rename(parent / name)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        raise DataError(f"The table cannot be stored in {parent}: {error.strerror or error}.") from error


def _digest(text: str, arrays: dict[str, np.ndarray]) -> str:
    """Returns 16 hex digits of a SHA-256 over everything that a player meets."""
    digest = hashlib.sha256(text.encode())
    for key in _ARRAYS:
        digest.update(arrays[key].tobytes(order="A"))
    return digest.hexdigest()[:16]


def _record(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / "table.json").read_text(encoding="utf-8"))
        return {key: str(record[key]) for key in ("digest", "table", "file", "added")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder) from error


@lru_cache(maxsize=4)
def _load(folder: Path, changed: int) -> StoredTable:
    """Loads a folder. `changed` is the time of its last change: another table may get the name of a removed one."""
    record = _record(folder)
    try:
        arrays = {key: np.load(folder / f"{key}.npy", allow_pickle=False) for key in _ARRAYS}
        if _digest(record["table"], arrays) != record["digest"]:
            raise ValueError("digest")
        meta = json.loads(record["table"])
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(folder) from error
    columns = tuple(
        TableColumn(column["name"], None if column["categories"] is None else tuple(column["categories"]))
        for column in meta["columns"]
    )
    return StoredTable(
        name=folder.name,
        target=meta["target"],
        kind=meta["kind"],
        classes=tuple(meta["classes"]),
        columns=columns,
        values=arrays["values"],
        answers=arrays["target"],
        parts=arrays["parts"],
        digest=record["digest"],
        metric=meta["metric"],
        leaderboard=tuple(meta["leaderboard"]),
    )


def _damaged(folder: Path) -> DataError:
    return DataError(
        f"{folder} was changed since the table was added: `envsuite data remove {folder.name}` and add it again."
    )
