"""Playable instances: a data set modified by the difficulty knobs, and its splits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from envsuite.envs.datascicoding.datasets import Dataset
from envsuite.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

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

    @lru_cache(maxsize=4)  # noqa: B019  every attempt of an episode uses the same splits
    def splits(self, count: int) -> list[tuple[pd.DataFrame, np.ndarray, pd.DataFrame, np.ndarray]]:
        """Returns (x_train, y_train, x_test, y_test) of each of the paper's splits: half and half,
        random_state 0 to count - 1.

        The rows of each part are shuffled with a key derived from the complete table, labels
        included, so that knowing the row order of a published data set does not identify the test
        rows.
        """
        from sklearn.model_selection import train_test_split

        parts = []
        for number in range(count):
            train, test = train_test_split(np.arange(len(self.labels)), test_size=0.5, random_state=number)
            key = hashlib.sha256(f"{self.digest}/{number}".encode()).digest()
            rng = np.random.default_rng(list(key))
            train, test = rng.permutation(np.sort(train)), rng.permutation(np.sort(test))
            x_train, x_test = (self.features.iloc[part].reset_index(drop=True) for part in (train, test))
            parts.append((x_train, self.labels[train], x_test, self.labels[test]))
        return parts


def instance(table: Dataset, settings: SimpleNamespace, seed: int) -> Instance:
    """Applies the knobs `complete rows imbalance features noise categorical missing` to `table`;
    randomness comes from `seed`.
    """
    rng = np.random.default_rng([seed, *table.name.encode()])
    frame, labels = table.features, table.labels
    if settings.complete:
        complete_rows = frame.notna().all(axis=1)
        frame, labels = frame[complete_rows], labels[complete_rows]
    classes, codes = np.unique(labels.astype(str), return_inverse=True)
    keep = np.arange(len(frame))
    if settings.imbalance > 1:
        keep = _unbalanced(codes, settings.imbalance, rng)
    if 0 < settings.rows < len(keep):
        keep = np.sort(rng.choice(keep, settings.rows, replace=False))
    frame, codes = frame.iloc[keep].reset_index(drop=True), codes[keep]
    if min(np.bincount(codes, minlength=len(classes))) < 4:
        raise UsageError(
            f"{table.name} with rows={settings.rows} leaves a class with fewer than 4 rows: set more rows."
        )
    if 0 < settings.features < frame.shape[1]:
        frame = frame.iloc[:, np.sort(rng.choice(frame.shape[1], settings.features, replace=False))]
    frame = _typed(frame, settings.categorical, rng)
    for number in range(settings.noise):
        frame.insert(int(rng.integers(frame.shape[1] + 1)), f"extra_{number}", rng.normal(size=len(frame)).round(4))
    if settings.missing:
        frame = frame.mask(rng.random(frame.shape) < settings.missing)
    digest = hashlib.sha256(frame.to_csv(index=False).encode() + codes.astype("<i8").tobytes()).hexdigest()[:16]
    return Instance(table.name, table.about, frame, codes, tuple(map(str, classes)), table.leaky, digest)


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
