"""A counter of finished episodes on a terminal, in one line that the next one replaces."""

from __future__ import annotations

import sys
from collections.abc import Callable


def counter(title: str, total: int, things: str = "episodes") -> Callable[[int], None]:
    """Returns a function that shows how many of `total` things are done, from 0 on; nothing without a terminal.

    The line is removed after the last one.
    """

    def show(done: int) -> None:
        if sys.stderr.isatty():
            line = f"{title}: {done:,} of {total:,} {things}" if done < total else ""
            print(f"\r\x1b[K{line}\r", end="", file=sys.stderr, flush=True)

    show(0)
    return show
