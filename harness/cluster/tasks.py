"""Work that needs no environment, spread over a cluster: one function, many items, answers in the order of the items."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from envsuite.errors import EnvsuiteError, MissingExtra, UsageError
from harness.cluster import connect

Item = TypeVar("Item")
Answer = TypeVar("Answer")

TRIES = 3
"""so often a task may lose its worker, or its node, before the work is given up"""
SHARE = 8
"""items of a task at most: enough to be worth its start, few enough that little is lost with a node"""
AHEAD = 4
"""tasks handed in for each that runs: those done wait for an earlier one, as answers come in order"""


def _at_work(function: Callable[[Any], Any], items: Any) -> tuple[dict[str, str], Any]:
    """The inside of a task. Errors of ours, and a missing package, are handed over as values: Ray would dress them up."""
    try:
        return connect.versions(), function(items)
    except EnvsuiteError as error:
        return connect.versions(), error
    except ModuleNotFoundError as error:
        return connect.versions(), MissingExtra(f"On a node: {error}: install envsuite and its extras on every node.")


def spread(
    ray: Any, function: Callable[[Sequence[Item]], list[Answer]], items: Sequence[Item], workers: int = 0
) -> Iterator[Answer]:
    """`function` of a few items at a time, in at most `workers` tasks of one processor each (0: on every one there is).

    No more than `AHEAD` times as many tasks are handed in as run, so that answers nobody has taken yet stay few. A task
    that is lost with its worker or node is done again, by Ray, `TRIES` times in all. Raises what `function` raised of
    `EnvsuiteError`, and UsageError where nodes are of another version, have no processor, or keep dying.
    """
    connect.check_room(ray, 1, {"CPU": 1.0}, "tasks")
    workers = workers if workers > 0 else max(1, int(ray.cluster_resources().get("CPU", 1)))
    share = min(SHARE, -(-len(items) // (2 * workers)) or 1)
    task = ray.remote(num_cpus=1, max_retries=TRIES - 1)(_at_work)
    parts = (items[first : first + share] for first in range(0, len(items), share))
    asked: deque[Any] = deque()
    part = next(parts, None)
    try:
        while asked or part is not None:
            running = ray.wait(list(asked), num_returns=len(asked), timeout=0)[1] if asked else []
            if part is not None and len(running) < workers and len(asked) < AHEAD * workers:
                asked.append(task.remote(function, part))
                part = next(parts, None)
            elif asked[0] in running:
                ray.wait(running, num_returns=1)
            else:
                yield from _answers(ray, asked.popleft())
    finally:
        for left in asked:
            ray.cancel(left, force=True)


def _answers(ray: Any, done: Any) -> list[Any]:
    try:
        versions, found = ray.get(done)
    except ray.exceptions.RayError as error:
        raise UsageError(
            f"A task died {TRIES} times, or failed: {connect.last_line(error)}: see `ray status` and Ray's logs on "
            "its node. What is done is kept: the same command goes on."
        ) from None
    connect.check_versions(versions, "of a task")
    if isinstance(found, EnvsuiteError):
        raise found
    answers: list[Any] = found
    return answers
