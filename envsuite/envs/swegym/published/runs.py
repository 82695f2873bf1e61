"""Test runs of a published record in a sandbox: its repository, its held-out tests, its command."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from envsuite.envs.swegym.judge import sabotage
from envsuite.envs.swegym.judge.grading import status_of
from envsuite.envs.swegym.problems import GIT, Changes, RepairProblem
from envsuite.envs.swegym.published import records, sealing, setups
from envsuite.envs.swegym.published.logs import PARSERS
from envsuite.envs.swegym.published.repos import END, START, directives, image_name, row_of, test_command, test_files
from envsuite.envs.swegym.workspace import read_tree
from envsuite.errors import DataError
from envsuite.sandbox import drivers, leftovers
from envsuite.sandbox.protocol import Fate, Limits, Session, Spec

JUDGING = Limits(memory_mb=4096, disk_mb=2048, processes=256, files=1024, output_kb=32_000, flood_mb=64)
_PRIVATE = ("bwrap", "docker")
"""drivers whose /dev/shm belongs to the sandbox alone"""
_APPLY = ("git apply --verbose -", "git apply --verbose --reject -", "patch --batch --forward --fuzz=5 -p1")


class RecordedProblem(RepairProblem):
    """A record with its place, and runs of its tests; `problem.PublishedProblem` adds the judge."""

    def __init__(self, record: records.Record, setup: dict[str, Any] | None, driver: str) -> None:
        self.record, self.setup, self.driver = record, setup or {}, driver
        self.row = row_of(record, self.setup)
        self.instance_id, self.kind = record.instance_id, record.repo
        self.statement = record.problem_statement
        self.gold_files = tuple(test_files(record.patch))
        self.installation = setups.of_setup(setup) if setup else setups.of_image(image_name(record))
        self.source = self.installation.source
        self.sealed = self.row.parser not in ("django", "sympy")
        """the tests run with the plugin that detects changes to pytest; `preflight` unsets it where gold fails then"""
        self.forked = True
        """the sabotaged tests run in forks of the same pytest; `preflight` unsets it where gold fails then"""
        self.plain: dict[str, str] | None = None
        """PASS_TO_PASS tests that do not pass before the change, and their statuses, once they are known"""
        self.failures: dict[str, sabotage.Failure] = {}
        """how FAIL_TO_PASS failed before the change, as far as `preflight` saw it"""

    # ---- the agent's repository ------------------------------------------------------------------------------------

    def variables(self) -> dict[str, str]:
        return {key: str(value).format(testbed="{testbed}") for key, value in self.setup.get("env", {}).items()}

    def spec(self, limits: Limits) -> Spec:
        dummies = (("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "x"))
        return Spec(
            workspace="/testbed",
            fresh=False,
            read_only=self.installation.read_only,
            image=self.installation.image,
            environment=(*self.installation.environment, *dummies, *GIT),
            limits=limits,
        )

    @cached_property
    def _files(self) -> dict[str, bytes]:
        return read_tree(self.source)

    def tree(self) -> dict[str, bytes]:
        return self._files

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        yield self.source

    def gold(self) -> dict[str, bytes | None]:
        return changes_of(self.record.patch, self.source)

    # ---- runs of its tests ------------------------------------------------------------------------------------------

    def passed_otherwise(self, log: str) -> dict[str, str]:
        """Returns the PASS_TO_PASS tests that a log reports as anything but passed, with their statuses."""
        statuses = PARSERS[self.row.parser](log)
        reported = {test: status_of(test, statuses) for test in self.record.pass_to_pass}
        return {test: status for test, status in reported.items() if status not in ("PASSED", "")}

    @cached_property
    def held_out_files(self) -> dict[str, bytes | None]:
        """The files of the test patch, after it; empty if it applies only with tolerance."""
        try:
            return changes_of(self.record.test_patch, self.source)
        except DataError:
            return {}

    @contextlib.contextmanager
    def bench(self, seconds: float) -> Iterator[Session]:
        """Opens a sandbox with the repository as published; `reset` restores it."""
        with drivers.open(self.spec(replace(JUDGING, seconds=seconds)), self.driver) as session:
            session.copy_in(self.source)
            session.snapshot()
            yield session

    def log_of(self, changes: Changes, seconds: float) -> tuple[str, str]:
        """Returns log and fault of the tests with `changes`, in a fresh sandbox."""
        with self.bench(seconds) as session:
            log, _, fault = self.run_tests(session, changes)
        return log, fault

    def run_tests(
        self,
        session: Session,
        changes: Changes,
        held_out: bool = True,
        over: Changes | None = None,
        only: Iterable[str] | None = None,
        phases: sealing.Phases | None = None,
    ) -> tuple[str, int, str]:
        """Returns log, exit code and fault ('' if there is none) of the tests in a fresh sandbox.

        `changes` and, with `held_out`, the held-out tests are applied first; then `over` overwrites
        both. `only`: ids of the tests that count; where pytest runs them, the others are left out.
        `phases`: see `checks.split` for their logs.
        """
        if not self.apply(session, changes, held_out):
            return "", 1, "not_applied"
        if over:
            write_changes(session, over)
        command = self.command()
        script = f"exec 2>&1; {command[0]} echo '{START}'; {command[1]}; status=$?; echo; echo '{END}'; exit $status"
        variables = {key: value.format(testbed=session.workspace) for key, value in self.variables().items()}
        if self.sealed and held_out:
            script = sealing.sealed(script, only, random.SystemRandom(), phases is not None)
        content = b""
        if phases is not None:
            shared_memory = ["/dev/shm"] if self.driver in _PRIVATE else []
            content = phases.content(session.workspace, [session.workspace, *shared_memory])
        done = session.run(script, stdin=content, environment=variables)
        if done.fate is not Fate.EXITED:
            return "", 1, str(done.fate)
        if done.cut:
            return "", 1, "output"
        return done.stdout.decode(errors="replace"), done.exit_code, ""

    def command(self) -> tuple[str, str]:
        """Returns a shell command to run first, and the command that runs the tests."""
        if "test_cmd" in self.setup:
            named = self.setup.get("directives") or " ".join(directives(self.record))
            return "", f"{self.setup['test_cmd']} {named}"
        row = self.row
        return (f"{row.before};" if row.before else ""), test_command(self.record, row)

    def apply(self, session: Session, changes: Changes, held_out: bool) -> bool:
        """Writes `changes` and applies the test patch with the first command that works, as the data
        sets' own harness does.

        Each command starts from a workspace that the earlier ones have not touched.
        """
        write_changes(session, changes)
        if not held_out or not self.record.test_patch:
            return True
        for number, command in enumerate(_APPLY):
            if number:
                session.reset()
                write_changes(session, changes)
            if session.run(command, stdin=self.record.test_patch.encode(), limits=JUDGING).exit_code == 0:
                return True
        return False


def write_changes(session: Session, changes: Changes) -> None:
    """Writes and removes files of a workspace."""
    with leftovers.passing("swegym") as folder:
        for path, content in changes.items():
            if content is not None:
                file = Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
        if any(content is not None for content in changes.values()):
            session.copy_in(Path(folder))
    removed = [path for path, content in changes.items() if content is None]
    if removed:
        session.run(["rm", "-f", "--", *removed])


def changes_of(patch: str, source: Path) -> dict[str, bytes | None]:
    """Returns the result of a patch for the files it names: path -> content. Raises DataError if it
    does not apply.

    Use it only for patches of a data set: untrusted patches are applied in a sandbox.
    """
    with leftovers.passing("swegym") as name:
        folder = Path(name)
        for path in test_files(patch):
            if ".." in path.split("/") or path.startswith("/"):
                raise DataError(f"A patch names the file {path!r}, which is not in the repository.")
            if (source / path).is_file() and not (source / path).is_symlink():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / path, folder / path)
        done = subprocess.run(
            ["git", "apply", "-"], cwd=folder, input=patch.encode(), capture_output=True,
            env={"PATH": os.environ.get("PATH", ""), "GIT_CEILING_DIRECTORIES": str(folder.parent)},
        )  # fmt: skip
        if done.returncode:
            raise DataError(
                f"A patch does not apply to {source}: {done.stderr.decode(errors='replace').strip()[-200:]}"
            )
        patched = read_tree(folder)
        return {path: patched.get(path) for path in test_files(patch)}
