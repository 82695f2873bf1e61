"""Packages with planted bugs, judged by a warm pytest that is forked for every run."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path

from envsuite.cache import cache_dir
from envsuite.envs.swegym.judge import phases, sabotage, suite, tampering
from envsuite.envs.swegym.judge.grading import Report, grade, refused
from envsuite.envs.swegym.judge.suite import SuiteJob
from envsuite.envs.swegym.planted import issues, packages
from envsuite.envs.swegym.planted.tasks import PlantedTask
from envsuite.envs.swegym.problems import GIT, Changes, RepairProblem
from envsuite.errors import DataError, MissingExtra
from envsuite.sandbox.packages import closure, interpreter, interpreter_root
from envsuite.sandbox.pool import Lease, Pool
from envsuite.sandbox.protocol import Limits, Spec


class PlantedProblem(RepairProblem):
    """A package with planted bugs, judged by a warm pytest that is forked for every run."""

    def __init__(self, task: PlantedTask, detail: str, hidden: bool, driver: str) -> None:
        """`detail` is the issue's level of detail; with `hidden` the failing tests are not in the agent's copy."""
        self.task, self.hidden, self.driver = task, hidden, driver
        self.package = task.package
        self.instance_id = task.instance_id
        self.kind = "+".join(sorted({bug.operator for bug in task.bugs}))
        self.gold_files = task.paths
        self.statement = issues.write(task, detail, not hidden)
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
    def _agent_files(self) -> dict[str, str]:
        files = dict(self.task.files)
        if self.hidden:
            for path in {test.partition("::")[0] for test in self.task.fail_to_pass}:
                text = tampering.without(files[path], self._of(path))
                files.pop(path) if text is None else files.update({path: text})
        return files

    def tree(self) -> dict[str, bytes]:
        return {path: text.encode() for path, text in self._agent_files.items()}

    def gold(self) -> dict[str, bytes | None]:
        sound = packages.tree(self.package)
        return {path: sound[path].encode() for path in self.gold_files}

    def judge(self, changes: Changes, seconds: float) -> Report:
        fail, passing = self.task.fail_to_pass, self.task.pass_to_pass
        if not changes:
            return refused("no_patch", fail, passing)
        files = self._with(changes)
        if files == self.task.files:
            return refused("nothing_admitted", fail, passing)
        if tampering.reaches(self.task.files, files):
            return refused("reaches_for_the_judge", fail, passing)
        plan = phases.make(fail, passing, files.get, random.SystemRandom())
        run = suite.run(self._pool(), SuiteJob(self.package, files, seconds=seconds, plan=plan))
        if run.fate != "exited":
            return refused(run.fate, fail, passing)
        if "TAMPERED" in run.statuses.values():
            return refused("tampered", fail, passing)
        # Every one of these tests passed on the published package, so skipped and expected failures
        # do not count.
        statuses = {test: status for test, status in run.statuses.items() if status not in ("XFAIL", "SKIPPED")}
        failed = {"FAILED", "ERROR"} & set(run.statuses.values()) or run.uncollected
        if bool(failed) != (run.exit_code != 0):
            return refused("exit_code", fail, passing)
        report = grade(statuses, fail, passing)
        if not report.fail_to_pass or (plan is not None and phases.confirms(plan, report, statuses, run.later)):
            return report
        return report if self._can_fail(files, report, seconds) else refused("tampered", fail, passing)

    def _can_fail(self, files: dict[str, str], report: Report, seconds: float) -> bool:
        """Returns True if a sample of the tests that passed fails when sabotaged. See `sabotage`."""
        files, expected, rng = dict(files), set(), random.SystemRandom()
        passed = tuple(sabotage.sample(report.fail_to_pass, report.pass_to_pass, rng))
        for path in {test.partition("::")[0] for test in passed}:
            sabotaged = sabotage.in_python(files[path], self._of(path, passed), path, "pytest", rng)
            files[path] = sabotaged.text
            expected |= sabotaged.expected
        run = suite.run(self._pool(), SuiteJob(self.package, files, sorted(expected), seconds))
        return run.fate == "exited" and all(run.statuses.get(test) == "FAILED" for test in expected)

    def visible(self, changes: Changes, tests: tuple[str, ...], seconds: float) -> str:
        files = {
            **self._agent_files,
            **{path: text for path, text in self._admitted(changes).items() if text is not None},
        }
        only = None if not tests else [test for test in self._tests() if test.startswith(tests)]
        if only == []:
            raise DataError("There is no test of that name.")
        run = suite.run(self._pool(), SuiteJob(self.package, files, only, seconds, "short"))
        return summary(run)

    def _tests(self) -> tuple[str, ...]:
        return self.task.pass_to_pass if self.hidden else (*self.task.fail_to_pass, *self.task.pass_to_pass)

    def _of(self, path: str, tests: tuple[str, ...] | None = None) -> list[str]:
        return [test for test in tests or self.task.fail_to_pass if test.partition("::")[0] == path]

    def _admitted(self, changes: Changes) -> dict[str, str | None]:
        """Returns the changes to the package's own code, as text.

        All other files come from the published archive.
        """
        admitted: dict[str, str | None] = {}
        for path, content in changes.items():
            if packages.is_code(self.package, path) and not tampering.meddles(path):
                try:
                    admitted[path] = None if content is None else content.decode()
                except UnicodeDecodeError:
                    continue
        return admitted

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


def summary(run: suite.SuiteRun) -> str:
    """Summarises a test run in a few lines."""
    if run.fate != "exited":
        return f"The tests did not get through ({run.fate})."
    counts: dict[str, int] = {}
    for status in run.statuses.values():
        counts[status] = counts.get(status, 0) + 1
    counted = ", ".join(f"{count} {status.lower()}" for status, count in sorted(counts.items())) or "no test was run"
    lines = [f"{counted}."]
    failing = {**run.uncollected, **run.failures}
    for test, text in list(failing.items())[:10]:
        errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
        lines.append(f"FAILED {test}" + (f": {errors[0][:200]}" if errors else ""))
    if len(failing) > 10:
        lines.append(f"... and {len(failing) - 10} more")
    return "\n".join(lines)


@cache
def pytest_site(needs: tuple[str, ...] = ()) -> Path:
    """Returns a cache folder with pytest, `needs`, and the commands `python` and `pytest`, for agents'
    shells.

    It contains copies, not links, so that a driver can mount the folder at its own path without
    mounting anything else. Raises MissingExtra.
    """
    name = (
        "-".join(f"{distribution}-{version_of(distribution)}" for distribution in ("pytest", *needs))
        + f"-{sys.implementation.cache_tag}"
    )
    target = cache_dir("swegym") / name
    if target.is_dir():
        return target
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        site = Path(folder, "site")
        (site / "bin").mkdir(parents=True)
        for entry, source in closure(("pytest", *needs)).items():
            if source.is_dir():
                shutil.copytree(source, site / entry, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(source, site / entry)
        for word in ("python", "python3"):
            (site / "bin" / word).symlink_to(interpreter())
        script = site / "bin" / "pytest"
        script.write_text('#!/bin/sh\nexec python -m pytest "$@"\n')
        script.chmod(0o755)
        for path in (Path(folder), site, *site.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path == script else 0o644)
        try:
            site.rename(target)
        except OSError:
            if not target.is_dir():  # no other process was faster
                raise
    return target


def version_of(name: str) -> str:
    try:
        return version(name)
    except ModuleNotFoundError:
        requirement = "'envsuite[swegym]'" if name == "pytest" else name
        raise MissingExtra(
            f"SWE-Gym needs the package {name!r}, which is not installed: pip install {requirement}"
        ) from None
