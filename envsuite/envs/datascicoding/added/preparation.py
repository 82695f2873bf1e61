"""Checks of a user's table, and its form for playing (`prepare`).

Columns that give the target away, or cannot help to predict it, are left out unless the user keeps
them; everything else is kept and reported. Numbers become float64 and texts become codes.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from envsuite.envs.datascicoding.added.findings import TableFinding
from envsuite.envs.datascicoding.added.targets import TargetColumn, read_target
from envsuite.envs.datascicoding.metrics import CLASSIFICATION, mean_auc
from envsuite.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

MIN_ROWS = 50
LONG_TEXT = 200
"""mean characters of a column above which it is left out"""
ID_SHARE = 0.95
"""share of different texts above which a column of text is like an id"""
ALMOST_EQUAL = 0.9999
"""R2 of a line, or AUC of one column, above which a column nearly gives the target away"""
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?(Z|[+-]\d{2}:?\d{2})?")
_ID_NAME = re.compile(r"(^|[_ -])(id|uuid|guid|index|row|rowid|rownames?|number|nr|no|key)$|Id$|ID$|^Unnamed: \d+$")


@dataclass(frozen=True)
class TableColumn:
    """A column of a stored table: numbers, or texts as codes into `categories`."""

    name: str
    categories: tuple[str, ...] | None = None


@dataclass(frozen=True)
class PreparedTable:
    """A checked table."""

    target: TargetColumn
    columns: tuple[TableColumn, ...]
    values: np.ndarray
    """[rows, columns] float64 in column order; NaN where a value is missing"""
    findings: tuple[TableFinding, ...]


def prepare(frame: pd.DataFrame, target: str, kind: str = "auto", keep: Collection[str] = ()) -> PreparedTable:
    """Checks `frame` and converts it.

    `kind`: classification, regression, or auto. `keep`: columns that stay although a check would leave them out.
    Raises UsageError with one line if the table cannot be played.
    """
    names = [str(name) for name in frame.columns]
    for name in (target, *keep):
        if name not in names:
            listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise UsageError(f"The table has no column {name!r}.{did_you_mean(name, names)} It has {listed}.")
    answer, with_target, findings = read_target(frame[target], kind)
    if len(answer.values) < MIN_ROWS:
        raise UsageError(f"The table has {len(answer.values)} rows with a target; at least {MIN_ROWS} are needed.")
    columns: list[TableColumn] = []
    arrays: list[np.ndarray] = []
    seen: dict[bytes, str] = {}
    for name in names:
        if name == target:
            continue
        column, values, finding = _convert(name, frame[name][with_target])
        finding = finding or _check(column, values, answer, seen)
        if finding is not None and finding.removed and name in keep:
            finding = TableFinding(finding.kind, name, f"{finding.text} (kept)")
        if finding is not None:
            findings.append(finding)
        if finding is None or not finding.removed:
            columns.append(column)
            arrays.append(values)
    if not columns:
        raise UsageError(f"No column is left to predict {target!r} from: " + "; ".join(f.line() for f in findings[:5]))
    table = np.empty((len(answer.values), len(columns)), order="F")
    for number, values in enumerate(arrays):
        table[:, number] = values
    return PreparedTable(answer, tuple(columns), table, (*findings, *_repetitions(table, answer)))


def row_hashes(values: np.ndarray) -> np.ndarray:
    """Returns a number for every row of `values` [rows, columns] that is equal for equal rows."""
    import pandas as pd

    positive_zeros = values + 0.0  # 0.0 and -0.0 are equal and have different hashes
    return np.asarray(pd.util.hash_pandas_object(pd.DataFrame(positive_zeros, copy=False), index=False))


def _repetitions(values: np.ndarray, target: TargetColumn) -> list[TableFinding]:
    hashes = row_hashes(values)
    _, first, groups = np.unique(hashes, return_index=True, return_inverse=True)
    repeated = len(hashes) - len(first)
    if not repeated:
        return []
    different = int((target.values != target.values[first][groups]).sum())
    text = f"{repeated:,} of {len(hashes):,} rows repeat another one; equal rows stay in one part of the split"
    if different:
        text += f"; {different:,} of them have another target than the first"
    return [TableFinding("duplicates", "", text)]


# ---- columns -----------------------------------------------------------------------------------------------------


def _convert(name: str, column: pd.Series) -> tuple[TableColumn, np.ndarray, TableFinding | None]:
    """Returns a column as numbers, and a finding if its conversion needs one."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return _as_days(name, column)
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if pd.api.types.is_complex_dtype(column.dtype) or pd.api.types.is_timedelta64_dtype(column.dtype):
        column = column.astype(str)
    if pd.api.types.is_numeric_dtype(column.dtype):
        values = column.to_numpy(dtype=float, na_value=np.nan)
        infinite = np.isinf(values)
        if infinite.any():
            values = np.where(infinite, np.nan, values)
            return (
                TableColumn(name),
                values,
                TableFinding("missing", name, f"{infinite.sum():,} infinite values count as missing"),
            )
        return TableColumn(name), values, None
    missing = column.isna().to_numpy()
    if column.dtype == object:
        column = column.where(~missing, "").astype(str)
    sample = column[~missing].iloc[:200]
    if len(sample) and all(_ISO_DATE.fullmatch(str(text).strip()) for text in sample):
        days = pd.to_datetime(column.where(~missing, None), errors="coerce", utc=True, format="ISO8601")
        if days.notna().sum() == (~missing).sum():
            return _as_days(name, days)
    codes, categories = pd.factorize(column.where(~missing, None), sort=True)
    values = np.where(codes < 0, np.nan, codes.astype(float))
    lengths = column[~missing].str.len()
    finding = None
    if len(lengths) and lengths.mean() > LONG_TEXT:
        text = f"{lengths.mean():,.0f} characters of text on average, up to {lengths.max():,}"
        finding = TableFinding("text", name, text, removed=True)
    return TableColumn(name, tuple(map(str, categories))), values, finding


