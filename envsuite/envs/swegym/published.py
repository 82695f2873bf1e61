"""Published instances: records of SWE-Gym and SWE-bench, played and judged where `places` says.

History that leaks the fix cannot be there: the agent's copy is a repository of one commit.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from envsuite.envs.swegym import places, records, tampering
from envsuite.envs.swegym.grading import Report, grade_log, refused
from envsuite.envs.swegym.logs import PARSERS
from envsuite.envs.swegym.problems import GIT, Changes, Problem
from envsuite.envs.swegym.repos import END, START, directives, repo_of, test_command, test_files
from envsuite.envs.swegym.workspace import read_tree
from envsuite.errors import DataError
from envsuite.sandbox import drivers, leftovers
from envsuite.sandbox.protocol import Fate, Limits, Session, Spec

JUDGING = Limits(memory_mb=4096, disk_mb=2048, processes=256, files=1024, output_kb=32_000, flood_mb=64)
_APPLY = ("git apply --verbose -", "git apply --verbose --reject -", "patch --batch --forward --fuzz=5 -p1")


def find(source: str) -> dict[str, tuple[records.Record, dict[str, Any] | None]]:
    """Records by id, with their recipes: of a records file, or of a folder with a folder per instance.

    Raises DataError.
    """
    path = Path(source).expanduser()
    if not path.is_dir():
        return {record.instance_id: (record, None) for record in records.load(source)}
    found = {}
    for folder in sorted(path.iterdir()):
        file = folder / "instance.json"
        if file.is_file():
            (record,) = records.load(file)
            recipe = folder / "replay.json"
            found[record.instance_id] = (record, places.read_recipe(recipe) if recipe.is_file() else None)
    if not found:
        raise DataError(f"The folder {source} holds no NAME/instance.json: name a records file, or such a folder.")
    return found


class PublishedProblem(Problem):
    """A record, played and judged with its recipe in any driver, or in its image with docker."""

    def __init__(self, record: records.Record, recipe: dict[str, Any] | None, driver: str, build: bool = False) -> None:
        """`build`: a recipe becomes an image. Raises DataError where there is neither recipe nor docker."""
        if driver != "docker" and (build or recipe is None):
            raise DataError(
                f"{record.instance_id} {'is to be built into an image' if build else 'has no recipe'}, and its image "
                f"({records.image_name(record)}) is played with --set sandbox=docker alone; other drivers need a folder with "
                "NAME/instance.json and NAME/replay.json."
            )
        self.record, self.recipe, self.driver = record, recipe or {}, driver
        self.instance_id, self.kind = record.instance_id, record.repo
        self.statement = record.problem_statement
        self.gold_files = tuple(test_files(record.patch))
        self.place = places.of_recipe(recipe, build) if recipe else places.of_image(records.image_name(record))
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
        parser = repo_of(record).parser
        with self._bench(seconds) as session:
            log, exit_code, fault = self.run_tests(session, admitted)
            if fault:
                return refused(fault, fail, keep)
            report = grade_log(log, parser, fail, keep, exit_code)
            if not report.fail_to_pass:
                return report
            if b"xfail" in b"".join(content or b"" for content in admitted.values()):
                return refused("reaches_for_the_judge", fail, keep)  # an expected failure counts as a pass
            session.reset()
            expected: set[str] = set()
            log, _, fault = self.run_tests(session, admitted, sabotage=report.fail_to_pass, sabotaged=expected)
            after = PARSERS[parser](log)
            if fault or any(after.get(test) != "FAILED" for test in expected):
                return refused("tampered", fail, keep)
            return report

    @contextlib.contextmanager
    def _bench(self, seconds: float) -> Iterator[Session]:
        """A sandbox with the repository as published; `reset` makes it fresh again: nothing that ran, and no file."""
        with drivers.open(self.spec(replace(JUDGING, seconds=seconds)), self.driver) as session:
            session.copy_in(self.source)
            session.snapshot()
            yield session

    def run_tests(
        self,
        session: Session,
        changes: Changes,
        held_out: bool = True,
        sabotage: tuple[str, ...] = (),
        sabotaged: set[str] | None = None,
    ) -> tuple[str, int, str]:
        """Log, exit code and fault ('' where there is none) of the tests in a fresh sandbox, `changes` laid in."""
        lay(session, changes)
        if held_out and not _apply(session, self.record.test_patch):
            return "", 1, "not_applied"
        if sabotage and sabotaged is not None:
            self._sabotage(session, sabotage, sabotaged)
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

    def _sabotage(self, session: Session, tests: tuple[str, ...], found: set[str]) -> None:
        with leftovers.passing("swegym") as folder:
            for path in {test.partition("::")[0] for test in tests}:
                if path not in test_files(self.record.test_patch) or not path.endswith(".py"):
                    continue
                session.copy_out(path, Path(folder))
                file = Path(folder, Path(path).name)
                text, seen = tampering.sabotaged(file.read_text(), [test for test in tests if test.startswith(path)])
                lay(session, {path: text.encode()})
                found |= seen

    def visible(self, changes: Changes, tests: tuple[str, ...], seconds: float) -> str:
        if tests:
            return "Name tests to the shell: run_tests runs the files that the issue's tests belong to."
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


def _apply(session: Session, patch: str) -> bool:
    """Applies a patch by the first way that works, as the data sets' own harness does."""
    return any(session.run(command, stdin=patch.encode(), limits=JUDGING).exit_code == 0 for command in _APPLY)


def changes_of(patch: str, source: Path) -> dict[str, bytes | None]:
    """What a patch makes of the files it names: path -> content. Raises DataError where it does not apply.

    Only for patches of a data set: a stranger's is applied in a sandbox.
    """
    with leftovers.passing("swegym") as name:
        folder = Path(name)
        for path in test_files(patch):
            if (source / path).is_file():
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
