"""Hunks of the difference between two trees of text files, and application of any subset of them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

GAP = 3
"""unchanged lines between two changes that belong to one hunk"""


@dataclass(frozen=True)
class FileHunk:
    """Replacement of a run of lines in one file."""

    path: str
    start: int
    """first line of the old file that is replaced, from 0"""
    end: int
    """line after the last one that is replaced"""
    lines: tuple[str, ...]
    """new lines with their line ends"""
    kind: str = "changed"
    """changed, added (a new file) or removed (a whole file)"""

    @property
    def size(self) -> int:
        """Lines that are removed or added, without the unchanged ones between them."""
        return self.end - self.start + len(self.lines)


def split_lines(text: str) -> list[str]:
    """Returns the lines of a text with their ends; only a line feed ends a line, as for git."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def split(old: Mapping[str, str], new: Mapping[str, str]) -> list[FileHunk]:
    """Returns the hunks that turn the files `old` into the files `new`, by path and line."""
    hunks = []
    for path in sorted({*old, *new}):
        before, after = old.get(path), new.get(path)
        if before == after:
            continue
        old_lines = split_lines(before or "")
        new_lines = split_lines(after or "")
        if before is None:
            hunks.append(FileHunk(path, 0, 0, tuple(new_lines), "added"))
        elif after is None:
            hunks.append(FileHunk(path, 0, len(old_lines), (), "removed"))
        else:
            hunks += _changed(path, old_lines, new_lines)
    return hunks


def _changed(path: str, old: list[str], new: list[str]) -> list[FileHunk]:
    spans: list[list[int]] = []
    for tag, first, last, new_first, new_last in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        if spans and first - spans[-1][1] < GAP:
            spans[-1][1], spans[-1][3] = last, new_last
        else:
            spans.append([first, last, new_first, new_last])
    return [FileHunk(path, first, last, tuple(new[start:end])) for first, last, start, end in spans]


def new_lines(hunks: Iterable[FileHunk]) -> dict[FileHunk, range]:
    """Returns the numbers, from 1, of each hunk's lines in the new files, to which all `hunks` were applied.

    A hunk that only removes lines has the two lines around them.
    """
    shifts: dict[str, int] = {}
    numbers = {}
    for hunk in sorted(hunks, key=lambda hunk: (hunk.path, hunk.start)):
        first = hunk.start + shifts.get(hunk.path, 0) + 1
        count = len(hunk.lines)
        numbers[hunk] = range(first, first + count) if count else range(first - 1, first + 1)
        shifts[hunk.path] = shifts.get(hunk.path, 0) + count - (hunk.end - hunk.start)
    return numbers


def apply(old: Mapping[str, str], hunks: Iterable[FileHunk]) -> dict[str, str | None]:
    """Returns the files that `hunks` change: path -> new text, None for a removed file."""
    by_path: dict[str, list[FileHunk]] = {}
    for hunk in hunks:
        by_path.setdefault(hunk.path, []).append(hunk)
    changed: dict[str, str | None] = {}
    for path, of_path in by_path.items():
        if of_path[0].kind == "removed":
            changed[path] = None
            continue
        lines = split_lines(old.get(path, ""))
        for hunk in sorted(of_path, key=lambda hunk: hunk.start, reverse=True):
            lines[hunk.start : hunk.end] = hunk.lines
        changed[path] = "".join(lines)
    return changed
