"""Check that resets leak neither memory nor processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from envsuite.checks.demand import demand
from envsuite.core import TextEnv

LEAK_RESETS, LEAK_SECONDS, LEAK_BYTES = 200, 60.0, 48 * 2**20


def resets(build: Callable[..., TextEnv], seeds: list[int], seconds: float) -> str:
    """Compares memory and process count of the whole process tree after the first tenth of the resets
    and at the end.
    """
    env = build()
    began, count, base = time.monotonic(), 0, 0
    warm = max(5, LEAK_RESETS // 10)
    before = len(list(_tree(os.getpid())))
    try:
        while count < LEAK_RESETS and (time.monotonic() - began < seconds or count <= warm):
            seed = seeds[count % len(seeds)]
            env.reset(seed=seed)
            env.step(env.random_command(np.random.default_rng([seed, 0])))
            count += 1
            if count == warm:
                base = _memory()
        grown = _memory() - base
        demand(grown < LEAK_BYTES, f"{grown / 2**20:.0f} MB more after {count} resets")
    finally:
        env.close()
    time.sleep(0.1)
    after = len(list(_tree(os.getpid())))
    demand(after <= before, f"{after - before} processes left behind")
    return f"{count} resets, {grown / 2**20:+.1f} MB"


def _tree(root: int) -> Iterator[int]:
    """Yields the process and all its descendants, from /proc; only the process itself without /proc."""
    yield root
    children = Path(f"/proc/{root}/task/{root}/children")
    with suppress(OSError):
        for child in children.read_text().split():
            yield from _tree(int(child))


def _memory() -> int:
    """Returns the resident memory of this process and its descendants [bytes]."""
    pages = 0
    for pid in _tree(os.getpid()):
        with suppress(OSError, IndexError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
