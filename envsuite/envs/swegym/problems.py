"""Problems of SWE-Gym: a broken repository, a problem statement, and a judge.

`planted.problem` has packages with planted bugs, `published.problem` records of SWE-Gym and SWE-bench.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path

from envsuite.envs.swegym.judge.grading import Report
from envsuite.sandbox import leftovers
from envsuite.sandbox.protocol import Limits, Spec

Changes = Mapping[str, bytes | None]
"""a submission: path -> new content, None where the file was removed"""

GIT = (("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null"))
"""Landlock refuses /etc/gitconfig, and git fails if it cannot read it"""


class RepairProblem(ABC):
    """One instance, generated or published."""

    instance_id: str
    kind: str
    """task type: the operators of a planted task, the repository of a published one"""
    statement: str
    gold_files: tuple[str, ...]
    test_log: tuple[str, int | None] = ("", None)
    """output and exit code of the tests that `judge` ran last, if their output decides"""

    @abstractmethod
    def spec(self, limits: Limits) -> Spec:
        """Returns the agent's sandbox, without the repository."""

    def variables(self) -> dict[str, str]:
        """Returns environment variables of the agent's commands; `{testbed}` stands for the
        repository's path inside.
        """
        return {}

    @abstractmethod
    def tree(self) -> dict[str, bytes]:
        """Returns the repository as the agent gets it."""

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """Yields the repository as a folder on this machine."""
        with leftovers.passing("swegym") as name:
            for path, content in self.tree().items():
                file = Path(name, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            yield Path(name)

    @abstractmethod
    def gold(self) -> dict[str, bytes | None]:
        """Returns the changes that fix it: path -> content."""

    @abstractmethod
    def judge(self, changes: Changes, seconds: float) -> Report:
        """Grades a submission in a fresh sandbox."""

    @abstractmethod
    def visible(self, changes: Changes, tests: tuple[str, ...], seconds: float) -> str:
        """Runs the tests that the agent may see in a fresh sandbox and summarises them.

        Raises DataError for unknown names.
        """

    def close(self) -> None:  # noqa: B027  most have nothing to release
        """Releases the resources used for judging."""
