"""Tables of the yield per package, as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

REASONS = 3
"""reasons that a row shows"""


def yield_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the lines of a table: a row per package, and their sum."""
    lines = [
        "| package | licence | pairs of releases | repaired tests | candidates | kept | most frequent reasons against "
        "| seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    total: Counter[str] = Counter()
    columns = ("pairs", "repaired", "candidates", "kept")
    for row in rows:
        frequent = Counter(row["reasons"]).most_common(REASONS)
        reasons = "; ".join(f"{_cell(reason)} {count}" for reason, count in frequent)
        counts = " | ".join(str(row[column]) for column in columns)
        lines.append(f"| {row['package']} | {_cell(row['licence'])} | {counts} | {reasons} | {row['seconds']:.0f} |")
        total.update({column: row[column] for column in columns})
    seconds = sum(row["seconds"] for row in rows)
    counts = " | ".join(str(total[column]) for column in columns)
    lines.append(f"| all {len(rows)} |  | {counts} |  | {seconds:.0f} |")
    return lines


def reasons_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the lines of a table of all reasons, most frequent first."""
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row["reasons"])
    lines = ["| reason | count |", "|---|---|"]
    return lines + [f"| {_cell(reason)} | {count} |" for reason, count in total.most_common()]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:120]
