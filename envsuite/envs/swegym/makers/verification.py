"""Verification of a candidate as every record is graded: it becomes a record in SWE-Gym's schema, or is rejected.

`verify` grades with the setup's own command and in its own environment, not as the search did. The
gold patch must resolve the record, and an empty line added to a file of the gold patch must not.
The lists of tests hold what these two runs confirm of the four runs of the search.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from envsuite.envs.swegym.judge.grading import between_markers
from envsuite.envs.swegym.makers import issue
from envsuite.envs.swegym.makers.releases import Release, checksum, is_test_module
from envsuite.envs.swegym.makers.search import BugCandidate
from envsuite.envs.swegym.planted.tasks import diff_of
from envsuite.envs.swegym.problems import Changes
from envsuite.envs.swegym.published.logs import PARSERS
from envsuite.envs.swegym.published.problem import PublishedProblem
from envsuite.envs.swegym.published.records import Record
from envsuite.envs.swegym.published.repos import test_files
from envsuite.sandbox.protocol import Fate

SECONDS = 120.0
"""wall clock of one run of a suite"""
COMMAND = "pytest -rA --tb=short -o addopts= -p no:cacheprovider --rootdir=."
MOST_PATCH = 60_000
"""characters of a test patch"""
MOST_IDS = 40_000
"""characters of the names in PASS_TO_PASS; of a longer list, tests at equal distances are kept"""


class CandidateRejected(Exception):
    """The candidate cannot become an instance; the message names the reason."""


def setup_of(release: Release, tests: Iterable[str] = ()) -> dict[str, Any]:
    """Returns the setup of a release: its archive, pins of the installed requirements, and the test command.

    `tests`: modules to run, as SWE-bench runs the files of the test patch; the complete suite if the release lacks one.
    """
    modules = sorted(set(tests))
    if not modules or not all(path in release.tests for path in modules):
        modules = list(release.package.tests)
    package = release.package
    local = release.archive.parent.parent.name != "archives"
    requirement = str(release.archive.resolve()) if local else f"{package.name}=={package.version}"
    roots = dict.fromkeys([f"{{testbed}}/{package.path}".removesuffix("/."), "{testbed}"])
    return {
        "source": {"kind": "sdist", "req": requirement, "sha256": checksum(release.archive)},
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "pins": [f"{name}=={importlib.metadata.version(name)}" for name in ("pytest", *package.needs)],
        "env": {"PYTHONPATH": ":".join(roots), "PYTHONDONTWRITEBYTECODE": "1"},
        "test_cmd": COMMAND,
        "parser": "pytest_subtests",
        "directives": " ".join(modules),
    }


def verify(candidate: BugCandidate, driver: str) -> dict[str, Any]:
    """Returns the verified record of a candidate.

    Raises CandidateRejected with the reason, DataError, EngineFailure.
    """
    pair = candidate.pair
    changes = candidate.changes
    patch = diff_of(_encoded(pair.old.texts), {path: _bytes(text) for path, text in changes.items()})
    package = pair.old.package
    setup = setup_of(pair.old, (test.partition("::")[0] for test in candidate.repaired))
    digest = hashlib.sha256(patch.encode()).hexdigest()[:8]
    unverified = Record(
        instance_id=f"pypi__{package.name}-{pair.new.package.version}-{digest}",
        repo=f"pypi/{package.name}",
        base_commit=setup["source"]["sha256"],
        patch=patch,
        test_patch="",
        problem_statement=package.title,
        fail_to_pass=candidate.repaired,
        pass_to_pass=candidate.stable,
        version=package.version,
    )
    problem = PublishedProblem(unverified, setup, driver)
    try:
        record = _graded(unverified, problem, candidate)
        text, hints = _texts_of(candidate)
        extra = {
            "setup": setup,
            "licence": package.licence,
            "files": len(changes),
            "lines": sum(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in patch.splitlines()),
            "hunks": len(candidate.hunks),
        }
        return replace(record, problem_statement=text, hints_text=hints, extra=extra).plain()
    finally:
        problem.close()


def _test_patch(candidate: BugCandidate, more: set[str]) -> str:
    """Returns the changes of the tests: of modules with repaired tests, of the modules `more`, and of other files.

    Raises CandidateRejected if it is too large.
    """
    old, new = candidate.pair.old.tests, candidate.pair.new.tests
    needed = {test.partition("::")[0] for test in candidate.repaired} | more
    changes = {
        path: _bytes(new.get(path))
        for path in sorted({*old, *new})
        if old.get(path) != new.get(path) and (path in needed or (path in new and not is_test_module(path)))
    }
    patch = diff_of(_encoded(candidate.pair.old.texts), changes)
    if len(patch) > MOST_PATCH:
        raise CandidateRejected("test patch too large")
    return patch


def _graded(unverified: Record, problem: PublishedProblem, candidate: BugCandidate) -> Record:
    """Returns the record with its lists of tests, after its gold patch and an empty line have been graded.

    Modules whose old tests the gold patch breaks get their new version, in a second try.
    """
    more: set[str] = set()
    for _ in range(2):
        problem.record = unverified = replace(unverified, test_patch=_test_patch(candidate, more))
        after = _grade(problem, problem.gold())
        existing = next((path for path in problem.gold() if path in problem.tree()), None)
        if existing is None:
            raise CandidateRejected("the gold patch only adds files")
        before = _grade(problem, {existing: problem.tree()[existing] + b"\n"}, useless=True)
        broken = {test for test in before if before[test] == "PASSED" and after.get(test) not in ("PASSED", "SKIPPED")}
        new = {test.partition("::")[0] for test in broken} - set(test_files(unverified.test_patch))
        if not broken:
            return _with_tests(unverified, before, after)
        if not new or more:
            break
        more = new
    raise CandidateRejected("breaks other tests")


def _with_tests(unverified: Record, before: Mapping[str, str], after: Mapping[str, str]) -> Record:
    """Returns the record with the tests whose statuses are as the search found them."""
    fail = [
        test
        for test in unverified.fail_to_pass
        if after.get(test) == "PASSED" and before.get(test) in ("FAILED", "ERROR") and _complete(test)
    ]
    passing = [
        test
        for test in unverified.pass_to_pass
        if after.get(test) == "PASSED" and before.get(test) == "PASSED" and _complete(test)
    ]
    if not fail:
        raise CandidateRejected("the setup's run does not confirm it")
    total = sum(map(len, passing))
    if total > MOST_IDS:
        passing = passing[:: -(-total // MOST_IDS)]
    return replace(unverified, fail_to_pass=tuple(fail), pass_to_pass=tuple(passing))


def _complete(test: str) -> bool:
    """Returns False for names that logs cut at a space, and for names with the date of yesterday, today or tomorrow.

    pytest takes such names from parameters such as `date.today()`: tomorrow they are others. The tests may take the
    day of another time zone.
    """
    days = [datetime.date.today() - datetime.timedelta(days) for days in (-1, 0, 1)]
    if any(day.strftime(form) in test for day in days for form in ("%Y-%m-%d", "%Y%m%d", "%d.%m.%Y", "%m/%d/%Y")):
        return False
    return " " not in test and test.count("[") == test.count("]")


def _grade(problem: PublishedProblem, changes: Changes, useless: bool = False) -> dict[str, str]:
    """Grades changes and returns the statuses of their run.

    Raises CandidateRejected for a wrong verdict.
    """
    report = problem.judge(changes, SECONDS)
    if report.fault == Fate.TIMEOUT:
        raise CandidateRejected(f"the setup's run takes more than {SECONDS:g} s")
    if report.fault:
        raise CandidateRejected(f"the judge refuses it ({report.fault.partition(':')[0]})")
    if useless and report.fail_to_pass:
        raise CandidateRejected("a repaired test passes without the change")
    if not useless and not report.fail_to_pass:
        raise CandidateRejected("the setup's run does not confirm it")
    return PARSERS[problem.row.parser](between_markers(problem.test_log[0]) or "")


def _texts_of(candidate: BugCandidate) -> tuple[str, str]:
    """Returns the issue's text and its hints. Raises CandidateRejected for a text that states nothing."""
    pair = candidate.pair
    names = issue.changed_names(pair.old.code, candidate.hunks)
    tests = [path for path in pair.new.tests if path.endswith(".py")]
    quoted = issue.checks(pair.base, tests, candidate.symptoms, names)
    if not quoted:
        raise CandidateRejected("no failing check can be quoted")
    hints = issue.hints(candidate.repaired, sorted(candidate.changes), names)
    return issue.statement(pair.old.package.title, quoted), hints


def _encoded(files: Mapping[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in files.items()}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
