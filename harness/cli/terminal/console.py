"""Output of all commands: `console` for tables and progress, and `accept_any_text` for ASCII locales."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table

from envsuite.escaping import in_ascii, terminal

LOG_WIDTH = 160
"""columns of output to a file or pipe, wide enough that lines in logs are not folded"""

TEXT_WIDTH = 10


class SafeConsole(Console):
    """A console that escapes control characters in all text, so that no name or message can control the terminal.

    A table whose numbers do not fit into the console's width is printed as a list, one row after the other.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, Table) and _needed_width(renderable) > (options or self.options).max_width:
            renderable = as_list(renderable)
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(terminal(segment.text), segment.style)


def console(stderr: bool = False) -> Console:
    """Returns the console for tables and progress, as wide as the terminal or `COLUMNS`, else `LOG_WIDTH`.

    Markup and emoji codes in names are printed as they are.
    """
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else LOG_WIDTH
    return SafeConsole(stderr=stderr, width=width, markup=False, emoji=False)


def new_table(title: str, text: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    """Returns a table without rows: columns of text, then columns of numbers, which are aligned to the right."""
    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD)
    for head in text:
        table.add_column(head, overflow="fold")
    for head in numbers:
        table.add_column(head, justify="right")
    return table


def print_safely(text: object, file: TextIO | None = None) -> None:
    """Prints text with its control characters escaped."""
    print(terminal(text), file=file or sys.stdout)


def accept_any_text() -> None:
    """Makes stdout and stderr spell characters that their encoding lacks, as with an ASCII locale."""
    codecs.register_error("envsuite.ascii", _spell)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="envsuite.ascii")


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return in_ascii(error.object[error.start : error.end]), error.end


def as_list(table: Table) -> RenderableType:
    """Returns a table as a list: each row's first cell, and below it the other cells with their column's head."""
    heads = [column.header for column in table.columns]
    parts: list[RenderableType] = [table.title] if table.title else []
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        row = Table.grid(padding=(0, 2))
        for head, cell in zip(heads[1:], cells[1:], strict=True):
            row.add_row(f"  {head}", cell)
        parts += [cells[0], row]
    if table.caption:
        parts.append(table.caption)
    return Group(*parts, "")


def _needed_width(table: Table) -> int:
    """Returns the columns of the terminal that a table needs so that no name or number is folded.

    Names are in the first column and numbers are aligned to the right. Other columns hold text, which may be folded
    to `TEXT_WIDTH`. A table without columns or heads, such as a list or a progress bar, needs none.
    """
    if len(table.columns) < 2 or not table.show_header:
        return 0
    width = 2
    for place, column in enumerate(table.columns):
        longest = max((cell_len(cell) for cell in column.cells if isinstance(cell, str)), default=0)
        if place > 0 and column.justify != "right":
            longest = min(longest, TEXT_WIDTH)
        width += max(longest, *(cell_len(word) for word in str(column.header).split()), 1) + 3
    return width
