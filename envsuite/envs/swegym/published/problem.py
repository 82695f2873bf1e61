"""Published instances: records of SWE-Gym and SWE-bench, played and judged in a place from `places`.

The agent's copy is a repository with one commit, so its history cannot reveal the fix.
"""

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
from typing import Any, NamedTuple

from envsuite.envs.swegym import sabotage, tampering
from envsuite.envs.swegym.grading import Report, grade_log, refused, status_of
from envsuite.envs.swegym.problems import GIT, Changes, RepairProblem
from envsuite.envs.swegym.published import places, records, sealing
from envsuite.envs.swegym.published.logs import PARSERS
from envsuite.envs.swegym.published.repos import (
    END,
    REPOS,
    START,
    directives,
    image_name,
    row_of,
    test_command,
    test_files,
)
from envsuite.envs.swegym.workspace import read_tree
from envsuite.errors import DataError, did_you_mean
from envsuite.sandbox import drivers, leftovers
from envsuite.sandbox.protocol import Fate, Limits, Session, Spec

JUDGING = Limits(memory_mb=4096, disk_mb=2048, processes=256, files=1024, output_kb=32_000, flood_mb=64)
_APPLY = ("git apply --verbose -", "git apply --verbose --reject -", "patch --batch --forward --fuzz=5 -p1")


def find(source: str, split: str = "") -> dict[str, tuple[records.Record, dict[str, Any] | None]]:
    """Returns records by id, with their recipes, from a records file or a folder with a folder per
    instance.

    `split` applies to data sets on the hub. Raises DataError.
    """
    path = Path(source).expanduser()
    if not path.is_dir():
        return {record.instance_id: (record, _recipe_in(record, source)) for record in records.load(source, split)}
    instances: dict[str, tuple[records.Record, dict[str, Any] | None]] = {}
    for folder in sorted(path.iterdir()):
        file = folder / "instance.json"
        if file.is_file():
            loaded = records.load(file)
            if len(loaded) != 1:
                raise DataError(f"{file} contains {len(loaded)} records: it must contain one.")
            recipe = folder / "replay.json"
            if loaded[0].instance_id in instances:
                raise DataError(f"{file}: instance_id {loaded[0].instance_id!r} occurs twice.")
            instances[loaded[0].instance_id] = (loaded[0], places.read_recipe(recipe) if recipe.is_file() else None)
    if not instances:
        raise DataError(
            f"The folder {source} contains no NAME/instance.json: name a records file or a folder of instances."
        )
    return instances


def _recipe_in(record: records.Record, source: str) -> dict[str, Any] | None:
    """Returns the recipe in a record's own field `recipe`; None without one. Raises DataError."""
    if "recipe" not in record.extra:
        return None
    where = f"of {record.instance_id} in {source}"
    recipe = places.check_recipe(record.extra["recipe"], where)
    places.check_named(recipe, where)
    return recipe


def check(record: records.Record, recipe: dict[str, Any] | None, driver: str, build: bool = False) -> None:
    """Raises DataError with the remedy in one line if a record cannot be played with this driver."""
    if record.repo.lower() not in REPOS and "test_cmd" not in (recipe or {}):
        raise DataError(
            f"{record.instance_id}: how the tests of {record.repo!r} are run is not known. Add `test_cmd` to its "
            f"recipe, or leave it out with --set deny={record.instance_id}; known are the repositories of SWE-Gym "
            "and SWE-bench."
        )
    parser = (recipe or {}).get("parser", "pytest")
    if parser not in PARSERS:
        raise DataError(
            f"{record.instance_id}: its recipe's log parser {parser!r} is none of {', '.join(PARSERS)}."
            f"{did_you_mean(parser, PARSERS)}"
        )
    if driver != "docker" and (build or recipe is None):
        raise DataError(
            f"{record.instance_id} {'is to be built into an image' if build else 'has no recipe'}, and its image "
            f"({image_name(record)}) is played with --set sandbox=docker alone; other drivers need a folder with "
            "NAME/instance.json and NAME/replay.json."
        )


class _Sabotaged(NamedTuple):
    files: dict[str, bytes | None]
    expected: set[str]
    covered: set[str]


