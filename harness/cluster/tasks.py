"""Parallel map over a Ray cluster: applies a function to many items and returns results in the
items' order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from envsuite.errors import EnvsuiteError, MissingExtra, UsageError
from harness.cluster import connect

Item = TypeVar("Item")
Answer = TypeVar("Answer")

TRIES = 3
"""Number of attempts for a task that loses its worker or node."""
SHARE = 8
"""Largest number of items per task: a compromise between overhead and work lost with a node."""
AHEAD = 4
"""Submitted tasks per running task; finished tasks wait for earlier ones, because results keep
their order.
"""


def _run(function: Callable[[Any], Any], items: Any) -> tuple[dict[str, str], Any]:
    """Runs in a task. Returns EnvsuiteError and missing packages as values, because Ray would wrap
    exceptions.
    """
    try:
        return connect.versions(), function(items)
    except EnvsuiteError as error:
        return connect.versions(), error
    except ModuleNotFoundError as error:
        return connect.versions(), MissingExtra(f"On a node: {error}: install envsuite and its extras on every node.")


def spread(
    ray: Any, function: Callable[[Sequence[Item]], list[Answer]], items: Sequence[Item], workers: int = 0
) -> Iterator[Answer]:
    """Applies `function` to chunks of `items` in at most `workers` tasks of one CPU each (0: all
    CPUs).

    Submits at most `AHEAD` tasks per running task to limit waiting results. Ray repeats a task that
    loses its worker or node, up to `TRIES` attempts. Raises the EnvsuiteError that `function`
    raises, and UsageError if nodes have another version, no CPU, or keep dying.
    """
    connect.check_room(ray, 1, {"CPU": 1.0}, "tasks")
    workers = workers if workers > 0 else max(1, int(ray.cluster_resources().get("CPU", 1)))
    size = min(SHARE, -(-len(items) // (2 * workers)) or 1)
    task = ray.remote(num_cpus=1, max_retries=TRIES - 1)(_run)
    chunks = (items[first : first + size] for first in range(0, len(items), size))
    submitted: deque[Any] = deque()
    chunk = next(chunks, None)
    try:
        while submitted or chunk is not None:
            running = ray.wait(list(submitted), num_returns=len(submitted), timeout=0)[1] if submitted else []
            if chunk is not None and len(running) < workers and len(submitted) < AHEAD * workers:
                submitted.append(task.remote(function, chunk))
                chunk = next(chunks, None)
            elif submitted[0] in running:
                ray.wait(running, num_returns=1)
            else:
                yield from _results(ray, submitted.popleft())
    finally:
        for ref in submitted:
            ray.cancel(ref, force=True)


def _results(ray: Any, ref: Any) -> list[Any]:
    try:
        versions, results = ray.get(ref)
    except ray.exceptions.RayError as error:
        raise UsageError(
            f"A task died {TRIES} times, or failed: {connect.last_line(error)}: see `ray status` and Ray's logs on "
            "its node. Finished work is kept: the same command continues."
        ) from None
    connect.check_versions(versions, "of a task")
    if isinstance(results, EnvsuiteError):
        raise results
    chunk: list[Any] = results
    return chunk
