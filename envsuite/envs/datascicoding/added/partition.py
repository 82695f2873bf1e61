"""Splits of a table's rows into training, validation and holdout (`partition`)."""

from __future__ import annotations

import hashlib

import numpy as np

from envsuite.envs.datascicoding.added.preparation import PreparedTable, row_hashes
from envsuite.envs.datascicoding.metrics import CLASSIFICATION
from envsuite.errors import UsageError

TRAIN, VALIDATION, HOLDOUT = 0, 1, 2
PARTS = ("train", "validation", "holdout")
SHARES = (0.6, 0.2, 0.2)


def partition(table: PreparedTable, time: str = "") -> np.ndarray:
    """Returns the part of every row [rows] uint8: TRAIN, VALIDATION or HOLDOUT, 60/20/20.

    Equal rows are in one part. Classes, or fifths of a target of numbers, have the same shares in every part. The
    rows are drawn by a key computed from the table, so that the same table always has the same parts. `time`: a column
    by whose values the rows are ordered instead, the last for the holdout. Raises UsageError if a part lacks a class.
    """
    parts = _by_time(table, time) if time else _at_random(table)
    if table.target.kind == CLASSIFICATION:
        for part, name in enumerate(PARTS):
            counts = np.bincount(table.target.values[parts == part].astype(int), minlength=len(table.target.classes))
            if (rarest := int(counts.argmin())) >= 0 and counts[rarest] < 2:
                cure = "choose another column for --time" if time else "merge it with another class"
                raise UsageError(
                    f"The {name} rows hold {counts[rarest]} of class {table.target.classes[rarest]!r}, and equal rows "
                    f"stay together: {cure}."
                )
    return parts


def _at_random(table: PreparedTable) -> np.ndarray:
    hashes = row_hashes(table.values)
    _, first, groups = np.unique(hashes, return_index=True, return_inverse=True)
    answers = table.target.values
    key = hashlib.sha256(np.sort(hashes).tobytes() + answers.tobytes()).digest()
    rng = np.random.default_rng(list(key))
    strata = answers[first]
    if table.target.kind != CLASSIFICATION:
        strata = np.searchsorted(np.quantile(answers, (0.2, 0.4, 0.6, 0.8)), strata)
    sizes = np.bincount(groups)
    part_of_group = np.zeros(len(first), np.uint8)
    for stratum in np.unique(strata):
        members = rng.permutation(np.flatnonzero(strata == stratum))
        reached = np.cumsum(sizes[members]) / sizes[members].sum()
        part_of_group[members] = np.searchsorted(np.cumsum(SHARES)[:2], reached - 1e-9)
    return part_of_group[groups]


def _by_time(table: PreparedTable, time: str) -> np.ndarray:
    column = next((number for number, column in enumerate(table.columns) if column.name == time), None)
    if column is None:
        raise UsageError(f"--time {time}: the table has no such column, or a check left it out (--keep keeps it).")
    if table.columns[column].categories is not None:
        raise UsageError(f"--time {time}: the column holds text; use one of numbers or of dates as 2024-01-31.")
    values = table.values[:, column]
    if np.isnan(values).any():
        raise UsageError(f"--time {time}: {np.isnan(values).sum():,} rows have no value in this column.")
    bounds = np.quantile(values, np.cumsum(SHARES)[:2])
    parts = np.searchsorted(bounds, values).astype(np.uint8)
    if len(np.unique(parts)) < len(PARTS):
        raise UsageError(f"--time {time}: too many rows have the same value to separate past and future.")
    return parts