def _as_days(name: str, column: pd.Series) -> tuple[TableColumn, np.ndarray, TableFinding]:
    """Returns dates as days since 1970."""
    import pandas as pd

    moments = pd.to_datetime(column, utc=True)
    values = ((moments - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)).to_numpy(dtype=float)
    known = moments.dropna()
    span = f"dates from {known.min():%Y-%m-%d} to {known.max():%Y-%m-%d}" if len(known) else "dates"
    text = f"{span}, given as days since 1970; --time splits the rows by them, the past for training"
    return TableColumn(name), values, TableFinding("date", name, text)


def _check(
    column: TableColumn, values: np.ndarray, target: TargetColumn, seen: dict[bytes, str]
) -> TableFinding | None:
    """Returns the first finding about a column: constant, a copy, a leak of the target, an id, or mostly missing."""
    name = column.name
    known = values[~np.isnan(values)]
    distinct = np.unique(known)
    if len(distinct) == 0:
        return TableFinding("constant", name, "it has no value in any row", removed=True)
    if len(distinct) == 1 and len(known) == len(values):
        return TableFinding("constant", name, "it has the same value in every row", removed=True)
    key = values.tobytes()
    if (earlier := seen.setdefault(key, name)) != name:
        return TableFinding("copy", name, f"it equals column {earlier!r}", removed=True)
    if leak := _leak(column, values, distinct, target):
        return leak
    if column.categories is not None and len(distinct) >= ID_SHARE * len(known) and len(known) >= MIN_ROWS:
        return TableFinding(
            "id", name, f"{len(distinct):,} different texts in {len(known):,} rows, like an id", removed=True
        )
    if column.categories is None and len(distinct) == len(values) and _is_count(values, name):
        return TableFinding("id", name, "a different integer in every row, like an id or a row number", removed=True)
    if len(known) < 0.5 * len(values):
        return TableFinding("missing", name, f"{1 - len(known) / len(values):.0%} of its values are missing")
    return None


def _is_count(values: np.ndarray, name: str) -> bool:
    """Returns True for integers that count the rows, or whose column is named like an id."""
    if not (values == np.rint(values)).all():
        return False
    return _ID_NAME.search(name) is not None or len(np.unique(np.diff(values))) == 1


def _leak(column: TableColumn, values: np.ndarray, distinct: np.ndarray, target: TargetColumn) -> TableFinding | None:
    """Returns a finding if a column gives the target away, alone and in every row, or nearly so."""
    known = ~np.isnan(values)
    name = column.name
    if target.kind == CLASSIFICATION:
        codes = np.searchsorted(distinct, values[known])
        labels = target.values[known].astype(int)
        classes = len(target.classes)
        if len(distinct) <= 10 * classes:
            table = np.zeros((len(distinct), classes), int)
            np.add.at(table, (codes, labels), 1)
            sure = (np.count_nonzero(table, axis=1) == 1).all()
            if sure and known.all() and len(distinct) == classes:
                return TableFinding("leak", name, "it is the target under other names", removed=True)
            if sure:
                return TableFinding(
                    "leak", name, "each of its values belongs to one class: is it known before the target?"
                )
        if classes == 2 and column.categories is None:
            auc = _single_auc(values[known], labels)
            if max(auc, 1 - auc) > ALMOST_EQUAL:
                return TableFinding(
                    "leak", name, f"alone it has an AUC of {max(auc, 1 - auc):.4f}: is it known before?"
                )
        return None
    if column.categories is not None or known.sum() < MIN_ROWS:
        return None
    x, y = values[known], target.values[known]
    if x.std() == 0 or y.std() == 0:
        return None
    share = float(np.corrcoef(x, y)[0, 1] ** 2)
    if share > 1 - 1e-9 and known.all():
        return TableFinding("leak", name, "it is the target, or a linear function of it", removed=True)
    if share > ALMOST_EQUAL:
        return TableFinding("leak", name, f"alone it has an R2 of {share:.6f}: is it known before the target?")
    return None


def _single_auc(values: np.ndarray, labels: np.ndarray) -> float:
    return mean_auc(labels, np.column_stack([-values, values]), np.array([0, 1]))
