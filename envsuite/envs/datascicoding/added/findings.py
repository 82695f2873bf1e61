"""Findings about a table that a user adds: one line each (`TableFinding`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TableFinding:
    """A property of a table that its user should know, and what was done about it."""

    kind: str
    """encoding, delimiter, decimal, target, rows, constant, copy, leak, id, date, text, size, duplicates, missing"""
    column: str
    """the column concerned; "" for the table"""
    text: str
    removed: bool = False
    """True if the column is left out of the stored table"""

    def line(self) -> str:
        """Returns the finding in one line."""
        subject = f"column {self.column!r}: " if self.column else ""
        return f"{subject}{self.text}" + (" (left out; --keep keeps it)" if self.removed else "")