class PublishedProblem(RepairProblem):
    """A record, played and judged with its recipe by any driver, or in its image by docker."""

    def __init__(self, record: records.Record, recipe: dict[str, Any] | None, driver: str, build: bool = False) -> None:
        """`build` turns a recipe into an image.

        Raises DataError if there is neither a recipe nor docker.
        """
        check(record, recipe, driver, build)
        self.record, self.recipe, self.driver = record, recipe or {}, driver
        self.row = row_of(record, self.recipe)
        self.instance_id, self.kind = record.instance_id, record.repo
        self.statement = record.problem_statement
        self.gold_files = tuple(test_files(record.patch))
        self.place = places.of_recipe(recipe, build) if recipe else places.of_image(image_name(record))
        self.source = self.place.source
        self.sealed = self.row.parser not in ("django", "sympy")
        """the tests run with the plugin that detects changes to pytest; `preflight` unsets it where gold fails then"""
        self.failures: dict[str, sabotage.Failure] = {}
        """how FAIL_TO_PASS failed before the change, as far as `preflight` saw it"""

    # ---- the agent's repository ------------------------------------------------------------------------------------

    def variables(self) -> dict[str, str]:
        return {key: str(value).format(testbed="{testbed}") for key, value in self.recipe.get("env", {}).items()}

    def spec(self, limits: Limits) -> Spec:
        dummies = (("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "x"))
        return Spec(
            workspace="/testbed",
            fresh=False,
            read_only=self.place.read_only,
            image=self.place.image,
            environment=(*self.place.environment, *dummies, *GIT),
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

    # ---- the judge -------------------------------------------------------------------------------------------------

    def judge(self, changes: Changes, seconds: float) -> Report:
        record = self.record
        fail, passing = record.fail_to_pass, record.pass_to_pass
        self.test_log = "", None
        if not changes:
            return refused("no_patch", fail, passing)
        admitted = tampering.admitted(changes, self.gold_files, test_files(record.test_patch))
        if not admitted:
            return refused("nothing_admitted", fail, passing)
        if tampering.expects_failure(self._files, admitted):
            return refused("expects_failure", fail, passing)
        parser = self.row.parser
        with self._bench(seconds) as session:
            log, exit_code, fault = self.run_tests(session, admitted)
            if fault:
                return refused(fault, fail, passing)
            self.test_log = log, exit_code
            report = grade_log(log, parser, fail, passing, exit_code)
            if not report.fail_to_pass:
                return report
            before = PARSERS[parser](log)
            passed = [test for test in (*fail, *report.pass_to_pass) if status_of(test, before) == "PASSED"]
            # These were skipped or expected to fail before the change, too: they pass on both
            # sides.
            if not self._unchanged(session, [test for test in report.pass_to_pass if test not in passed], before):
                return refused("tampered", fail, passing)
            session.reset()
            rng = random.SystemRandom()
            passed_before = [test for test in passed if test not in report.fail_to_pass]
            selected = sabotage.sample(report.fail_to_pass, passed_before, rng)
            sabotaged = self._sabotaged(session, admitted, selected, rng)
            if missed := set(report.fail_to_pass) - sabotaged.covered:
                return refused(f"cannot_be_checked: {min(missed)}", fail, passing)
            log, _, fault = self.run_tests(session, admitted, over=sabotaged.files, only=sabotaged.expected)
            after = PARSERS[parser](log)
            if fault or not all(sabotage.failed(name, after, status_of(name, after)) for name in sabotaged.expected):
                return refused("tampered", fail, passing)
            return report

    def _unchanged(self, session: Session, tests: list[str], statuses: dict[str, str]) -> bool:
        """Returns True if these tests have the same results without the submission."""
        if not tests:
            return True
        session.reset()
        log, _, fault = self.run_tests(session, {})
        plain = PARSERS[self.row.parser](log)
        return not fault and all(status_of(test, plain) == status_of(test, statuses) for test in tests)

    @contextlib.contextmanager
    def _bench(self, seconds: float) -> Iterator[Session]:
        """Opens a sandbox with the repository as published; `reset` restores it."""
        with drivers.open(self.spec(replace(JUDGING, seconds=seconds)), self.driver) as session:
            session.copy_in(self.source)
            session.snapshot()
            yield session

    def log_of(self, changes: Changes, seconds: float) -> tuple[str, str]:
        """Returns log and fault of the tests with `changes`, in a fresh sandbox."""
        with self._bench(seconds) as session:
            log, _, fault = self.run_tests(session, changes)
        return log, fault

    def run_tests(
        self,
        session: Session,
        changes: Changes,
        held_out: bool = True,
        over: Changes | None = None,
        only: Iterable[str] | None = None,
    ) -> tuple[str, int, str]:
        """Returns log, exit code and fault ('' if there is none) of the tests in a fresh sandbox.

        `changes` and, with `held_out`, the held-out tests are applied first; then `over` overwrites
        both. `only`: ids of the tests that count; where pytest runs them, the others are left out.
        """
        if not self._apply(session, changes, held_out):
            return "", 1, "not_applied"
        if over:
            write_changes(session, over)
        command = self._command()
        script = f"exec 2>&1; {command[0]} echo '{START}'; {command[1]}; status=$?; echo; echo '{END}'; exit $status"
        variables = {key: value.format(testbed=session.workspace) for key, value in self.variables().items()}
        if self.sealed and held_out:
            script = sealing.sealed(script, only, random.SystemRandom())
        done = session.run(script, environment=variables)
        if done.fate is not Fate.EXITED:
            return "", 1, str(done.fate)
        if done.cut:
            return "", 1, "output"
        return done.stdout.decode(errors="replace"), done.exit_code, ""

    def _command(self) -> tuple[str, str]:
        if "test_cmd" in self.recipe:
            named = self.recipe.get("directives") or " ".join(directives(self.record))
            return "", f"{self.recipe['test_cmd']} {named}"
        row = self.row
        return (f"{row.before};" if row.before else ""), test_command(self.record)

    def _apply(self, session: Session, changes: Changes, held_out: bool) -> bool:
        """Writes `changes` and applies the test patch with the first command that works, as the data
        sets' own harness does.

        Each command starts from a workspace that the earlier ones have not touched.
        """
        write_changes(session, changes)
        if not held_out:
            return True
        for number, command in enumerate(_APPLY):
            if number:
                session.reset()
                write_changes(session, changes)
            if session.run(command, stdin=self.record.test_patch.encode(), limits=JUDGING).exit_code == 0:
                return True
        return False

    def _sabotaged(self, session: Session, changes: Changes, tests: list[str], rng: random.Random) -> _Sabotaged:
        """Returns the files in which `tests` must fail, based on `changes` and the held-out tests.

        Changes the session's state.
        """
        sabotaged = _Sabotaged({}, set(), set())
        patched = test_files(self.record.test_patch)
        row = self.row
        style = "mypy" if self.record.repo.lower() == "python/mypy" else row.parser
        style = style if style in ("mypy", "django", "sympy") else "pytest"
        if not self._apply(session, changes, held_out=True):
            return sabotaged
        texts: dict[str, str | None] = {}
        for added in (False, True):  # a stand-in test is added only for tests that no file contains
            by_file: dict[str, list[str]] = {}
            for test in tests:
                for path in () if test in sabotaged.covered else sabotage.paths(test, style, patched):
                    if path in patched or (path in self._files and tampering.is_test(path)):
                        by_file.setdefault(path, []).append(test)
            for path, selected in by_file.items():
                selected = [test for test in selected if test not in sabotaged.covered]
                text = texts[path] if path in texts else self._text(session, path)
                if (
                    text is None or not selected or (added and style == "mypy")
                ):  # of mypy's tests only named ones are run
                    continue
                if path.endswith(".test"):
                    changed = sabotage.in_cases(text, selected, rng)
                else:
                    changed = sabotage.in_python(text, selected, path, style, rng, added, self.failures)
                texts[path], sabotaged.files[path] = changed.text, changed.text.encode()
                sabotaged.expected.update(changed.expected)
                sabotaged.covered.update(changed.covered)
        session.reset()
        return sabotaged

    def _text(self, session: Session, path: str) -> str | None:
        with leftovers.passing("swegym") as folder:
            try:
                session.copy_out(path, Path(folder))
                return Path(folder, Path(path).name).read_text()
            except (DataError, OSError, UnicodeDecodeError):
                return None

    def visible(self, changes: Changes, tests: tuple[str, ...], seconds: float) -> str:
        if tests:
            raise DataError("Name tests to the shell: run_tests runs the files that the issue's tests belong to.")
        with self._bench(seconds) as session:
            log, _, fault = self.run_tests(session, changes, held_out=False)
        if fault:
            return f"The tests did not get through ({fault})."
        statuses = PARSERS[self.row.parser](log)
        counts = {status: list(statuses.values()).count(status) for status in sorted(set(statuses.values()))}
        failing = [test for test, status in statuses.items() if status in ("FAILED", "ERROR")][:10]
        counted = ", ".join(f"{count} {status.lower()}" for status, count in counts.items()) or "no test was run"
        return "\n".join([f"{counted}.", *(f"FAILED {test}" for test in failing)])


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
