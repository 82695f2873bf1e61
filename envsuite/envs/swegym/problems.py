"""What the environment plays: a repository with something wrong, words about it, and a judge.

`GeneratedProblem` is a package of ours with bugs planted in it; `envsuite.envs.swegym.published` holds the records of
SWE-Gym and SWE-bench.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path

from envsuite.cache import cache_dir
from envsuite.envs.swegym import packages, sabotage, statement, suite, tampering
from envsuite.envs.swegym.grading import Report, grade, refused
from envsuite.envs.swegym.tasks import Generated
from envsuite.errors import DataError, MissingExtra
from envsuite.sandbox import leftovers
from envsuite.sandbox.packages import closure, interpreter, interpreter_root
from envsuite.sandbox.pool import Lease, Pool
from envsuite.sandbox.protocol import Limits, Spec

Changes = Mapping[str, bytes | None]
"""a submission: path -> new content, None where the file was removed"""


GIT = (("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null"))
"""Landlock refuses /etc/gitconfig, and git ends where it may not read it"""


class Problem(ABC):
    """One instance, whatever it comes from."""

    instance_id: str
    kind: str
    """task type: the operators of a generated task, the repository of a published one"""
    statement: str
    gold_files: tuple[str, ...]

    @abstractmethod
    def spec(self, limits: Limits) -> Spec:
        """What the agent's sandbox holds beside the repository."""

    def variables(self) -> dict[str, str]:
        """Environment of the agent's commands; `{testbed}` stands for where the repository is seen."""
        return {}

    @abstractmethod
    def tree(self) -> dict[str, bytes]:
        """The repository as the agent gets it."""

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """The repository as a folder of this machine."""
        with leftovers.passing("swegym") as name:
            for path, content in self.tree().items():
                file = Path(name, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            yield Path(name)

    @abstractmethod
    def gold(self) -> dict[str, bytes | None]:
        """The changes that mend it: path -> content."""

    @abstractmethod
    def judge(self, changes: Changes, seconds: float) -> Report:
        """Grades a submission in a fresh sandbox."""

    @abstractmethod
    def visible(self, changes: Changes, tests: tuple[str, ...], seconds: float) -> str:
        """A summary of the tests that the agent may see, run in a fresh sandbox. Raises DataError where none is named so."""

    def close(self) -> None:  # noqa: B027  most hold nothing
        """Gives back what was borrowed for judging."""


class GeneratedProblem(Problem):
    """A package with planted bugs, judged by a warm pytest that is forked for every run."""

    def __init__(self, task: Generated, detail: str, hidden: bool, driver: str) -> None:
        self.task, self.hidden, self.driver = task, hidden, driver
        self.package = task.package
        self.instance_id = task.instance_id
        self.kind = "+".join(sorted({bug.operator for bug in task.bugs}))
        self.gold_files = task.paths
        self.statement = statement.write(task, detail, visible=not hidden)
        self._lease: Lease | None = None

    def spec(self, limits: Limits) -> Spec:
        site = pytest_site(self.package.needs)
        path = f"{site / 'bin'}:{interpreter_root()}/bin:/usr/local/bin:/usr/bin:/bin"
        return Spec(
            workspace="/testbed",
            fresh=False,
            read_only=((site, str(site)),),
            environment=(("PATH", path), ("PYTEST_ADDOPTS", "-p no:cacheprovider"), *GIT),
            limits=limits,
        )

    def variables(self) -> dict[str, str]:
        roots = dict.fromkeys([f"{{testbed}}/{self.package.path}".removesuffix("/."), "{testbed}"])
        return {"PYTHONPATH": ":".join([*roots, str(pytest_site(self.package.needs))])}

    @cached_property
    def _seen(self) -> dict[str, str]:
        files = dict(self.task.files)
        if self.hidden:
            for path in {test.partition("::")[0] for test in self.task.fail_to_pass}:
                text = tampering.without(files[path], self._of(path))
                files.pop(path) if text is None else files.update({path: text})
        return files

    def tree(self) -> dict[str, bytes]:
        return {path: text.encode() for path, text in self._seen.items()}

    def gold(self) -> dict[str, bytes | None]:
        sound = packages.tree(self.package)
        return {path: sound[path].encode() for path in self.gold_files}

    def judge(self, changes: Changes, seconds: float) -> Report:
        fail, keep = self.task.fail_to_pass, self.task.pass_to_pass
        if not changes:
            return refused("no_patch", fail, keep)
        files = self._with(changes)
        if files == self.task.files:
            return refused("nothing_admitted", fail, keep)
        if tampering.reaches(self.task.files, files):
            return refused("reaches_for_the_judge", fail, keep)
        run = suite.run(self._pool(), self.package, files, seconds=seconds)
        if run.fate != "exited":
            return refused(run.fate, fail, keep)
        if "TAMPERED" in run.statuses.values():
            return refused("tampered", fail, keep)
        # Neither skipped nor failed as expected: every one of these tests passed on the published package.
        statuses = {test: status for test, status in run.statuses.items() if status not in ("XFAIL", "SKIPPED")}
        failed = {"FAILED", "ERROR"} & set(run.statuses.values()) or run.uncollected
        if bool(failed) != (run.exit_code != 0):
            return refused("exit_code", fail, keep)
        report = grade(statuses, fail, keep)
        if report.fail_to_pass and not self._can_fail(files, (*report.fail_to_pass, *report.pass_to_pass), seconds):
            return refused("tampered", fail, keep)
        return report

    def _can_fail(self, files: dict[str, str], passed: tuple[str, ...], seconds: float) -> bool:
        """Whether the tests that passed fail where they must. See `sabotage`."""
        files, expected, dice = dict(files), set(), random.SystemRandom()
        for path in {test.partition("::")[0] for test in passed}:
            made = sabotage.in_python(files[path], self._of(path, passed), path, "pytest", dice)
            files[path] = made.text
            expected |= made.expected
        run = suite.run(self._pool(), self.package, files, sorted(expected), seconds)
        return run.fate == "exited" and all(run.statuses.get(test) == "FAILED" for test in expected)

    def visible(self, changes: Changes, tests: tuple[str, ...], seconds: float) -> str:
        files = {**self._seen, **{path: text for path, text in self._admitted(changes).items() if text is not None}}
        only = None if not tests else [test for test in self._tests() if test.startswith(tests)]
        if only == []:
            raise DataError("There is no test of that name.")
        run = suite.run(self._pool(), self.package, files, only, seconds, explain=True)
        return summary(run)

    def _tests(self) -> tuple[str, ...]:
        return self.task.pass_to_pass if self.hidden else (*self.task.fail_to_pass, *self.task.pass_to_pass)

    def _of(self, path: str, tests: tuple[str, ...] | None = None) -> list[str]:
        return [test for test in tests or self.task.fail_to_pass if test.partition("::")[0] == path]

    def _admitted(self, changes: Changes) -> dict[str, str | None]:
        """The changes to the package's own code, as text. Everything else is the published archive's."""
        found: dict[str, str | None] = {}
        for path, content in changes.items():
            if packages.is_code(self.package, path) and not tampering.meddles(path):
                try:
                    found[path] = None if content is None else content.decode()
                except UnicodeDecodeError:
                    continue
        return found

    def _with(self, changes: Changes) -> dict[str, str]:
        files: dict[str, str | None] = {**self.task.files, **self._admitted(changes)}
        return {path: text for path, text in files.items() if text is not None}

    def _pool(self) -> Pool:
        if self._lease is None:
            self._lease = Lease(suite.spec(self.package.needs), self.driver)
        return self._lease.pool

    def close(self) -> None:
        if self._lease is not None:
            self._lease.close()
            self._lease = None


def summary(run: suite.Run) -> str:
    """A test run in a few lines."""
    if run.fate != "exited":
        return f"The tests did not get through ({run.fate})."
    counts: dict[str, int] = {}
    for status in run.statuses.values():
        counts[status] = counts.get(status, 0) + 1
    said = ", ".join(f"{count} {status.lower()}" for status, count in sorted(counts.items())) or "no test was run"
    lines = [f"{said}."]
    failing = {**run.uncollected, **run.failures}
    for test, text in list(failing.items())[:10]:
        why = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
        lines.append(f"FAILED {test}" + (f": {why[0][:200]}" if why else ""))
    if len(failing) > 10:
        lines.append(f"... and {len(failing) - 10} more")
    return "\n".join(lines)


@cache
def pytest_site(needs: tuple[str, ...] = ()) -> Path:
    """A folder of the cache that holds pytest and `needs`, and `python` and `pytest` to call: what agents' shells see.

    Copies, not links, so that a driver can show the folder at its own path and nothing beside it. Raises MissingExtra.
    """
    name = "-".join(f"{one}-{version_of(one)}" for one in ("pytest", *needs)) + f"-{sys.implementation.cache_tag}"
    target = cache_dir("swegym") / name
    if target.is_dir():
        return target
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder, "site")
        (made / "bin").mkdir(parents=True)
        for entry, source in closure(("pytest", *needs)).items():
            if source.is_dir():
                shutil.copytree(source, made / entry, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(source, made / entry)
        for word in ("python", "python3"):
            (made / "bin" / word).symlink_to(interpreter())
        script = made / "bin" / "pytest"
        script.write_text('#!/bin/sh\nexec python -m pytest "$@"\n')
        script.chmod(0o755)
        for path in (Path(folder), made, *made.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path == script else 0o644)
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():  # another process was not first either
                raise
    return target


def version_of(name: str) -> str:
    try:
        return version(name)
    except ModuleNotFoundError:
        wanted = "'envsuite[swegym]'" if name == "pytest" else name
        raise MissingExtra(
            f"SWE-Gym needs the package {name!r}, which is not installed: pip install {wanted}"
        ) from None
