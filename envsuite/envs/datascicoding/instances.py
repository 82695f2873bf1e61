"""Playable instances: a data set modified by the difficulty knobs, and its splits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from envsuite.envs.datascicoding.datasets import Dataset
from envsuite.envs.datascicoding.metrics import mean_auc
from envsuite.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd


class PlayableTable(Protocol):
    """A table that is ready to be played, with its splits, as `scoring.evaluate` needs it."""

    @property
    def digest(self) -> str:
        """Digest of the table and what is held out."""

    @property
    def output(self) -> str:
        """Predictions of a submission's model: `classes` (probabilities) or `numbers`."""

    def splits(self, count: int) -> list[tuple[pd.DataFrame, np.ndarray, pd.DataFrame, np.ndarray]]:
        """Returns (x_train, y_train, x_test, y_test) of each split."""

    def held_out(self) -> tuple[pd.DataFrame, np.ndarray]:
        """Returns features and answers of the rows that count and are never shown; empty without any."""

    def width(self, y_train: np.ndarray) -> int:
        """Returns the number of columns of predictions."""

    def measure(self, y_train: np.ndarray, y: np.ndarray, values: np.ndarray) -> float:
        """Returns the score of predictions [rows, width] for the answers `y`."""


BANDS = ("very low", "low", "middle", "high", "very high")


@dataclass(frozen=True, eq=False)
class Instance:
    """Features as the player gets them, and labels as numbers 0..K-1 in the order of the sorted class
    names.
    """

    name: str
    about: str
    features: pd.DataFrame
    labels: np.ndarray
    classes: tuple[str, ...]
    leaky: bool
    digest: str
    holdout: np.ndarray
    """[rows] True for rows that count and whose labels never enter a sandbox; all False without a holdout"""

    output = "classes"

    def width(self, y_train: np.ndarray) -> int:
        """Returns the number of classes in the training rows."""
        return len(np.unique(y_train))

    def measure(self, y_train: np.ndarray, y: np.ndarray, values: np.ndarray) -> float:
        """Returns the ROC AUC of probabilities [rows, classes]."""
        return mean_auc(y, values, np.unique(y_train))

    @lru_cache(maxsize=4)  # noqa: B019  every attempt of an episode uses the same splits
    def splits(self, count: int) -> list[tuple[pd.DataFrame, np.ndarray, pd.DataFrame, np.ndarray]]:
        """Returns (x_train, y_train, x_test, y_test) of each of the paper's splits: half and half,
        random_state 0 to count - 1.

        Rows of the holdout are in none of them. The rows of each part are shuffled with a key
        derived from the complete table, labels included, so that knowing the row order of a
        published data set does not identify the test rows.
        """
        from sklearn.model_selection import train_test_split

        parts = []
        for number in range(count):
            rows = np.flatnonzero(~self.holdout)
            train, test = (
                rows[part] for part in train_test_split(np.arange(len(rows)), test_size=0.5, random_state=number)
            )
            key = hashlib.sha256(f"{self.digest}/{number}".encode()).digest()
            rng = np.random.default_rng(list(key))
            train, test = rng.permutation(np.sort(train)), rng.permutation(np.sort(test))
            x_train, x_test = (self.features.iloc[part].reset_index(drop=True) for part in (train, test))
            parts.append((x_train, self.labels[train], x_test, self.labels[test]))
        return parts

    def held_out(self) -> tuple[pd.DataFrame, np.ndarray]:
        """Returns features and labels of the holdout; empty without one."""
        rows = np.flatnonzero(self.holdout)
        return self.features.iloc[rows].reset_index(drop=True), self.labels[rows]


