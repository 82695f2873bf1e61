"""The shipped list of larger tasks (`larger_tasks`), and their kinds."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from envsuite.envs.swegym.generated import packages, tasks
from envsuite.envs.swegym.generated.tasks import GeneratedTask, Planted

MANIFEST = Path(__file__).with_name("manifest.jsonl.gz")
KINDS = ("compound", "branch", "refactoring", "feature")


def kind_of(bugs: Iterable[Planted]) -> str:
    """Returns the kind of a larger task, by the operators of its bugs."""
    bugs = tuple(bugs)
    if len(bugs) > 1:
        return "compound"
    operator = bugs[0].operator
    if operator in ("missing_body", "missing_function"):
        return "feature"
    return "branch" if operator.startswith("lost_") else "refactoring"


@cache
def larger_tasks(path: Path = MANIFEST) -> dict[str, GeneratedTask]:
    """Returns the tasks of a list by id. Raises DataError naming the line."""
    return {task.instance_id: task for task in tasks.read_list(path, packages.PACKAGES)}
