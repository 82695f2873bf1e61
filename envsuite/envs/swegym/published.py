"""Published instances: records of SWE-Gym and SWE-bench, played and judged where `places` says.

History that leaks the fix cannot be there: the agent's copy is a repository of one commit.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from envsuite.envs.swegym import places, records, sabotage, tampering
from envsuite.envs.swegym.grading import Report, grade_log, refused, status_of
from envsuite.envs.swegym.logs import PARSERS
from envsuite.envs.swegym.problems import GIT, Changes, Problem
from envsuite.envs.swegym.repos import END, REPOS, START, directives, image_name, repo_of, test_command, test_files
from envsuite.envs.swegym.workspace import read_tree
from envsuite.errors import DataError
from envsuite.sandbox import drivers, leftovers
from envsuite.sandbox.protocol import Fate, Limits, Session, Spec

JUDGING = Limits(memory_mb=4096, disk_mb=2048, processes=256, files=1024, output_kb=32_000, flood_mb=64)
_APPLY = ("git apply --verbose -", "git apply --verbose --reject -", "patch --batch --forward --fuzz=5 -p1")


def find(source: str, split: str = "") -> dict[str, tuple[records.Record, dict[str, Any] | None]]:
    """Records by id, with their recipes: of a records file, or of a folder with a folder per instance.

    `split`: of a data set on the hub. Raises DataError.
    """
    path = Path(source).expanduser()
    if not path.is_dir():
        return {record.instance_id: (record, None) for record in records.load(source, split)}
    found: dict[str, tuple[records.Record, dict[str, Any] | None]] = {}
    for folder in sorted(path.iterdir()):
        file = folder / "instance.json"
        if file.is_file():
            held = records.load(file)
            if len(held) != 1:
                raise DataError(f"{file} holds {len(held)} records: it must hold one.")
            recipe = folder / "replay.json"
            if held[0].instance_id in found:
                raise DataError(f"{file}: instance_id {held[0].instance_id!r} is there twice.")
            found[held[0].instance_id] = (held[0], places.read_recipe(recipe) if recipe.is_file() else None)
    if not found:
        raise DataError(f"The folder {source} holds no NAME/instance.json: name a records file, or such a folder.")
    return found


def check(record: records.Record, recipe: dict[str, Any] | None, driver: str, build: bool = False) -> None:
    """Whether a record can be played with this driver. Raises DataError, in one line with the cure."""
    if record.repo.lower() not in REPOS:
        raise DataError(
            f"{record.instance_id}: how the tests of {record.repo!r} are run is not known. Leave it out with "
            f"--set deny={record.instance_id}; known are the repositories of SWE-Gym and SWE-bench."
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


class PublishedProblem(Problem):
    """A record, played and judged with its recipe in any driver, or in its image with docker."""

    def __init__(self, record: records.Record, recipe: dict[str, Any] | None, driver: str, build: bool = False) -> None:
        """`build`: a recipe becomes an image. Raises DataError where there is neither recipe nor docker."""
        check(record, recipe, driver, build)
        self.record, self.recipe, self.driver = record, recipe or {}, driver
        self.instance_id, self.kind = record.instance_id, record.repo
        self.statement = record.problem_statement
        self.gold_files = tuple(test_files(record.patch))
        self.place = places.of_recipe(recipe, build) if recipe else places.of_image(image_name(record))
        self.source = self.place.source

    # ---- the agent's side ---------------------------------------------------------------------------------------------

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

    # ---- the judge ----------------------------------------------------------------------------------------------------

    def judge(self, changes: Changes, seconds: float) -> Report:
        record = self.record
        fail, keep = record.fail_to_pass, record.pass_to_pass
        if not changes:
            return refused("no_patch", fail, keep)
        admitted = tampering.admitted(changes, self.gold_files, test_files(record.test_patch))
        if not admitted:
            return refused("nothing_admitted", fail, keep)
        if tampering.expects_failure(self._files, admitted):
            return refused("expects_failure", fail, keep)
        parser = repo_of(record).parser
        with self._bench(seconds) as session:
            log, exit_code, fault = self.run_tests(session, admitted)
            if fault:
                return refused(fault, fail, keep)
            report = grade_log(log, parser, fail, keep, exit_code)
            if not report.fail_to_pass:
                return report
            before = PARSERS[parser](log)
            passed = [test for test in (*fail, *report.pass_to_pass) if status_of(test, before) == "PASSED"]
            # Before the change these were skipped, or failed as expected, too: they pass on both sides.
            if not self._unchanged(session, [test for test in report.pass_to_pass if test not in passed], before):
                return refused("tampered", fail, keep)
            session.reset()
            dice = random.SystemRandom()
            made = self._sabotaged(session, admitted, passed, dice)
            if missed := set(report.fail_to_pass) - made.covered:
                return refused(f"cannot_be_checked: {min(missed)}", fail, keep)
            log, _, fault = self.run_tests(session, admitted, over=made.files)
            after = PARSERS[parser](log)
            if fault or not all(sabotage.failed(name, after, status_of(name, after)) for name in made.expected):
                return refused("tampered", fail, keep)
            return report

    def _unchanged(self, session: Session, tests: list[str], statuses: dict[str, str]) -> bool:
        """Whether these tests come out the same without the submission."""
        if not tests:
            return True
        session.reset()
        log, _, fault = self.run_tests(session, {})
        plain = PARSERS[repo_of(self.record).parser](log)
        return not fault and all(status_of(test, plain) == status_of(test, statuses) for test in tests)

    @contextlib.contextmanager
    def _bench(self, seconds: float) -> Iterator[Session]:
        """A sandbox with the repository as published; `reset` makes it fresh again: nothing that ran, and no file."""
        with drivers.open(self.spec(replace(JUDGING, seconds=seconds)), self.driver) as session:
            session.copy_in(self.source)
            session.snapshot()
            yield session

    def run_tests(
        self, session: Session, changes: Changes, held_out: bool = True, over: Changes | None = None
    ) -> tuple[str, int, str]:
        """Log, exit code and fault ('' where there is none) of the tests in a fresh sandbox, `changes` laid in and the
        held-out tests applied; `over` is laid over both."""
        if not self._laid(session, changes, held_out):
            return "", 1, "not_applied"
        if over:
            lay(session, over)
        command = self._command()
        script = f"exec 2>&1; {command[0]} echo '{START}'; {command[1]}; status=$?; echo; echo '{END}'; exit $status"
        variables = {key: value.format(testbed=session.workspace) for key, value in self.variables().items()}
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
        row = repo_of(self.record)
        return (f"{row.before};" if row.before else ""), test_command(self.record)

    def _laid(self, session: Session, changes: Changes, held_out: bool) -> bool:
        """Lays `changes` in and applies the test patch, by the first way that works, as the data sets' own harness does:
        each is tried on a workspace that those before have not touched."""
        lay(session, changes)
        if not held_out:
            return True
        for number, command in enumerate(_APPLY):
            if number:
                session.reset()
                lay(session, changes)
            if session.run(command, stdin=self.record.test_patch.encode(), limits=JUDGING).exit_code == 0:
                return True
        return False

    def _sabotaged(self, session: Session, changes: Changes, tests: list[str], dice: random.Random) -> _Sabotaged:
        """The files in which `tests` must fail, laid over `changes` and the held-out tests. Uses up the session's state."""
        made = _Sabotaged({}, set(), set())
        patched = test_files(self.record.test_patch)
        row = repo_of(self.record)
        style = "mypy" if self.record.repo.lower() == "python/mypy" else row.parser
        style = style if style in ("mypy", "django", "sympy") else "pytest"
        if not self._laid(session, changes, held_out=True):
            return made
        texts: dict[str, str | None] = {}
        for added in (False, True):  # a test stands in only for one that none of the files holds
            by_file: dict[str, list[str]] = {}
            for test in tests:
                for path in () if test in made.covered else sabotage.paths(test, style, patched):
                    if path in patched or (path in self._files and tampering.is_test(path)):
                        by_file.setdefault(path, []).append(test)
            for path, asked in by_file.items():
                asked = [test for test in asked if test not in made.covered]
                text = texts[path] if path in texts else self._text(session, path)
                if text is None or not asked or (added and style == "mypy"):  # of mypy's tests only named ones are run
                    continue
                if path.endswith(".test"):
                    one = sabotage.in_cases(text, asked, dice)
                else:
                    one = sabotage.in_python(text, asked, path, style, dice, added)
                texts[path], made.files[path] = one.text, one.text.encode()
                made.expected.update(one.expected)
                made.covered.update(one.covered)
        session.reset()
        return made

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
        statuses = PARSERS[repo_of(self.record).parser](log)
        counts = {status: list(statuses.values()).count(status) for status in sorted(set(statuses.values()))}
        failing = [test for test, status in statuses.items() if status in ("FAILED", "ERROR")][:10]
        said = ", ".join(f"{count} {status.lower()}" for status, count in counts.items()) or "no test was run"
        return "\n".join([f"{said}.", *(f"FAILED {test}" for test in failing)])


def lay(session: Session, changes: Changes) -> None:
    """Writes and removes files of a workspace."""
    with leftovers.passing("swegym") as folder:
        for path, content in changes.items():
            if content is not None:
                file = Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
        if any(content is not None for content in changes.values()):
            session.copy_in(Path(folder))
    gone = [path for path, content in changes.items() if content is None]
    if gone:
        session.run(["rm", "-f", "--", *gone])


def changes_of(patch: str, source: Path) -> dict[str, bytes | None]:
    """What a patch makes of the files it names: path -> content. Raises DataError where it does not apply.

    Only for patches of a data set: a stranger's is applied in a sandbox.
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
        made = read_tree(folder)
        return {path: made.get(path) for path in test_files(patch)}