def instance(table: Dataset, settings: SimpleNamespace, seed: int) -> Instance:
    """Applies the knobs `complete rows holdout imbalance noise categorical missing` to
    `table`; randomness comes from `seed`.
    """
    rng = np.random.default_rng([seed, *table.name.encode()])
    frame, labels = table.features, table.labels
    if settings.complete:
        complete_rows = frame.notna().all(axis=1)
        frame, labels = frame[complete_rows], labels[complete_rows]
    classes, codes = np.unique(labels.astype(str), return_inverse=True)
    held = _held_out(table.name, frame, settings.holdout)
    keep = np.arange(len(frame))
    if settings.imbalance > 1:
        keep = _unbalanced(codes, settings.imbalance, rng)
    seen, counted = keep[~held[keep]], keep[held[keep]]
    if 0 < settings.rows < len(seen):
        first = few_of_each(codes, seen, rng) if held.any() else seen[:0]
        drawn = rng.choice(np.setdiff1d(seen, first), max(0, settings.rows - len(first)), replace=False)
        seen = np.concatenate([first, drawn])
    keep = np.sort(np.concatenate([seen, counted]))
    frame, codes, held = frame.iloc[keep].reset_index(drop=True), codes[keep], held[keep]
    if min(np.bincount(codes[~held], minlength=len(classes))) < 4:
        raise UsageError(
            f"{table.name} with rows={settings.rows} leaves a class with fewer than 4 rows: set more rows."
        )
    if held.any() and not all(np.bincount(codes[held], minlength=len(classes))):
        raise UsageError(
            f"{table.name} with holdout={settings.holdout:g} has a class without a held-out row: set more."
        )
    frame = _typed(frame, settings.categorical, rng)
    for number in range(settings.noise):
        frame.insert(int(rng.integers(frame.shape[1] + 1)), f"extra_{number}", rng.normal(size=len(frame)).round(4))
    if settings.missing:
        frame = frame.mask(rng.random(frame.shape) < settings.missing)
    content = frame.to_csv(index=False).encode() + codes.astype("<i8").tobytes()
    content += np.packbits(held).tobytes() if held.any() else b""
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Instance(table.name, table.about, frame, codes, tuple(map(str, classes)), table.leaky, digest, held)


def few_of_each(codes: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns four of `rows` of every class, so that a small sample can be split into halves that have all classes."""
    return np.concatenate([rng.permutation(rows[codes[rows] == label])[:4] for label in np.unique(codes)])


def _held_out(name: str, frame: pd.DataFrame, share: float) -> np.ndarray:
    """Returns a mask of about `share` of the rows, the same for every seed and every setting of the knobs.

    A row is chosen by a hash of its features, so that equal rows are on the same side.
    """
    if not share:
        return np.zeros(len(frame), bool)
    rows = frame.astype(str).fillna("nan").agg("\0".join, axis=1)  # pandas 3 keeps missing values
    digests = (hashlib.sha256(f"{name}\0{row}".encode()).digest() for row in rows)
    return np.array([int.from_bytes(digest[:4], "big") < share * 2**32 for digest in digests])


def _unbalanced(codes: np.ndarray, ratio: float, rng: np.random.Generator) -> np.ndarray:
    """Returns row numbers such that the largest class has about `ratio` times the rows of the
    smallest, others in between.
    """
    counts = np.bincount(codes)
    order = np.argsort(-counts, kind="stable")
    shares = ratio ** -np.linspace(0, 1, len(counts))
    largest = counts[order[0]]
    chosen = []
    for share, label in zip(shares, order, strict=True):
        rows = np.flatnonzero(codes == label)
        chosen.append(rng.choice(rows, min(len(rows), max(8, round(largest * share))), replace=False))
    return np.sort(np.concatenate(chosen))


def _typed(frame: pd.DataFrame, share: float, rng: np.random.Generator) -> pd.DataFrame:
    """Returns the table with `share` of its columns as text, the file's own text columns first, and
    all others as numbers.
    """
    import pandas as pd

    text = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    numeric = [name for name in frame.columns if name not in text]
    text_count = round(share * frame.shape[1])
    kept_as_text = set(text[:text_count])
    banded = (
        set(np.array(numeric)[rng.permutation(len(numeric))[: max(0, text_count - len(text))]]) if numeric else set()
    )
    columns: dict[Any, Any] = {}
    for name in frame.columns:
        column = frame[name]
        if name in kept_as_text:
            columns[name] = column.astype(object).where(column.isna(), column.astype(str))
        elif name in text:
            codes, _ = pd.factorize(column.astype(object).where(column.isna(), column.astype(str)), sort=True)
            columns[name] = pd.Series(codes, index=frame.index, dtype=float).replace(-1.0, np.nan)
        elif name in banded and column.nunique() > 1:
            cut = pd.qcut(column.rank(method="average"), min(5, column.nunique()), labels=False, duplicates="drop")
            columns[name] = cut.map(lambda band: BANDS[int(band)], na_action="ignore").astype(object)
        else:
            columns[name] = column.astype(float)
    return pd.DataFrame(columns)


def columns_text(frame: pd.DataFrame) -> str:
    """Returns the line that lists a table's columns with their kinds."""
    kinds = [
        f"{name} ({'number' if frame[name].dtype == float else 'text'}"
        f"{', some missing' if frame[name].isna().any() else ''})"
        for name in frame.columns
    ]
    return "Columns: " + "; ".join(shortened(kinds)) + "."


def shortened(names: list[str]) -> list[str]:
    """Returns the names, or of more than 30 the first and the last 15."""
    return names if len(names) <= 30 else [*names[:15], f"... {len(names) - 30} more ...", *names[-15:]]
