"""The target column of a user's table: classes or numbers (`read_target`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from envsuite.envs.datascicoding.added.findings import TableFinding
from envsuite.envs.datascicoding.metrics import CLASSIFICATION, REGRESSION
from envsuite.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("auto", CLASSIFICATION, REGRESSION)
MAX_CLASSES = 50
MAX_NUMBER_CLASSES = 20
"""different integers up to which a target of numbers counts as classes"""
MIN_CLASS_ROWS = 10


@dataclass(frozen=True)
class TargetColumn:
    """The column to predict."""

    name: str
    kind: str
    classes: tuple[str, ...]
    """sorted names of the classes; empty for regression"""
    values: np.ndarray
    """[rows] float64: numbers of classes, or the numbers to predict"""


def read_target(column: pd.Series, kind: str = "auto") -> tuple[TargetColumn, np.ndarray, list[TableFinding]]:
    """Returns the target, a mask of the rows that have one, and findings.

    Raises UsageError if it cannot be predicted: one class, too many, classes that are too rare, or no numbers.
    """
    import pandas as pd

    name = str(column.name)
    numeric = pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype)
    present = column.notna().to_numpy()
    if numeric:
        present = np.isfinite(column.to_numpy(dtype=float, na_value=np.nan))
    findings = []
    if not present.all():
        findings.append(TableFinding("rows", name, f"{(~present).sum():,} rows without a target are left out"))
    known = column[present]
    distinct = known.nunique()
    if distinct < 2:
        content = f"only the value {known.iloc[0]!r}" if distinct else "no value"
        raise UsageError(f"Column {name!r} holds {content}: a target needs at least two.")
    if kind == "auto":
        kind = _kind(known, distinct, numeric)
        alternative = REGRESSION if kind == CLASSIFICATION else CLASSIFICATION
        reason = f"{distinct:,} different {'numbers' if numeric else 'values'}"
        hint = f" (--kind {alternative} changes it)" if numeric else ""
        findings.append(TableFinding("target", name, f"{kind}, because it holds {reason}{hint}"))
    if kind == REGRESSION:
        if not numeric:
            known = known.astype(str)
            if text := next((text for text in known if not _is_number(text)), None):
                raise UsageError(f"Column {name!r} holds {text[:40]!r}, which is no number: regression needs numbers.")
        return TargetColumn(name, kind, (), known.to_numpy(dtype=float)), present, findings
    if distinct > MAX_CLASSES:
        hint = "use --kind regression" if numeric else _text_hint(known)
        raise UsageError(f"Column {name!r} has {distinct:,} classes; at most {MAX_CLASSES} can be predicted: {hint}.")
    texts = known.map(_plain_number) if numeric else known.astype(str)
    classes, codes = np.unique(texts.to_numpy(dtype=str), return_inverse=True)
    counts = np.bincount(codes)
    rarest = int(counts.argmin())
    if counts[rarest] < MIN_CLASS_ROWS:
        raise UsageError(
            f"Class {str(classes[rarest])!r} of column {name!r} has {counts[rarest]} rows; each class needs "
            f"{MIN_CLASS_ROWS}: merge it with another class, or remove its rows."
        )
    return TargetColumn(name, kind, tuple(map(str, classes)), codes.astype(float)), present, findings


def _kind(known: pd.Series, distinct: int, numeric: bool) -> str:
    if not numeric or distinct == 2:
        return CLASSIFICATION
    values = known.to_numpy(dtype=float)
    return CLASSIFICATION if distinct <= MAX_NUMBER_CLASSES and (values == np.rint(values)).all() else REGRESSION


def _plain_number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _text_hint(known: pd.Series) -> str:
    """Returns what to do about too many texts: some columns hold numbers except for a few cells."""
    texts = known.astype(str)
    numbers = texts.map(_is_number)
    if numbers.all():
        return "use --kind regression"
    if numbers.mean() > 0.9:
        return f"it holds numbers except for {texts[~numbers].iloc[0][:40]!r}; clear those cells to predict numbers"
    return "merge the rare ones"


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False
