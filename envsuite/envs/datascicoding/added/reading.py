"""Readers of CSV and Parquet files of unknown origin (`read`).

A CSV's encoding, delimiter and decimal comma are detected from its first megabyte. The limits on
bytes, rows, columns and cells are checked before a table is built, so that no file can fill the
memory.
"""

from __future__ import annotations

import codecs
import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envsuite.envs.datascicoding.added.findings import TableFinding
from envsuite.errors import DataError, MissingExtra, UsageError

if TYPE_CHECKING:
    import pandas as pd

MAX_BYTES = 2_000_000_000
MAX_ROWS = 1_000_000
MAX_COLUMNS = 2_000
MAX_CELLS = 50_000_000
SAMPLE_BYTES = 1 << 20
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
PARQUET = (".parquet", ".pq")
MISSING_MARKS = ["?", "-", "--"]
"""texts that mean a missing value, in addition to those that pandas knows"""
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+")


@dataclass(frozen=True)
class Format:
    """Format of a CSV file; "" where it is detected."""

    encoding: str = ""
    delimiter: str = ""
    decimal: str = "."


DETECT = Format()


def read(path: Path, options: Format = DETECT) -> tuple[pd.DataFrame, list[TableFinding]]:
    """Returns the table in a CSV or Parquet file, and findings about its format.

    Raises DataError with one line if the file cannot be read or exceeds a limit, and MissingExtra if a Parquet file
    needs pyarrow.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist.")
    if not path.is_file():
        raise DataError(f"{path} is not a file.")
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise DataError(f"{path} has {size / 1e9:.1f} GB; a table has at most {MAX_BYTES / 1e9:g} GB: sample its rows.")
    try:
        with path.open("rb") as file:
            is_parquet = file.read(4) == b"PAR1"
        if is_parquet or path.suffix.lower() in PARQUET:
            findings: list[TableFinding] = []
            frame = _read_parquet(path)
        else:
            frame, findings = _read_csv(path, options)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    _check_columns(path, frame)
    return frame, findings


def _check_columns(path: Path, frame: pd.DataFrame) -> None:
    frame.columns = [str(name).strip() for name in frame.columns]
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise DataError(f"{path} has two columns {str(repeated[0])!r}: rename one of them.")
    if len(frame.columns) < 2:
        raise DataError(
            f"{path} has one column, {str(frame.columns[0])[:60]!r}: a table needs a target and a column to predict "
            "it from. If the columns are separated by another sign, give --delimiter."
        )
    _check_size(path, len(frame), len(frame.columns))


def _check_size(path: Path, rows: int, columns: int) -> None:
    if columns > MAX_COLUMNS:
        raise DataError(f"{path} has {columns:,} columns; at most {MAX_COLUMNS:,} are read: remove some.")
    if rows > MAX_ROWS:
        raise DataError(f"{path} has more than {MAX_ROWS:,} rows: save a random sample of them and add that.")
    if rows * columns > MAX_CELLS:
        raise DataError(
            f"{path} has {rows * columns:,} cells; at most {MAX_CELLS:,} are read: remove columns or sample the rows."
        )


# ---- Parquet -----------------------------------------------------------------------------------------------------


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"{path} is a Parquet file, which needs the package 'pyarrow': pip install 'envsuite[parquet]', or save "
            "it as CSV."
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            _check_size(path, file.metadata.num_rows, file.metadata.num_columns)
            unpacked = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
            if unpacked > MAX_BYTES:
                raise DataError(f"{path} unpacks to {unpacked / 1e9:.1f} GB; at most {MAX_BYTES / 1e9:g} GB are read.")
            table = file.read()
        for place, field in enumerate(table.schema):
            if pyarrow.types.is_nested(field.type):
                raise DataError(f"{path}: column {field.name!r} holds {field.type}, not single values: remove it.")
            if pyarrow.types.is_decimal(field.type):
                table = table.set_column(place, field.name, table.column(place).cast(pyarrow.float64()))
        frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    except (pyarrow.ArrowException, ValueError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {_first_line(error)}") from error
    return frame


# ---- CSV ---------------------------------------------------------------------------------------------------------


def _read_csv(path: Path, options: Format) -> tuple[pd.DataFrame, list[TableFinding]]:
    import pandas as pd

    if options.delimiter and (len(options.delimiter) != 1 or options.delimiter in '"\r\n'):
        raise UsageError(f"--delimiter {options.delimiter!r}: give one sign, such as ';' or '|'.")
    with path.open("rb") as file:
        sample = file.read(SAMPLE_BYTES)
    if not sample.strip():
        raise DataError(f"{path} is empty.")
    findings = []
    encoding = options.encoding or _encoding(path, sample)
    if not options.encoding and encoding not in ("utf-8", "utf-8-sig"):
        findings.append(TableFinding("encoding", "", f"it is not UTF-8: read as {encoding} (--encoding changes it)"))
    try:
        lines = sample.decode(encoding, errors="ignore").splitlines()
    except LookupError:
        raise DataError(f"{path}: there is no encoding {encoding!r}.") from None
    lines = lines[:-1] if len(sample) == SAMPLE_BYTES else lines  # the last one may be cut
    try:
        delimiter = options.delimiter or _delimiter(lines)
        decimal = "," if delimiter == ";" and _has_decimal_commas(lines, delimiter) else options.decimal
        columns = len(next(csv.reader(lines[:1], delimiter=delimiter), []))
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as CSV: {error}.") from error
    if not options.delimiter and delimiter != ",":
        findings.append(TableFinding("delimiter", "", f"its columns are separated by a {DELIMITERS[delimiter]}"))
    if decimal != options.decimal:
        findings.append(TableFinding("decimal", "", "its numbers have decimal commas, which are read as points"))
    _check_size(path, 0, columns)
    try:
        frame = pd.read_csv(
            path,
            sep=delimiter,
            encoding=encoding,
            decimal=decimal,
            na_values=MISSING_MARKS,
            skipinitialspace=True,
            nrows=min(MAX_ROWS, MAX_CELLS // max(1, columns)) + 1,
            low_memory=False,
            compression=None,
        )
    except (UnicodeError, LookupError) as error:
        raise DataError(f"{path} cannot be read as {encoding}: {_first_line(error)}. Give --encoding.") from error
    except (ValueError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as CSV: {_first_line(error)}") from error
    if frame.empty:
        raise DataError(f"{path} has a header and no rows.")
    if not isinstance(frame.index, pd.RangeIndex):
        raise DataError(
            f"{path} has more cells in its rows than names in its header: name every column, or remove the delimiter "
            "at the end of the rows."
        )
    return frame, findings


def _encoding(path: Path, sample: bytes) -> str:
    """Returns the encoding of a CSV: by its byte order mark, otherwise UTF-8 if all of it is valid, or cp1252."""
    for mark, name in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if sample.startswith(mark):
            return name
    if b"\0" in sample:
        raise DataError(f"{path} holds null bytes: it is no text file. Tables are read from CSV and Parquet.")
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 24):
                decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _delimiter(lines: list[str]) -> str:
    """Returns the sign that splits the header and most of the first lines into equally many columns, or a comma."""
    best, most = ",", 1
    for sign in DELIMITERS:
        rows = list(csv.reader(lines[:50], delimiter=sign))
        widths = [len(row) for row in rows if row]
        alike = sum(width == widths[0] for width in widths) if widths else 0
        if widths and widths[0] > most and alike >= 0.9 * len(widths):
            best, most = sign, widths[0]
    return best


def _has_decimal_commas(lines: list[str], delimiter: str) -> bool:
    """Returns True if some column of the first lines holds numbers with decimal commas and no number with a point."""
    rows = [row for row in csv.reader(lines[1:200], delimiter=delimiter) if row]
    cells = [cell.strip() for row in rows for cell in row]
    points = any(re.fullmatch(r"-?\d+\.\d+", cell) for cell in cells)
    return not points and any(_DECIMAL_COMMA.fullmatch(cell) for cell in cells)


def _first_line(error: BaseException) -> Any:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
